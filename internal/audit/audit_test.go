package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// held is a writer that waits, and then may fail.
type held struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	began chan struct{}
	free  chan struct{}
	once  sync.Once
	err   error
}

func newHeld() *held { return &held{began: make(chan struct{}), free: make(chan struct{})} }

// Write implements io.Writer.
func (h *held) Write(p []byte) (int, error) {
	h.once.Do(func() { close(h.began) })
	<-h.free
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return 0, h.err
	}
	return h.buf.Write(p)
}

func none(t *testing.T) func(error) {
	return func(err error) { t.Errorf("not written: %v", err) }
}

// lines are what was written.
func lines(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

func TestEntries(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := New(&out, none(t), slog.String("node", "n1"))
	ctx := caller.With(t.Context(), caller.Caller{Tenant: "acme", Name: "ann", Role: caller.Owner, Peer: "10.0.0.1:5"})
	l.Record(ctx,
		audit.Entry{Action: "session.share", Outcome: audit.Done, Session: strings.Repeat("s", 1000), Owner: "acme",
			With: "rival"})
	l.Record(t.Context(),
		audit.Entry{Action: "callback.answer", Outcome: audit.Done, Owner: "acme", Kind: "permission",
			Decision: "reject"})
	l.Close()
	l.Close()
	got := lines(t, out.String())
	if len(got) != 2 {
		t.Fatalf("%d lines", len(got))
	}
	first, second := got[0], got[1]
	if first["node"] != "n1" || second["node"] != "n1" {
		t.Errorf("lines of the nodes %v and %v", first["node"], second["node"])
	}
	if first["msg"] != "session.share" || first["caller"] != "ann" || first["tenant"] != "acme" ||
		first["role"] != "owner" ||
		first["peer"] != "10.0.0.1:5" || first["with"] != "rival" || first["owner"] != nil || first["level"] != nil ||
		len(first["session_id"].(string)) > maxText+len("…") {
		t.Errorf("%v", first)
	}
	if second["tenant"] != "host" || second["owner"] != "acme" || second["decision"] != "reject" ||
		second["session_id"] != nil {
		t.Errorf("%v", second)
	}
	if written, dropped, failed, queued := l.Counts(); written != 2 || dropped+failed+queued != 0 {
		t.Errorf("counts %d %d %d %d", written, dropped, failed, queued)
	}
}

// One who was refused before it had a role is in no tenant, not in the host's.
func TestTenantOfEntries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		who  caller.Caller
		want any
	}{
		"a stranger":        {caller.Caller{Name: "eve"}, nil},
		"nobody known":      {caller.Caller{}, nil},
		"the host":          {caller.Caller{Name: "socket", Role: caller.Admin}, "host"},
		"the host's bridge": {caller.Caller{Name: audit.Bridge}, "host"},
		"a tenant's bridge": {caller.Caller{Name: audit.Bridge, Tenant: "acme"}, "acme"},
	} {
		var out bytes.Buffer
		l := New(&out, none(t))
		l.Record(caller.With(t.Context(), tc.who), audit.Entry{Action: "call.refused", Outcome: audit.Refused})
		l.Close()
		if got := lines(t, out.String()); len(got) != 1 || got[0]["tenant"] != tc.want {
			t.Errorf("%s: %v, want the tenant %v", name, got, tc.want)
		}
	}
}

// Callers never wait; dropped entries are counted, and the log says how many.
func TestOverflowIsToldAndNobodyWaits(t *testing.T) {
	t.Parallel()
	h := newHeld()
	l := New(h, none(t))
	l.Record(t.Context(), audit.Entry{Action: "first"})
	<-h.began // one is being written, so that the queue is empty
	const more = 7
	for range MaxQueue + more {
		l.Record(t.Context(), audit.Entry{Action: "next"})
	}
	if _, dropped, _, queued := l.Counts(); dropped != more || queued != MaxQueue {
		t.Errorf("%d dropped, %d waiting", dropped, queued)
	}
	close(h.free)
	l.Close()
	l.Record(t.Context(), audit.Entry{Action: "late"})
	got := lines(t, h.buf.String())
	if len(got) != MaxQueue+2 || got[1]["msg"] != "audit.dropped" || got[1]["entries"] != float64(more) {
		t.Errorf("%d lines, the second %v", len(got), got[1])
	}
	if _, dropped, _, _ := l.Counts(); dropped != more+1 {
		t.Errorf("%d dropped, with one that came too late", dropped)
	}
}

// Lines that cannot be written are counted each, and told of once.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	h := newHeld()
	h.err = errors.New("disk full")
	close(h.free)
	var told []error
	l := New(h, func(err error) { told = append(told, err) })
	for range 3 {
		l.Record(context.Background(), audit.Entry{Action: "x"})
	}
	l.Close()
	if _, _, failed, _ := l.Counts(); failed != 3 || len(told) != 1 || !strings.Contains(told[0].Error(), "disk full") {
		t.Errorf("%d failed, told %v", failed, told)
	}
}

// A file that was moved away gets a successor, and both have all lines.
func TestFileIsMadeAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(line string) {
		t.Helper()
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	write("1\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("2\n")
	write("3\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path + ".1": "1\n", path: "2\n3\n"} {
		text, err := os.ReadFile(name)
		if err != nil || string(text) != want {
			t.Errorf("%s has %q, %v", name, text, err)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != fileMode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}
