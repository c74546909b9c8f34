package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
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
