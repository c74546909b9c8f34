package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
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
			_, found, err := s.Journal(key, 1)
			// Lost depends on the machine: the server was killed, and this is another machine or a later start of it.
			if err != nil || found.New || found.Skipped+found.Cut > 0 || found.Events == 0 {
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

// jointData is the data directory of a server of commit d5a270a3. The newest events of its sessions are in journals/,
// and their latest states in states/. e2e/runtime/oldjoint_test.go describes how it was made.
var jointData = filepath.Join("..", "..", "e2e", "runtime", "testdata", "data-d5a270a3", "data")

// The store reads what a server with shared logs left, wherever the process that converts the directory is killed, and
// again at the next start.
func TestJointData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock begins in 2000, long before the requests expire
		dir := t.TempDir()
		fs := loaded(t, dir, jointData)
		own := ownEvents(t, fs)
		states := fileStates(t, jointData)
		s, err := openOn(fs, dir)
		must(t, err)
		want := contents(t, s)
		must(t, s.Close())
		for key := range states {
			if key != "Keyed" && key != "unused" && want[key].events <= own[key] {
				t.Errorf("session %q has %d events, and its own log %d: none is in the joint log", key, want[key].events, own[key])
			}
		}
		if want["rested"].state == states["rested"] || !strings.Contains(want["rested"].state, "acme") {
			t.Errorf("the state of a session is that of its file: %s", want["rested"].state)
		}
		if q := want["queued"]; !strings.Contains(q.outbox, "first in the queue") || !strings.Contains(q.outbox, "3.prompt=") {
			t.Errorf("the prompts that wait are %.2000s", q.outbox)
		}
		if len(want) != len(states) || len(want) != 8 {
			t.Errorf("there are %d sessions, and were %d", len(want), len(states))
		}
		for steps, more := 0, true; more; steps++ {
			fs := loaded(t, dir, jointData)
			fs.CrashAfter(steps)
			if s, err := openOn(fs, dir); err == nil {
				for key := range want {
					_, _, _ = s.Journal(key, 1)
				}
				_ = s.Close()
			}
			_, err := fs.Open(filepath.Join(dir, "probe"), true)
			more = errors.Is(err, faultfs.ErrCrashed)
			for _, power := range []bool{true, false} {
				sameTwice(t, fs.Restart(power), dir, steps, want)
			}
		}
	})
}

// sameTwice opens a directory two times after so many changes of a process that was killed.
func sameTwice(t *testing.T, fs *faultfs.FS, dir string, steps int, want map[string]content) {
	t.Helper()
	for range 2 {
		s, err := openOn(fs, dir)
		must(t, err)
		if got := contents(t, s); !maps.Equal(got, want) {
			t.Fatalf("after %d changes: %v, want %v", steps, got, want)
		}
		must(t, s.Close())
		fs = fs.Restart(true)
	}
	for _, name := range fs.Names() {
		if strings.HasSuffix(name, ".bad") || strings.HasPrefix(name, filepath.Join(dir, "states")) {
			t.Errorf("after %d changes there is %s", steps, name)
		}
	}
}

// loaded returns a file system with a copy of a data directory.
func loaded(t *testing.T, dir, from string) *faultfs.FS {
	t.Helper()
	out := &faultfs.FS{}
	must(t, filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return out.MkdirAll(to)
		}
		text, err := os.ReadFile(path)
		out.Put(to, text)
		return err
	}))
	return out
}

// fileStates are the states in the files of the sessions.
func fileStates(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "sessions", "*", "session"))
	must(t, err)
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var e struct {
			ID    string
			State json.RawMessage
		}
		must(t, json.Unmarshal(text, &e))
		out[e.ID] = string(e.State)
	}
	return out
}

// ownEvents counts the events in the sessions' own logs.
func ownEvents(t *testing.T, fs *faultfs.FS) map[string]int {
	t.Helper()
	files, out := fs.Restart(false), map[string]int{}
	for _, name := range files.Names() {
		if filepath.Base(name) != "id" {
			continue
		}
		n := 0
		log, _, err := segment.Open(filepath.Dir(name), 1, segment.Options{FS: files}, func(uint64, []byte) error {
			n++
			return nil
		})
		must(t, err)
		must(t, log.Rest())
		out[string(files.Content(name))] = n
	}
	return out
}

// content is what a store has of a session.
type content struct {
	state, outbox string
	events        int
}

// contents are the sessions, and checks that requests and usage are there and nothing is damaged.
func contents(t *testing.T, s *store.Store) map[string]content {
	t.Helper()
	sessions, err := s.Sessions()
	must(t, err)
	out := map[string]content{}
	for key, state := range sessions {
		_, found, err := s.Journal(key, 1)
		// A killed process may have torn the write of a mark, which is cut.
		if err != nil || found.New || found.Doubtful || found.Skipped > 0 || len(found.SetAside) > 0 {
			t.Errorf("the journal of %q has %+v, %v", key, found, err)
		}
		c := content{state: string(state), events: found.Events}
		box := s.Outbox(key)
		if text, err := box.Load(); err == nil {
			c.outbox = string(text)
			names, err := box.List()
			must(t, err)
			for _, name := range names {
				text, err := box.Read(name)
				must(t, err)
				c.outbox += name + "=" + string(text)
			}
		}
		out[key] = c
	}
	if len(s.Damaged()) > 0 {
		t.Errorf("damaged are %v", s.Damaged())
	}
	if usage, err := s.Usage(""); err != nil || !bytes.Contains(usage, []byte("79")) {
		t.Errorf("the usage is %s, %v", usage, err)
	}
	log, requests, err := s.Requests()
	must(t, err)
	for _, id := range []string{"create rested", "create Keyed", "rested remember this", "queued read the notes"} {
		if !remembered(requests, id) {
			t.Errorf("the answer to request %q is not remembered", id)
		}
	}
	must(t, log.Close())
	return out
}

func remembered(requests []backend.Request, id string) bool {
	for _, r := range requests {
		if strings.HasSuffix(r.Key.ID, id) && r.Type != "" && len(r.Answer) > 0 && len(r.Sum) > 0 {
			return true
		}
	}
	return false
}
