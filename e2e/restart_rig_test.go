package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// daemon is a bridge in a process of its own, with a data directory that outlives it.
type daemon struct {
	*stage
	root   string
	path   string // of the program; empty for the one that is tested
	flags  []string
	cmd    *exec.Cmd
	log    bytes.Buffer
	exited chan error
	client *copilot.Client
}

func newDaemon(st *stage, flags ...string) *daemon {
	st.t.Helper()
	root, err := os.MkdirTemp("", "kill") // short: it is in a socket's path
	if err != nil {
		st.t.Fatal(err)
	}
	return startDaemon(&daemon{stage: st, root: root, flags: flags})
}

// startDaemon starts a bridge in its root, which ends with the test.
func startDaemon(d *daemon) *daemon {
	st, root := d.stage, d.root
	st.t.Cleanup(func() {
		d.stop(syscall.SIGTERM)
		if st.t.Failed() {
			st.t.Logf("log of the bridge:\n%s", &d.log)
		}
		_ = os.RemoveAll(root)
	})
	d.start()
	return d
}

// start begins a life of the bridge.
func (d *daemon) start() {
	d.t.Helper()
	path, err := d.path, error(nil)
	if path == "" {
		path, err = program()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	socket := filepath.Join(d.root, "s")
	d.cmd = exec.Command(path, append([]string{
		"serve", "--listen", "unix:" + socket, "--cli", os.Getenv(cliEnv), "--no-login", "--home", filepath.Join(d.root, "home"),
		"--user-home", d.root, "--work-dir", d.root, "--data-dir", filepath.Join(d.root, "data"),
	}, d.flags...)...)
	d.cmd.Stderr, d.cmd.Stdout = &d.log, &d.log
	d.exited = make(chan error, 1)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(d.cmd, d.exited)
	for {
		if d.client, err = copilot.Dial(d.ctx, "unix:"+socket); err == nil {
			return
		}
		select {
		case err := <-d.exited:
			d.exited <- err
			d.t.Fatalf("the bridge ended: %v\n%s", err, &d.log)
		case <-d.ctx.Done():
			d.t.Fatalf("the bridge does not answer: %v\n%s", err, &d.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the life of the bridge.
func (d *daemon) stop(sig syscall.Signal) {
	if d.client != nil {
		_ = d.client.Close()
		d.client = nil
	}
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(sig)
	}
	err := <-d.exited
	d.exited <- err
}

// crash kills the bridge and starts it again.
func (d *daemon) crash() {
	d.t.Helper()
	d.stop(syscall.SIGKILL)
	d.start()
}

// durable are the ids of the session's events that the CLI keeps, in the journal's order,
// with their positions.
func (d *daemon) durable(id string) (ids []string, at []*bridgev1.Position) {
	d.t.Helper()
	token := ""
	for {
		page, err := d.client.Sessions().ListEvents(d.ctx, &bridgev1.ListEventsRequest{
			SessionId: id, PageToken: token, OriginalJson: true, Filter: &bridgev1.EventFilter{ExcludeEphemeral: true, IncludeHeavy: true},
		})
		if err != nil {
			d.t.Fatalf("events of %s: %v", id, err)
		}
		for _, e := range page.GetEvents() {
			ids, at = append(ids, e.GetEvent().GetId()), append(at, e.GetPosition())
		}
		if token = page.GetNextPageToken(); token == "" {
			return ids, at
		}
	}
}

// oracle are the ids of the events in the CLI's own record of a session.
func (d *daemon) oracle(id string) (ids []string) {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.root, "home", "session-state", id, "events.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is written a little late
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct{ ID, Type string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			d.t.Fatalf("%q: %v", line, err)
		}
		// The CLI tells nobody of these: of the second one neither when it ends because the
		// bridge has, nor in its history.
		if e.Type != "session.usage_record" && e.Type != "session.shutdown" {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// agrees checks the journal against the CLI's own record: it has all of that, in its
// order, each once, and growing positions.
func (d *daemon) agrees(id string) {
	d.t.Helper()
	want := d.oracle(id)
	got, at := d.durable(id)
	for i := 1; i < len(at); i++ {
		if !less(at[i-1], at[i]) {
			d.t.Errorf("event %d is at %v, after %v", i, at[i], at[i-1])
		}
	}
	both := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(want, id) })
	if !slices.Equal(both, want) {
		d.t.Errorf("session %s: the journal has %d of the CLI's %d events, or another order:\n%v\n%v", id, len(both), len(want), both, want)
	}
}

func less(a, b *bridgev1.Position) bool {
	return a.GetEpoch() < b.GetEpoch() || a.GetEpoch() == b.GetEpoch() && a.GetSeq() < b.GetSeq()
}

// waiting waits until a callback of the session is pending, and returns it.
func (d *daemon) waiting(id string) *bridgev1.Callback {
	d.t.Helper()
	return d.waitingFor(id, bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED)
}

// waitingFor is waiting for one of a kind, or of any.
func (d *daemon) waitingFor(id string, kind bridgev1.CallbackKind) *bridgev1.Callback {
	d.t.Helper()
	for d.ctx.Err() == nil {
		r, err := d.client.Callbacks().ListPending(d.ctx, &bridgev1.ListPendingRequest{SessionId: id})
		if err != nil {
			d.t.Fatalf("pending of %s: %v", id, err)
		}
		for _, c := range r.GetCallbacks() {
			if kind == bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED || c.GetKind() == kind {
				return c
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	d.t.Fatalf("session %s asks nothing", id)
	return nil
}

// after reads the session's durable events after a position until one of the type,
// and returns their ids and the gaps.
func (d *daemon) after(id string, at *bridgev1.Position, until string) (ids []string, gaps []*bridgev1.Gap) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	stream, err := d.client.EventStreams().Subscribe(ctx, &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
		SessionId: id, After: at, Filter: &bridgev1.EventFilter{IncludeHeavy: true},
	}}})
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if err != nil {
			d.t.Fatalf("stream of %s: %v", id, err)
		}
		if g := f.GetGap(); g != nil {
			gaps = append(gaps, g)
		}
		for _, e := range f.GetEvents().GetEvents() {
			ids = append(ids, e.GetEvent().GetId())
			if e.GetEvent().GetType() == until {
				return ids, gaps
			}
		}
		if f.GetCaughtUp() != nil && until == "" {
			return ids, gaps
		}
	}
}

// alive reports whether a process runs.
func alive(pid int64) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.FormatInt(pid, 10), "stat"))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// secretsIn returns the files below a directory that hold a text.
func secretsIn(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// eventually waits for what nothing announces.
func (st *stage) eventually(what string, done func() bool) {
	st.t.Helper()
	for !done() {
		if st.ctx.Err() != nil {
			st.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
