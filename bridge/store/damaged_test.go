package store_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// talk writes events of the types into a session's journal, and closes it.
func talk(t *testing.T, s *store.Store, key string, types ...string) {
	t.Helper()
	disk, _, err := s.Journal(key, 1)
	must(t, err)
	j := journal.New(journal.Config{Epoch: 1, Log: disk})
	for _, one := range types {
		j.Append(&journal.Record{Type: one, ID: journal.ParseID([]byte(key + one)), JSON: []byte(`{}`)})
	}
	must(t, j.Close(context.Background()))
}

func exists(t *testing.T, parts ...string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}

// damages are kinds of damage to a state file, with the beginning of the reported reason.
var damages = map[string]struct {
	do     func(text []byte) []byte // nil: it is gone
	reason string
}{
	"missing":      {func([]byte) []byte { return nil }, "the file with its state is missing"},
	"empty":        {func([]byte) []byte { return []byte{} }, "the session's state is damaged"},
	"cut":          {func(text []byte) []byte { return text[:len(text)/2] }, "the session's state is damaged"},
	"a bit":        {func(text []byte) []byte { return bytes.Replace(text, []byte("hello"), []byte("hellO"), 1) }, "the session's state is damaged: its checksum"},
	"zeros":        {func(text []byte) []byte { return make([]byte, len(text)) }, "the session's state is damaged"},
	"another's":    {func([]byte) []byte { return []byte(`{"id":"other","state":1}`) }, "the session's state is damaged: its session id is"},
	"another type": {func([]byte) []byte { return []byte(`[]`) }, "the session's state is damaged"},
}

// A session whose state cannot be read is set aside with its journal, told of in each life,
// and can be taken up with every event, or deleted.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, c := range damages {
		for _, key := range []string{"one", "acme.One"} {
			t.Run(name+" "+key, func(t *testing.T) {
				t.Parallel()
				damagedState(t, key, c.do, c.reason)
			})
		}
	}
}

func damagedState(t *testing.T, key string, do func([]byte) []byte, reason string) {
	dir := t.TempDir()
	s := open(t, dir)
	talk(t, s, key, "session.start", "user.message", "assistant.message")
	must(t, s.Save(backend.State{Key: key, Data: []byte(`{"say":"hello"}`)}))
	must(t, s.Save(backend.State{Key: "sound", Data: []byte(`2`)}))
	must(t, s.Close())
	states, err := filepath.Glob(filepath.Join(dir, "sessions", strings.ToLower(key)+"*", "session"))
	if err != nil || len(states) != 1 {
		t.Fatalf("states are %v, %v", states, err)
	}
	text, err := os.ReadFile(states[0])
	must(t, err)
	if text = do(text); text == nil {
		must(t, os.Remove(states[0]))
	} else {
		must(t, os.WriteFile(states[0], text, 0o600))
	}
	for range 3 { // each life tells it
		s = open(t, dir)
		sessions, err := s.Sessions()
		if err != nil || len(sessions) != 1 || string(sessions["sound"]) != "2" {
			t.Errorf("sessions are %s, %v", sessions, err)
		}
		d, ok := s.DamageOf(key)
		if all := s.Damaged(); !ok || len(all) != 1 || all[0] != d || d.Key != key || !strings.HasPrefix(d.Reason, reason) || d.FoundAt.IsZero() {
			t.Fatalf("damaged are %+v", all)
		}
		if !exists(t, dir, d.Place) || exists(t, states[0]) {
			t.Errorf("the data are not in %q", d.Place)
		}
		if _, other := s.DamageOf("sound"); other {
			t.Error("another session is damaged too")
		}
		must(t, s.Close())
	}
	s = open(t, dir)
	must(t, s.TakeUp(key))
	state, err := s.Session(key)
	if err != nil || state != nil || len(s.Damaged()) > 0 {
		t.Errorf("taken up, the state is %s, %v; damaged are %v", state, err, s.Damaged())
	}
	_, found, err := s.Journal(key, 9)
	if err != nil || found.Events != 3 || found.Lost {
		t.Errorf("taken up, the journal has %+v, %v", found, err)
	}
	must(t, s.SetAside(key, "in vain"))
	must(t, s.Close())
	s = open(t, dir)
	if d, _ := s.DamageOf(key); d.Reason != "in vain" || d.Key != key {
		t.Errorf("set aside again, it is %+v", d)
	}
	must(t, s.Remove(key))
	if len(s.Damaged()) > 0 {
		t.Errorf("deleted, damaged are %v", s.Damaged())
	}
	must(t, s.Close())
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".seg") {
			t.Errorf("%s is left of a session that was deleted", path)
		}
		return err
	}))
}

