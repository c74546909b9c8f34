package cluster

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// replica is a directory of a node, with what a server has for it.
type replica struct {
	*Directory
	node *Node
	home string
	cut  func()     // ends the node's connection, and with it the lease; the storage has another one
	lost chan error // receives what Lost was called with
}

// newReplica makes a replica.
func newReplica(t testing.TB, server *natstest.Server, name string) *replica {
	t.Helper()
	r := &replica{lost: make(chan error, 10)}
	r.node, r.cut = join(t, server, name)
	store := openStore(t, server)
	writer := journal.NewWriter(journal.WriterConfig{Fsync: journal.FsyncAlways, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(writer.Close)
	var folders *Folders
	folders, r.home = home(t, store.Blobs(), &bytes.Buffer{})
	r.Directory = NewDirectory(DirectoryConfig{
		LostMessages: func(backend.Files) (func(string) bool, error) { return noneLost, nil },
		Node:         r.node, Store: store, Writer: writer, Folders: folders,
		Key:        func(tenant, id string) string { return tenant + "/" + id },
		NodeLabels: labelsIn,
		Lost:       func(err error) { r.lost <- err }, Logger: slog.New(slog.DiscardHandler),
	})
	return r
}

// labelsIn returns the node labels in a saved session of these tests.
func labelsIn(state []byte) map[string]string {
	return decode[struct{ Needs map[string]string }](state).Needs
}

// folder is the CLI's folder of a session.
func (r *replica) folder(key string) string { return filepath.Join(r.home, "state", key) }

// save saves a session and its folder.
func (r *replica) save(t testing.TB, key, state string) {
	t.Helper()
	if err := r.Save(backend.State{Key: key, Data: []byte(state)}); err != nil {
		t.Fatal(err)
	}
	r.cfg.Folders.Flush()
}

// openLog opens the log of a session of this replica.
func (r *replica) openLog(t testing.TB, key string) backend.Log {
	t.Helper()
	log, _, err := r.logs.Open(key, r.get(key).lease.term, 1, func(uint64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// wantState fails the test if the cluster has another state of a session than want, nil for none.
func (r *replica) wantState(t testing.TB, key, want string) {
	t.Helper()
	if got, err := r.Session(key); err != nil || string(got) != want {
		t.Errorf("the session %q has the state %q, %v, want %q", key, got, err, want)
	}
}

// A session is of one replica, with all that belongs to it, until that ends.
func TestSessionMoves(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	fill(t, a.folder("s"), map[string]string{recordFile: eventText(0) + "\n"})
	a.save(t, "s", `{"n":1}`)
	for name, err := range map[string]error{
		"Session": func() error { _, err := b.Session("s"); return err }(),
		"Save":    b.Save(backend.State{Key: "s", Data: []byte("{}")}),
		"Remove":  b.Remove("s"),
		"Journal": func() error { _, _, err := b.Journal("s", 1); return err }(),
		"Outbox":  b.Outbox("s").Write("x", nil),
	} {
		if !errors.Is(err, ErrOwned) {
			t.Errorf("%s of another replica's session: %v", name, err)
		}
	}
	if found, err := b.Stored(t.Context(), "s"); err != nil || !found {
		t.Errorf("the session of the other replica is stored: %t, %v", found, err)
	}
	if o, err := b.node.Verify(t.Context(), "s"); err != nil || o.Node != "a" || !b.Knows("s") { // the view may be late
		t.Errorf("the session has the owner %v, %v; replica b knows it: %t", o, err, b.Knows("s"))
	}
	if b.Knows("never") || b.node.held.lease("never") != nil {
		t.Error("a replica knows a session that was never opened, or has acquired it")
	}
	a.node.Close(t.Context())
	b.wantState(t, "s", `{"n":1}`)
	same(t, b.folder("s"), map[string]string{recordFile: eventText(0) + "\n"})
	if len(a.lost)+len(b.lost) > 0 {
		t.Error("a replica was called lost")
	}
}

// A replica that was taken for dead changes nothing of its former sessions, and learns it.
func TestFormerOwnerIsLost(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	a.save(t, "s", `{"n":1}`)
	former, outbox := a.openLog(t, "s"), a.Outbox("s")
	a.cut()
	_ = acquireSoon(t, b.node, "s").handOver(t.Context(), "")
	fill(t, b.folder("s"), map[string]string{recordFile: "1\n"})
	b.save(t, "s", `{"n":2}`)
	log := b.openLog(t, "s")
	if err := log.Append(log.Last(), []backend.Entry{{Number: 1, Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"Save":   func() error { return a.Save(backend.State{Key: "s", Data: []byte(`{"n":3}`)}) },
		"Append": func() error { return former.Append(0, []backend.Entry{{Number: 1, Body: []byte("x")}}) },
		"Trim":   func() error { _, err := former.Trim(1, time.Now()); return err },
		"Delete": func() error { return former.Delete() },
		"Outbox": func() error { return outbox.Save([]byte("x")) },
		"Remove": func() error { return a.Remove("s") },
	} {
		if err := write(); !errors.Is(err, backend.ErrStale) {
			t.Errorf("%s by a former owner: %v", name, err)
			continue
		}
		select {
		case err := <-a.lost:
			if !errors.Is(err, backend.ErrStale) {
				t.Errorf("%s: the replica was told %v", name, err)
			}
		default:
			t.Errorf("%s: the replica was not told that another has its session", name)
		}
	}
	b.wantState(t, "s", `{"n":2}`)
	entries := 0
	again, _, err := b.logs.Open("s", b.get("s").lease.term, 1, func(uint64, []byte) error { entries++; return nil })
	if err != nil || again.Last() != 1 || entries != 1 || len(b.lost) > 0 {
		t.Errorf("the log has %d entries, %v; the owner was called lost %d times", entries, err, len(b.lost))
	}
	if _, err := b.cfg.Store.Blobs().List(t.Context(), "s"); err != nil {
		t.Errorf("the snapshot: %v", err)
	}
}

// A write that hung until its session was handed over is refused, and the replica stays.
func TestWritesBehindAHandOver(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	a.save(t, "s", `{"n":1}`)
	records, outbox := a.get("s").records, a.Outbox("s")
	if err := a.HandOver(t.Context(), "s", "b"); err != nil {
		t.Fatal(err)
	}
	b.save(t, "s", `{"n":2}`)
	for name, err := range map[string]error{
		"state": records.Save(t.Context(), []byte(`{"n":3}`)), "outbox": outbox.Save([]byte("x")), "removal": records.Remove(t.Context()),
	} {
		if !errors.Is(err, backend.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.wantState(t, "s", `{"n":2}`); len(a.lost)+len(b.lost) > 0 {
		t.Error("a replica was called lost")
	}
}

// A removed session leaves nothing.
func TestRemovedSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	fill(t, a.folder("s"), map[string]string{recordFile: "1\n"})
	a.save(t, "s", "{}")
	if err := a.Outbox("s").Write("one", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := a.SetAside("s", "broken"); err != nil {
		t.Fatal(err)
	}
	if d, found := a.DamageOf("s"); !found || d.Reason != "broken" || d.FoundAt.IsZero() || len(a.Damaged()) != 1 {
		t.Errorf("the damage is %+v, %t", d, found)
	}
	if err := a.Remove("s"); err != nil {
		t.Fatal(err)
	}
	if len(a.Damaged()) != 0 {
		t.Error("the damage of a removed session is known")
	}
	if found, err := b.Stored(t.Context(), "s"); err != nil || found {
		t.Errorf("the session is stored: %t, %v", found, err)
	}
	if _, err := a.cfg.Store.Blobs().List(t.Context(), "s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the snapshot: %v", err)
	}
	if _, err := a.node.sessions.Get(t.Context(), keyOf("s")); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the owner: %v", err)
	}
	b.wantState(t, "s", "")
	if names, err := b.Outbox("s").List(); err != nil || len(names) != 0 {
		t.Errorf("the outbox has %q, %v", names, err)
	}
}

// The labels that a session needs are known to all nodes when it is saved, and leave with it.
func TestSessionWithLabels(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := newReplica(t, server, "a")
	other, _ := join(t, server, "b")
	r.save(t, "s", `{"needs":{"zone":"x"}}`)
	for tick := time.NewTicker(time.Millisecond); other.Needs("s")["zone"] != "x"; <-tick.C {
		if t.Context().Err() != nil {
			t.Fatal("the other node does not know the labels")
		}
	}
	if err := r.Remove("s"); err != nil {
		t.Fatal(err)
	}
	for tick := time.NewTicker(time.Millisecond); other.Needs("s") != nil; <-tick.C {
		if t.Context().Err() != nil {
			t.Fatal("a removed session leaves its labels")
		}
	}
}

// A session that cannot be opened here is free for the other replicas.
func TestFailedAcquisitionReleases(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b, c := newReplica(t, server, "a"), newReplica(t, server, "b"), newReplica(t, server, "c")
	fill(t, a.folder("s"), map[string]string{recordFile: "1\n"})
	a.save(t, "s", "{}")
	a.node.Close(t.Context())
	if err := os.WriteFile(filepath.Join(b.home, "state"), nil, 0o600); err != nil { // where folders belong
		t.Fatal(err)
	}
	if _, err := b.Session("s"); err == nil || errors.Is(err, ErrOwned) {
		t.Errorf("a session without a place for its folder: %v", err)
	}
	c.wantState(t, "s", "{}")
}

// failingLogs cannot be opened once.
type failingLogs struct {
	backend.Logs

	failed bool
}

// Open implements backend.Logs.
func (l *failingLogs) Open(session string, term, epoch uint64, visit func(uint64, []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	if !l.failed {
		l.failed = true
		return nil, backend.Recovered{}, errors.New("no storage")
	}
	return l.Logs.Open(session, term, epoch, visit)
}

// The next owner completes the CLI's record by the journal, also when the journal cannot be opened at first.
func TestJournalCompletesTheRecord(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	fill(t, a.folder("s"), map[string]string{recordFile: eventText(0) + "\n"})
	a.save(t, "s", "{}")
	disk, _, err := a.Journal("s", 1)
	if err != nil {
		t.Fatal(err)
	}
	j := journal.New(journal.Config{Epoch: 1, Log: disk})
	for i := range 3 {
		j.Append(&journal.Record{
			ID: journal.ID{byte(i + 1)}, Type: "t", JSON: []byte(eventText(i)), Ephemeral: i == 1,
		})
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.node.Close(t.Context())
	b.logs = &failingLogs{Logs: b.logs}
	if _, _, err := b.Journal("s", 2); err == nil {
		t.Error("the journal was opened without its log")
	}
	disk, _, err = b.Journal("s", 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.New(journal.Config{Epoch: 2, Log: disk}).Close(t.Context()); err != nil {
		t.Error(err)
	}
	same(t, b.folder("s"), map[string]string{recordFile: eventText(0) + "\n" + eventText(2) + "\n"})
}

// The usage of deleted sessions is stored by the names of the nodes.
func TestUsageIsTheNodes(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, b := newReplica(t, server, "a"), newReplica(t, server, "b")
	if err := errors.Join(a.SaveUsage("t", []byte("[1]")), b.SaveUsage("t", []byte("[2]"))); err != nil {
		t.Fatal(err)
	}
	again := newReplica(t, server, "a")
	for want, r := range map[string]*replica{"[1]": again, "[2]": b} {
		if got, err := r.Usage("t"); err != nil || string(got) != want {
			t.Errorf("the usage is %s, %v, want %s", got, err, want)
		}
	}
}
