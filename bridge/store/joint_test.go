package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// many opens sessions whose newest events are in the joint log only.
func many(t *testing.T, s *store.Store, count int) (journals []*journal.Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range count {
		key := fmt.Sprint("s", i)
		d, _, err := s.Journal(key, 1)
		must(t, err)
		j := journal.New(journal.Config{Epoch: 1, Log: d})
		journals = append(journals, j)
		must(t, s.Save(backend.State{Key: key, Data: []byte(`{}`)}))
	}
	for n := range 4 {
		for i, j := range journals {
			id := fmt.Sprintf("%d-%d", i, n)
			j.Append(&journal.Record{ID: journal.ParseID([]byte(id)), Type: "user.message", JSON: []byte(`{}`)})
		}
		for _, j := range journals {
			must(t, j.AwaitShown(ctx))
		}
	}
	return journals
}

// A session is set aside with the events that a killed process had in the joint log only.
func TestDamagedSessionKeepsItsNewestEvents(t *testing.T) {
	t.Parallel()
	dir, copied := t.TempDir(), t.TempDir()
	s := open(t, dir)
	journals := many(t, s, 20)
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	for _, j := range journals {
		must(t, j.Close(context.Background()))
	}
	must(t, s.Close())
	if exists(t, dir, "journals") {
		t.Error("the joint log is there after an orderly end")
	}

	if !exists(t, copied, "journals") {
		t.Fatal("no event is in the joint log")
	}
	must(t, writeFile(filepath.Join(copied, "sessions", "s7", "session"), "{"))
	must(t, os.Remove(filepath.Join(copied, "sessions", "s8", "session")))
	s = open(t, copied)
	sessions, err := s.Sessions()
	if err != nil || len(sessions) != 18 || len(s.Damaged()) != 2 {
		t.Fatalf("%d sessions, %v; damaged are %+v", len(sessions), err, s.Damaged())
	}
	must(t, s.Close())
	s = open(t, copied)
	for _, key := range []string{"s7", "s8"} {
		must(t, s.TakeUp(key))
	}
	for i := range 20 {
		key := fmt.Sprint("s", i)
		d, found, err := s.Journal(key, 1)
		if err != nil || found.Events != 4 || found.Lost {
			t.Errorf("%s has %+v, %v", key, found, err)
			continue
		}
		must(t, journal.New(journal.Config{Epoch: 1, Log: d}).Close(context.Background()))
	}
	must(t, s.Close())
}
