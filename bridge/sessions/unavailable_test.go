package sessions

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// failing is a data directory whose journals cannot be opened while it fails, or only after release is closed. Its
// outboxes cannot be read while outboxes is true.
type failing struct {
	*store.Store
	fails, outboxes atomic.Bool
	doubtful        bool          // the journals are
	opening         chan struct{} // receives a value for each call of Journal; nil without
	release         chan struct{}
}

func (f *failing) Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	if f.opening != nil {
		f.opening <- struct{}{}
		<-f.release
	}
	if f.fails.Load() {
		return nil, journal.Recovery{}, errors.New("no route to the storage")
	}
	d, found, err := f.Store.Journal(id, epoch)
	found.Doubtful = f.doubtful
	return d, found, err
}

// Outbox implements Directory.
func (f *failing) Outbox(id string) backend.Files {
	if f.outboxes.Load() {
		return unreadable{}
	}
	return f.Store.Outbox(id)
}

// unreadable is an outbox that cannot be read.
type unreadable struct{ backend.Files }

func (unreadable) Load() ([]byte, error) { return nil, errors.New("no route to the storage") }

// Usage fails while f fails.
func (f *failing) Usage(tenant string) (json.RawMessage, error) {
	if f.fails.Load() {
		return nil, errors.New("no route to the storage")
	}
	return f.Store.Usage(tenant)
}

// quiet is a host for sessions without a runtime.
type quiet struct {
	session.Host
	st *Store
	e  *Entry
}

func (q quiet) MarkDirty()         { q.st.MarkDirty(q.e) }
func (q quiet) Store() error       { return q.st.Save(q.e) }
func (quiet) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// openStore returns a store of a data directory.
func openStore(t *testing.T, dir string) (*Store, *failing) {
	t.Helper()
	disk, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{Store: disk}
	var st *Store
	st = New(Config{
		Directory: f,
		Session:   func(string) session.Config { return session.Config{} },
		Host:      func(e *Entry) session.Host { return quiet{st: st, e: e} },
		Tenants:   &tenancy.Tenants{},
		Providers: func(string) session.Providers { return nil },
		Forget:    func(string) {},
		Log:       slog.New(slog.DiscardHandler),
	})
	return st, f
}

// closeStore closes a store and its data directory.
func closeStore(t *testing.T, st *Store, f *failing) {
	t.Helper()
	st.Close()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The usage of deleted sessions that cannot be read is not overwritten.
func TestUsageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	requests := func(n int64) usage.Usage { return usage.Usage{{Day: "2026-11-22", Sums: usage.Sums{Requests: n}}} }
	st, f := openStore(t, dir)
	st.Deleted.add("acme", requests(1))
	closeStore(t, st, f)
	st, f = openStore(t, dir)
	f.fails.Store(true)
	st.Deleted.add("acme", requests(2))
	f.fails.Store(false)
	st.Deleted.add("acme", requests(4))
	closeStore(t, st, f)
	st, f = openStore(t, dir)
	defer closeStore(t, st, f)
	if rows := st.Deleted.Rows("acme"); len(rows) != 1 || rows[0].Requests != 7 {
		t.Errorf("the rows are %v, want 7 requests in one row", rows)
	}
}

// A session whose journal or outbox cannot be opened is not created, and works once they can be opened.
func TestSessionsNeedTheirStorage(t *testing.T) {
	t.Parallel()
	st, f := openStore(t, t.TempDir())
	defer closeStore(t, st, f)
	for name, fails := range map[string]*atomic.Bool{"a journal": &f.fails, "an outbox": &f.outboxes} {
		fails.Store(true)
		if _, _, err := st.GetOrCreate(t.Context(), "", "s"); fault.ReasonOf(err) != fault.SessionUnavailable {
			t.Errorf("without %s: %v", name, err)
		}
		if st.Get("s") != nil {
			t.Errorf("a session without %s is in memory", name)
		}
		fails.Store(false)
	}
	e, fresh, err := st.GetOrCreate(t.Context(), "", "s")
	if err != nil || !fresh || e.Session.ID() != "s" {
		t.Errorf("with its storage: %v, %v, %v", e, fresh, err)
	}
}

