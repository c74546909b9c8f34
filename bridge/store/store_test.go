package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	_, err := store.Open(store.Config{Dir: dir})
	if want := fmt.Sprintf("another server uses the data directory %q", dir); !errors.Is(err, store.ErrInUse) ||
		err.Error() != want {
		t.Errorf("a second one: %v, want %s", err, want)
	}
	if err := store.InUse(dir); !errors.Is(err, store.ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = s.Close() }) // as the lock of a killed process, a little late
	must(t, open(t, dir).Close())
	must(t, store.InUse(dir))
}

func TestSessionsAndEpochs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, id := range []string{"one", "One", "two"} { // folders that differ in case alone
		must(t, s.Save(backend.State{Key: id, Data: []byte(`{"id":"` + id + `"}`)}))
	}
	must(t, s.Remove("two"))
	knows := func(when string) {
		t.Helper()
		for id, want := range map[string]bool{"one": true, "One": true, "two": false, "never": false} {
			if got := s.Knows(id); got != want {
				t.Errorf("%s: it knows session %q: %t", when, id, got)
			}
		}
	}
	knows("at first")
	first, err := s.NextEpoch()
	must(t, err)
	second := first
	for range 1000 { // many of them in one millisecond
		next, err := s.NextEpoch()
		if err != nil || next <= second {
			t.Fatalf("epoch %d comes after epoch %d, %v", next, second, err)
		}
		second = next
	}
	must(t, s.Close())
	s = open(t, dir)
	knows("in the next life")
	third, err := s.NextEpoch()
	if err != nil || third <= second {
		t.Errorf("in the next life epoch %d comes after epoch %d, %v", third, second, err)
	}
	sessions, err := s.Sessions()
	if err != nil || len(sessions) != 2 || string(sessions["one"]) != `{"id":"one"}` || string(sessions["One"]) != `{"id":"One"}` {
		t.Errorf("sessions are %s, %v", sessions, err)
	}
	must(t, s.Close())
}

// An epoch is issued only after the disk has it: a process that crashes issues no epoch twice.
func TestEpochsAreReserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := uint64(time.Now().UnixMilli())
	s := open(t, dir)
	reserved := func(epoch uint64) {
		t.Helper()
		kept, err := segment.OpenCell(segment.OS{}, filepath.Join(dir, "epoch"), false, func([]byte) uint64 { return 0 })
		if err != nil || kept.Get() < epoch {
			t.Errorf("epoch %d was given, the disk has reserved up to %d, %v", epoch, kept.Get(), err)
		}
	}
	reserved(begin) // the states have one
	epoch, err := s.NextEpoch()
	must(t, err)
	reserved(epoch)
	must(t, s.Close())
}

// interrupted is a file system on which the removal of a folder ends after one of its files, as at a kill: after that
// nothing is removed or renamed.
type interrupted struct {
	segment.OS

	file   string
	killed atomic.Bool
}

var errKilled = errors.New("killed")

func (f *interrupted) RemoveAll(name string) error {
	if f.killed.Load() {
		return errKilled
	}
	if _, err := f.Size(filepath.Join(name, f.file)); err != nil {
		return f.OS.RemoveAll(name)
	}
	f.killed.Store(true)
	return errors.Join(errKilled, f.OS.RemoveAll(filepath.Join(name, f.file)))
}

func (f *interrupted) Rename(from, to string) error {
	if f.killed.Load() {
		return errKilled
	}
	return f.OS.Rename(from, to)
}

// A session whose deletion a kill interrupts does not come back, neither usable nor damaged.
func TestDeletionIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"session", "id", "0000000000000001-0000000000000000.seg"} {
		for name, remove := range map[string]func(s *store.Store, j *journal.Journal) error{
			"open": func(_ *store.Store, j *journal.Journal) error { return j.Remove(t.Context()) },
			"closed": func(s *store.Store, j *journal.Journal) error {
				return errors.Join(j.Close(t.Context()), s.Remove("one"))
			},
		} {
			dir := t.TempDir()
			fsys := &interrupted{file: file}
			s, err := store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{FS: fsys}})
			must(t, err)
			d, _, err := s.Journal("one", 1)
			must(t, err)
			j := journal.New(journal.Config{Epoch: 1, Log: d})
			j.Append(&journal.Record{Type: "user.message", JSON: []byte(`{}`)})
			must(t, j.AwaitShown(t.Context()))
			must(t, s.Save(backend.State{Key: "one", Data: []byte("{}")}))
			_ = remove(s, j)
			if !fsys.killed.Load() {
				t.Errorf("%s, %s: the deletion was not interrupted", name, file)
			}
			_ = s.Close()
			s = open(t, dir)
			sessions, err := s.Sessions()
			must(t, err)
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "one*")); len(sessions)+len(s.Damaged())+len(left) > 0 {
				t.Errorf("%s, %s: the next process has %v, damaged %v, %v", name, file, sessions, s.Damaged(), left)
			}
			must(t, s.Close())
		}
	}
}