// A state of an earlier version, which has no checksum and no other file beside it, is read;
// without it the folder's name says whose the journal is.
func TestStateOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	talk(t, s, "old", "user.message")
	must(t, s.Close())
	folder := filepath.Join(dir, "sessions", "old")
	must(t, os.Remove(filepath.Join(folder, "opening")))
	must(t, writeFile(filepath.Join(folder, "session"), `{"id":"old","state":{"a":1}}`))
	s = open(t, dir)
	sessions, err := s.Sessions()
	if err != nil || string(sessions["old"]) != `{"a":1}` {
		t.Errorf("sessions are %s, %v", sessions, err)
	}
	must(t, os.Remove(filepath.Join(folder, "session")))
	if _, err = s.Sessions(); err != nil {
		t.Fatal(err)
	}
	if d, ok := s.DamageOf("old"); !ok || d.Key != "old" {
		t.Errorf("damaged are %+v", s.Damaged())
	}
	must(t, s.Close())
}

// A session is removed if its opening was never confirmed, or if an earlier version saved it and it was never
// sent anything.
func TestNeverAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	talk(t, s, "creating", "session.start", "user.message")
	talk(t, s, "unused", "session.start")
	must(t, os.Remove(filepath.Join(dir, "sessions", "unused", "opening")))
	talk(t, s, "damaged", "session.start")
	must(t, os.Remove(filepath.Join(dir, "sessions", "damaged", "opening")))
	segments, _ := filepath.Glob(filepath.Join(dir, "sessions", "damaged", "*.seg"))
	text, err := os.ReadFile(segments[0])
	must(t, err)
	text[len(text)/2] ^= 1
	must(t, os.WriteFile(segments[0], text, 0o600))
	must(t, s.Close())
	s = open(t, dir)
	sessions, err := s.Sessions()
	if err != nil || len(sessions) > 0 || exists(t, dir, "sessions", "creating") || exists(t, dir, "sessions", "unused") {
		t.Errorf("sessions are %v, %v", sessions, err)
	}
	if all := s.Damaged(); len(all) != 1 || all[0].Key != "damaged" {
		t.Errorf("damaged are %+v: what a damaged journal held, nobody knows", all)
	}
	must(t, s.Close())
}

// A state that the disk cannot read is reported, and stays in its place for the next process.
func TestUnreadableState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	talk(t, s, "one", "user.message")
	must(t, s.Save(backend.State{Key: "one", Data: []byte(`1`)}))
	must(t, s.Close())
	state := filepath.Join(dir, "sessions", "one", "session")
	must(t, os.Rename(state, state+".away"))
	must(t, os.Mkdir(state, 0o700)) // which cannot be read as a file
	s = open(t, dir)
	sessions, err := s.Sessions()
	if d, ok := s.DamageOf("one"); err != nil || len(sessions) > 0 || !ok || d.Place != filepath.Join("sessions", "one") || d.Key != "one" {
		t.Errorf("sessions are %v, %v; damaged are %+v", sessions, err, s.Damaged())
	}
	must(t, s.Close())
	must(t, os.Remove(state))
	must(t, os.Rename(state+".away", state))
	s = open(t, dir)
	if sessions, err := s.Sessions(); err != nil || string(sessions["one"]) != "1" || len(s.Damaged()) > 0 {
		t.Errorf("when the disk gives it, sessions are %v, %v; damaged are %+v", sessions, err, s.Damaged())
	}
	must(t, s.Close())
}

// A damaged folder that cannot be moved stays in its place and is reported as damaged.
func TestDamagedInItsPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	talk(t, s, "one", "user.message")
	must(t, s.Save(backend.State{Key: "one", Data: []byte(`1`)}))
	must(t, s.Close())
	must(t, writeFile(filepath.Join(dir, "sessions", "one", "session"), `{`))
	s = open(t, dir)
	must(t, writeFile(filepath.Join(dir, "damaged"), `not a folder`))
	if _, err := s.Sessions(); err != nil {
		t.Fatal(err)
	}
	d, ok := s.DamageOf("one")
	if !ok || d.Place != filepath.Join("sessions", "one") || !exists(t, dir, "sessions", "one") {
		t.Errorf("damaged are %+v", s.Damaged())
	}
	must(t, s.TakeUp("one"))
	_, found, err := s.Journal("one", 3)
	if err != nil || found.Events == 0 || len(s.Damaged()) > 0 {
		t.Errorf("taken up: %v; damaged are %v", err, s.Damaged())
	}
	must(t, s.Close())
}
