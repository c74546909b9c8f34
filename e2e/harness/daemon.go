package harness

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
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

// planted is a secret that may not be found on disk.
const Planted = "planted-5ecret"

// Provide gives a session's secrets back.
func (d *Daemon) Provide(id string) {
	d.T.Helper()
	_, err := d.Client.Sessions().ProvideCredentials(d.Ctx, &bridgev1.ProvideCredentialsRequest{
		SessionId: id,
		Provider:  &cliv1.ProviderConfig{ApiKey: proto.String(Planted), Headers: map[string]string{"X-Key": Planted}},
	})
	if err != nil {
		d.T.Fatalf("credentials of %s: %v", id, err)
	}
}

// SayTo has a turn in a session.
func (d *Daemon) SayTo(id, text string) {
	d.T.Helper()
	out, err := d.Client.Session(id).SendAndWait(d.Ctx, text)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		d.T.Errorf("the turn of %q in %s: %v", text, id, err)
	}
}

// Daemon is a bridge in a separate process, with a data directory that outlives it.
type Daemon struct {
	*Scripted
	Root   string
	Path   string // of the program; empty for the one that is tested
	Flags  []string
	Env    []string     // in addition to this process's
	Cmd    *exec.Cmd    // the process of this life
	Exited chan error   // receives how this life ended; who takes it puts it back
	Log    bytes.Buffer // to be read after the end of a life
	Client *copilot.Client
}

// NewDaemon starts a daemon with the flags, and stops it at the end of the test.
func NewDaemon(st *Scripted, flags ...string) *Daemon { return NewDaemonOf(st, "", flags...) }

// NewDaemonOf is NewDaemon with another program than the one that is tested.
func NewDaemonOf(st *Scripted, path string, flags ...string) *Daemon {
	st.T.Helper()
	root, err := os.MkdirTemp("", "kill") // short: it is in a socket's path
	if err != nil {
		st.T.Fatal(err)
	}
	return StartDaemon(&Daemon{Scripted: st, Root: root, Path: path, Flags: flags})
}

// StartDaemon starts a bridge in its root, which ends with the test.
func StartDaemon(d *Daemon) *Daemon {
	st, root := d.Scripted, d.Root
	st.T.Cleanup(func() {
		d.Stop(syscall.SIGTERM)
		if st.T.Failed() {
			st.T.Logf("log of the bridge:\n%s", &d.Log)
		}
		_ = os.RemoveAll(root)
	})
	d.Start()
	return d
}