// What is lost with the log that sessions share may have withdrawn a prompt: it is not sent again.
func TestDoubtfulOutbox(t *testing.T) {
	t.Parallel()
	for _, doubtful := range []bool{false, true} {
		st, f := openStore(t, t.TempDir())
		box, err := outbox.Open(f.Outbox("s"))
		if err != nil {
			t.Fatal(err)
		}
		keep := func(p json.RawMessage) (json.RawMessage, []string) { return p, nil }
		n, _, err := box.Add(outbox.Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keep, journal.Position{})
		if err != nil {
			t.Fatal(err)
		}
		box.Accepted(n, []string{"m1"}, journal.Position{}, func(bool, bool, error) {})
		f.doubtful = doubtful
		e, _, err := st.GetOrCreate(t.Context(), "", "s")
		if err != nil {
			t.Fatal(err)
		}
		entries := e.Session.Prompts().Outbox().Entries()
		if len(entries) != 1 || (entries[0].Obstacle() != "") != doubtful {
			t.Errorf("in doubt: %v; the outbox has %+v", doubtful, entries)
		}
		closeStore(t, st, f)
	}
}

// A saved session whose journal cannot be opened at the start stays in the data directory, is not set
// aside as damaged, and is restored by a later call.
func TestRestoreLeavesUnavailableSessions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, f := openStore(t, dir)
	e, _, err := st.GetOrCreate(t.Context(), "", "s")
	if err != nil {
		t.Fatal(err)
	}
	saved, err := json.Marshal(record{Session: json.RawMessage(`{"config":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Save(backend.State{Key: e.Key(), Data: saved}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st, f)

	st, f = openStore(t, dir)
	defer closeStore(t, st, f)
	f.fails.Store(true)
	if err := st.Restore(); err != nil {
		t.Fatal(err)
	}
	if st.Get("s") != nil || len(f.Damaged()) != 0 {
		t.Errorf("the session is %v, damaged are %v", st.Get("s"), f.Damaged())
	}
	if _, _, err := st.GetOrCreate(t.Context(), "", "s"); fault.ReasonOf(err) != fault.SessionUnavailable {
		t.Errorf("while its journal cannot be opened: %v", err)
	}
	f.fails.Store(false)
	if _, fresh, err := st.GetOrCreate(t.Context(), "", "s"); err != nil || fresh {
		t.Errorf("restored later: new is %v, %v", fresh, err)
	}
	if places, _ := filepath.Glob(filepath.Join(dir, "damaged", "*")); len(places) != 0 {
		t.Errorf("set aside: %v", places)
	}
}

// A session that has changed before it was removed is not saved after that.
func TestRemovedSessionIsNotSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, f := openStore(t, dir)
	if _, _, err := st.GetOrCreate(t.Context(), "", "s"); err != nil {
		t.Fatal(err)
	}
	saved, err := json.Marshal(record{Session: json.RawMessage(`{"config":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Save(backend.State{Key: "s", Data: saved}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st, f)

	st, f = openStore(t, dir)
	defer closeStore(t, st, f)
	e, fresh, err := st.GetOrCreate(t.Context(), "", "s")
	if err != nil || fresh {
		t.Fatalf("new is %v, %v", fresh, err)
	}
	saves := 0
	st.cfg.Forget = func(string) { // in the middle of the removal
		st.SaveDirty()
		saves++
	}
	st.MarkDirty(e)
	st.Remove(e)
	if state, err := f.Session("s"); err != nil || state != nil || saves != 1 {
		t.Errorf("the removed session is saved as %s, %v", state, err)
	}
}

// While the storage of one session does not answer, the others can be used.
func TestSlowStorageBlocksOnlyItsSession(t *testing.T) {
	t.Parallel()
	st, f := openStore(t, t.TempDir())
	defer closeStore(t, st, f)
	other, _, err := st.GetOrCreate(t.Context(), "", "other")
	if err != nil {
		t.Fatal(err)
	}
	f.opening, f.release = make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, _, err := st.GetOrCreate(t.Context(), "", "slow")
		done <- err
	}()
	<-f.opening
	found := make(chan *Entry, 1)
	go func() { found <- st.Get("other") }()
	select {
	case e := <-found:
		if e != other || len(st.All()) != 1 {
			t.Errorf("found %v among %v", e, st.All())
		}
	case <-time.After(10 * time.Second):
		t.Error("the look-up of another session waits for the storage")
	}
	close(f.release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
