package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// The store reads the sessions and requests that a server of commit d377de2 saved. e2e/runtime/olddata_test.go
// describes these data and how they were made. The test's clock begins in 2000, long before the requests
// expire.
func TestOldData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "e2e", "runtime", "testdata", "data-d377de2", "data"))))
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dir)
		sessions, err := s.Sessions()
		if err != nil || len(sessions) != 7 || len(s.Damaged()) > 0 {
			t.Errorf("there are %d sessions, damaged are %v, %v", len(sessions), s.Damaged(), err)
		}
		for key := range sessions {
			disk, found, err := s.Journal(key, 1)
			// Lost depends on the machine: the server was killed, and this is another machine or a later start of it.
			if err != nil || found.New || found.Skipped+found.Cut > 0 || !disk.Found("session.start") {
				t.Errorf("the journal of %q has %+v, %v", key, found, err)
			}
		}
		log, requests, err := s.Requests()
		must(t, err)
		for _, id := range []string{"create rested", "create Keyed", "send remember this", "send work", "send wait"} {
			if !remembered(requests, id) {
				t.Errorf("the answer to request %q is not remembered", id)
			}
		}
		must(t, log.Close())
		must(t, s.Close())
	})
}

// A directory of a later version is refused, and nothing in it is changed. A damaged number of the format is no reason to refuse
// one.
func TestLaterFormat(t *testing.T) {
	t.Parallel()
	fs, dir := &faultfs.FS{}, t.TempDir()
	s, err := openOn(fs, dir)
	must(t, err)
	must(t, s.Save(stateOf("a", 1)))
	must(t, s.Close())
	file := filepath.Join(dir, "format")
	number := bytes.Clone(fs.Content(file))
	damaged := bytes.Clone(number)
	damaged[0] ^= 64
	damaged[4096] ^= 64
	fs.Put(file, damaged)
	s, err = openOn(fs, dir)
	must(t, err)
	must(t, s.Close())
	cell, err := segment.OpenCell(fs, file, false, nil)
	must(t, err)
	must(t, cell.Raise(3))
	before := fs.Restart(false)
	_, err = openOn(fs, dir)
	if !errors.Is(err, store.ErrLater) || !strings.Contains(err.Error(), "its format is 3, and this version knows formats up to 2") {
		t.Errorf("the directory of a later version: %v", err)
	}
	for _, name := range before.Names() {
		if !bytes.Equal(before.Content(name), fs.Content(name)) {
			t.Errorf("%s has changed", name)
		}
	}
	fs.Put(file, number)
	s, err = openOn(fs, dir)
	must(t, err)
	if got := saved(t, s); got["a"] != 1 {
		t.Errorf("sessions are %v", got)
	}
	must(t, s.Close())
}

// The states that an earlier version left in a log of their own are taken over, wherever the process that does so is killed.
func TestOldStates(t *testing.T) {
	t.Parallel()
	for steps, more := 0, true; more; steps++ {
		fs, dir := &faultfs.FS{}, t.TempDir()
		s, err := openOn(fs, dir)
		must(t, err)
		must(t, s.Save(stateOf("newer", 1), stateOf("older", 1)))
		must(t, s.Close())
		log, _, err := segment.Open(filepath.Join(dir, "states"), 1, segment.Options{FS: fs, SyncFiles: true}, nil)
		must(t, err)
		must(t, log.Append([]segment.Entry{
			{Number: 7, Body: []byte("\x05older0")},
			{Number: 1 << 62, Body: []byte("\x05newer2")},
			{Number: 1<<62 + 1, Body: []byte("\x07deleted2")},
		}))
		_, err = log.Sync()
		must(t, err)
		must(t, log.Rest())
		fs.CrashAfter(steps)
		s, err = openOn(fs, dir)
		if more = err != nil; !more {
			must(t, s.Close())
		}
		fs = fs.Restart(true)
		s, err = openOn(fs, dir)
		must(t, err)
		if got := saved(t, s); len(got) != 2 || got["newer"] != 2 || got["older"] != 1 {
			t.Errorf("after %d changes the sessions are %v", steps, got)
		}
		must(t, s.Close())
		if names := strings.Join(fs.Names(), " "); strings.Contains(names, filepath.Join(dir, "states")) {
			t.Errorf("the old log is left: %s", names)
		}
	}
}

func remembered(requests []backend.Request, id string) bool {
	for _, r := range requests {
		if strings.HasSuffix(r.Key.ID, id) && r.Type != "" && len(r.Answer) > 0 && len(r.Sum) > 0 {
			return true
		}
	}
	return false
}