// Start begins a life of the bridge.
func (d *Daemon) Start() {
	d.T.Helper()
	path, err := d.Path, error(nil)
	if path == "" {
		path, err = Program()
	}
	if err != nil {
		d.T.Fatal(err)
	}
	socket := filepath.Join(d.Root, "s")
	d.Cmd = exec.Command(path, append([]string{
		"serve", "--listen", "unix:" + socket, "--cli", os.Getenv(CLIEnv), "--no-login", "--home",
		filepath.Join(d.Root, "home"),
		"--user-home", d.Root, "--work-dir", d.Root, "--data-dir", filepath.Join(d.Root, "data"),
	}, d.Flags...)...)
	d.Cmd.Env = append(os.Environ(), d.Env...)
	d.Cmd.Stderr, d.Cmd.Stdout = &d.Log, &d.Log
	d.Exited = make(chan error, 1)
	if err := d.Cmd.Start(); err != nil {
		d.T.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(d.Cmd, d.Exited)
	for {
		if d.Client, err = copilot.Dial(d.Ctx, "unix:"+socket); err == nil {
			return
		}
		select {
		case err := <-d.Exited:
			d.Exited <- err
			d.T.Fatalf("the bridge ended: %v\n%s", err, &d.Log)
		case <-d.Ctx.Done():
			d.T.Fatalf("the bridge does not answer: %v\n%s", err, &d.Log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the life of the bridge. A bridge that is killed has to leave a data directory without damage.
func (d *Daemon) Stop(sig syscall.Signal) {
	if d.Client != nil {
		_ = d.Client.Close()
		d.Client = nil
	}
	if d.Cmd.ProcessState == nil {
		_ = d.Cmd.Process.Signal(sig)
	}
	err := <-d.Exited
	d.Exited <- err
	if sig == syscall.SIGKILL {
		d.verify()
	}
}

// verify verifies the data directory, if there is one: the sessions of a cluster are in NATS.
func (d *Daemon) verify() {
	d.T.Helper()
	r, err := fsck.Check(context.WithoutCancel(d.Ctx), filepath.Join(d.Root, "data"))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fsck.ErrNoDirectory):
	case err != nil:
		d.T.Errorf("verifying the data directory: %v", err)
	case r.Damage.Total > 0:
		d.T.Errorf("the killed bridge left a damaged data directory: %+v", r.Damage)
	}
}

// Crash kills the bridge and starts it again.
func (d *Daemon) Crash() {
	d.T.Helper()
	d.Stop(syscall.SIGKILL)
	d.Start()
}

// Durable are the ids of the session's events that the CLI keeps, in the journal's order,
// with their positions.
func (d *Daemon) Durable(id string) (ids []string, at []*bridgev1.Position) {
	d.T.Helper()
	token := ""
	for {
		page, err := d.Client.Sessions().ListEvents(d.Ctx, &bridgev1.ListEventsRequest{
			SessionId: id, PageToken: token, OriginalJson: true,
			Filter: &bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true},
		})
		if err != nil {
			d.T.Fatalf("events of %s: %v", id, err)
		}
		for _, e := range page.GetEvents() {
			ids, at = append(ids, e.GetEvent().GetId()), append(at, e.GetPosition())
		}
		if token = page.GetNextPageToken(); token == "" {
			return ids, at
		}
	}
}

// Oracle are the ids of the events in the CLI's own record of a session.
func (d *Daemon) Oracle(id string) (ids []string) {
	d.T.Helper()
	text, err := os.ReadFile(filepath.Join(d.Root, "home", "session-state", id, "events.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is written a little late
		d.T.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct{ ID, Type string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			d.T.Fatalf("%q: %v", line, err)
		}
		// The CLI does not report these: it reports the second one neither when it ends because the bridge has, nor in
		// its history.
		if e.Type != "session.usage_record" && e.Type != "session.shutdown" {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// Agrees checks the journal against the CLI's own record: it has all of that, in its
// order, each once, and growing positions.
func (d *Daemon) Agrees(id string) {
	d.T.Helper()
	want := d.Oracle(id)
	got, at := d.Durable(id)
	for i := 1; i < len(at); i++ {
		if !Less(at[i-1], at[i]) {
			d.T.Errorf("event %d is at %v, after %v", i, at[i], at[i-1])
		}
	}
	both := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(want, id) })
	if !slices.Equal(both, want) {
		d.T.Errorf("session %s: the journal has %d of the CLI's %d events, or another order:\n%v\n%v", id, len(both),
			len(want), both, want)
	}
}

// Less reports whether a is before b.
func Less(a, b *bridgev1.Position) bool {
	return a.GetEpoch() < b.GetEpoch() || a.GetEpoch() == b.GetEpoch() && a.GetSeq() < b.GetSeq()
}

// Waiting waits until a callback of the session is pending, and returns it.
func (d *Daemon) Waiting(id string) *bridgev1.Callback {
	d.T.Helper()
	return d.WaitingFor(id, bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED)
}

// WaitingFor is waiting for one of a kind, or of any.
func (d *Daemon) WaitingFor(id string, kind bridgev1.CallbackKind) *bridgev1.Callback {
	d.T.Helper()
	for d.Ctx.Err() == nil {
		r, err := d.Client.Callbacks().ListPending(d.Ctx, &bridgev1.ListPendingRequest{SessionId: id})
		if err != nil {
			d.T.Fatalf("pending of %s: %v", id, err)
		}
		for _, c := range r.GetCallbacks() {
			if kind == bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED || c.GetKind() == kind {
				return c
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	d.T.Fatalf("session %s asks nothing", id)
	return nil
}

// After reads the session's durable events after a position until one of the type,
// and returns their ids and the gaps.
func (d *Daemon) After(id string, at *bridgev1.Position, until string) (ids []string, gaps []*bridgev1.Gap) {
	d.T.Helper()
	ctx, cancel := context.WithCancel(d.Ctx)
	defer cancel()
	stream, err := d.Client.EventStreams().Subscribe(ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
			SessionId: id, After: at, Filter: &bridgev1.EventFilter{IncludeLarge: true},
		}}})
	if err != nil {
		d.T.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if err != nil {
			d.T.Fatalf("stream of %s: %v", id, err)
		}
		if g := f.GetGap(); g != nil {
			gaps = append(gaps, g)
		}
		for _, e := range f.GetEvents().GetEvents() {
			ids = append(ids, e.GetEvent().GetId())
			if e.GetEvent().GetEventType() == until {
				return ids, gaps
			}
		}
		if f.GetCaughtUp() != nil && until == "" {
			return ids, gaps
		}
	}
}

// Alive reports whether a process runs.
func Alive(pid int64) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.FormatInt(pid, 10), "stat"))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// SecretsIn returns the files below a directory that hold a text.
func SecretsIn(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that has just taken its final name
		}
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
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

// Written waits until the CLI has written down what the journal has.
func (d *Daemon) Written(id string) {
	d.T.Helper()
	d.Eventually("the CLI's record of "+id, func() bool {
		ids, _ := d.Durable(id)
		known := d.Oracle(id)
		return len(known) > 0 && slices.Contains(known, ids[len(ids)-1])
	})
}

// programDir is where program puts what it builds; it ends with all tests.
var programDir string

// Program builds the program, once.
var Program = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "e2e"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "copilot-grpc")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/copilot-grpc").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})
