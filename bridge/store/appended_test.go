package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// opens is a file system that counts the files of outboxes that are opened, and those that are open.
type opens struct {
	segment.OS
	count, current atomic.Int64
	fail           atomic.Bool // writes fail
}

type openFile struct {
	segment.File
	fs *opens
}

func (o *opens) Open(name string, write bool) (segment.File, error) {
	f, err := o.OS.Open(name, write)
	if err != nil || !strings.Contains(name, "outbox") {
		return f, err
	}
	o.count.Add(1)
	o.current.Add(1)
	return &openFile{f, o}, nil
}

func (f *openFile) WriteAt(b []byte, at int64) (int, error) {
	if f.fs.fail.Load() {
		return 0, errors.New("no")
	}
	return f.File.WriteAt(b, at)
}

func (f *openFile) Close() error {
	f.fs.current.Add(-1)
	return f.File.Close()
}

func withOpens(t *testing.T) (*store.Store, *opens) {
	t.Helper()
	fs := &opens{}
	s, err := store.Open(store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{FS: fs}})
	must(t, err)
	return s, fs
}

func wantText(t *testing.T, files backend.Files, name, want string) {
	t.Helper()
	if got, err := files.Read(name); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v, want %q", name, got, err, want)
	}
}

// Appending to a file again and again opens it once.
func TestAppendsKeepTheFileOpen(t *testing.T) {
	t.Parallel()
	s, fs := withOpens(t)
	files := s.Outbox("one")
	for i := range 100 {
		must(t, files.Append("log", int64(i), []byte("x")))
	}
	if n := fs.count.Load(); n != 1 {
		t.Errorf("100 appends opened %d files", n)
	}
	wantText(t, files, "log", strings.Repeat("x", 100))
	must(t, s.Close())
	if n := fs.current.Load(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
}

// An append goes to the file that has the name now.
func TestAppendsFollowTheName(t *testing.T) {
	t.Parallel()
	s, fs := withOpens(t)
	files := s.Outbox("one")
	must(t, files.Append("log", 0, []byte("old")))
	must(t, files.Write("log", []byte("new")))
	must(t, files.Append("log", 3, []byte("er")))
	wantText(t, files, "log", "newer")
	must(t, files.Remove("log"))
	must(t, files.Append("log", 0, []byte("third")))
	must(t, files.Append("other", 0, []byte("file")))
	must(t, files.Append("log", 5, []byte("!")))
	wantText(t, files, "log", "third!")
	wantText(t, files, "other", "file")
	must(t, s.Remove("one"))
	if n := fs.current.Load(); n != 0 {
		t.Errorf("%d files of a removed session are open", n)
	}
	again := s.Outbox("one")
	must(t, again.Append("log", 0, []byte("fourth")))
	wantText(t, again, "log", "fourth")
	must(t, s.SetAside("one", "a test"))
	if n := fs.current.Load(); n != 0 {
		t.Errorf("%d files of a session set aside are open", n)
	}
	must(t, s.Close())
}

// A file is not used again after a write failed.
func TestAppendAfterAFailure(t *testing.T) {
	t.Parallel()
	s, fs := withOpens(t)
	files := s.Outbox("one")
	must(t, files.Append("log", 0, []byte("a")))
	fs.fail.Store(true)
	if err := files.Append("log", 1, []byte("b")); err == nil {
		t.Error("the write did not fail")
	}
	if n := fs.current.Load(); n != 0 {
		t.Errorf("%d files are open after a failure", n)
	}
	fs.fail.Store(false)
	must(t, files.Append("log", 1, []byte("c")))
	wantText(t, files, "log", "ac")
	must(t, s.Close())
}

// Few files stay open, whatever the number of sessions.
func TestFewFilesStayOpen(t *testing.T) {
	t.Parallel()
	s, fs := withOpens(t)
	const sessions, most = 100, 32
	var all []backend.Files
	for i := range sessions {
		all = append(all, s.Outbox(fmt.Sprint(i)))
	}
	for round := range 3 {
		for _, files := range all {
			must(t, files.Append("log", int64(round), []byte("x")))
		}
		if n := fs.current.Load(); n != most {
			t.Errorf("%d files are open, want %d", n, most)
		}
	}
	before := fs.count.Load()
	for _, files := range all[sessions-most:] { // the ones used last
		must(t, files.Append("log", 3, []byte("x")))
	}
	if n := fs.count.Load() - before; n != 0 {
		t.Errorf("%d files that were used lately had been closed", n)
	}
	wantText(t, all[0], "log", "xxx")
	wantText(t, all[99], "log", "xxxx")
	must(t, s.Close())
	if n := fs.current.Load(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
}
