package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// Blobs tests snapshots. open returns blobs without any.
func Blobs(t *testing.T, open func(testing.TB) backend.Blobs) { runAll(t, blobChecks, open) }

var blobChecks = []check[backend.Blobs]{
	{"a session without a snapshot", blobMissing},
	{"a snapshot has all files", blobKept},
	{"a snapshot replaces the one before", blobReplaced},
	{"a failed snapshot leaves the one before", blobAtomic},
	{"an earlier term is refused", blobFenced},
	{"a term that has begun refuses earlier ones", blobBegun},
	{"a deleted snapshot is gone", blobDeleted},
}

// folder returns a folder of files: name, content, and so on.
func folder(files ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

// holds checks what Get and List give of a session.
func holds(b backend.Blobs, session string, want backend.Snapshot, files fstest.MapFS) error {
	got := map[string]string{}
	s, err := b.Get(context.Background(), session, func(f backend.File, content io.Reader) error {
		text, err := io.ReadAll(content)
		got[f.Name] = string(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("getting a snapshot: %v", err)
	}
	all := map[string]string{}
	for name, f := range files {
		all[name] = string(f.Data)
	}
	if !maps.Equal(got, all) {
		return fmt.Errorf("the snapshot has %q, want %q", got, all)
	}
	listed, err := b.List(context.Background(), session)
	if fmt.Sprint(listed) != fmt.Sprint(s) || err != nil {
		return fmt.Errorf("listing describes %v, Get %v: %v", listed, s, err)
	}
	if s.Term != want.Term || s.Epoch != want.Epoch || s.Seq != want.Seq || len(s.Files) != len(files) {
		return fmt.Errorf("the snapshot is %v, want %v", s, want)
	}
	for i, f := range s.Files {
		if f.Size != int64(len(all[f.Name])) || len(f.SHA256) != 64 || i > 0 && s.Files[i-1].Name >= f.Name {
			return fmt.Errorf("file %d is %+v", i, f)
		}
	}
	return nil
}

// put puts a snapshot and checks that it is there.
func put(b backend.Blobs, session string, s backend.Snapshot, files fstest.MapFS) error {
	if _, err := b.Put(context.Background(), session, s, files); err != nil {
		return fmt.Errorf("putting a snapshot: %v", err)
	}
	return holds(b, session, s, files)
}

func blobMissing(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b := open(t)
	if _, err := b.List(context.Background(), "a"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing returns %v", err)
	}
	_, err := b.Get(context.Background(), "a",
		func(backend.File, io.Reader) error { return errors.New("there is a file") })
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("get returns %v", err)
	}
	return b.Delete(context.Background(), "a")
}

func blobKept(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b := open(t)
	files := folder("events.jsonl", strings.Repeat("x", 1<<20), "checkpoints/1", "same", "checkpoints/2", "same",
		"empty", "")
	if err := put(b, "a", backend.Snapshot{Term: 3, Epoch: 4, Seq: 5}, files); err != nil {
		return err
	}
	if err := put(b, "b", backend.Snapshot{Term: 1}, folder("f", "of another session")); err != nil {
		return err
	}
	return holds(b, "a", backend.Snapshot{Term: 3, Epoch: 4, Seq: 5}, files)
}

func blobReplaced(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b := open(t)
	return errors.Join(
		put(b, "a", backend.Snapshot{Term: 1, Seq: 1}, folder("kept", "a", "changed", "b", "removed", "c")),
		put(b, "a", backend.Snapshot{Term: 1, Seq: 2}, folder("kept", "a", "changed", "d", "new", "c")),
		put(b, "a", backend.Snapshot{Term: 2, Seq: 2}, folder()))
}

// brokenFS is a folder one file of which cannot be read to its end.
type brokenFS struct {
	files fs.FS
	name  string
}

var errUnreadable = errors.New("the file cannot be read")

func (b brokenFS) Open(name string) (fs.File, error) {
	f, err := b.files.Open(name)
	if err == nil && name == b.name {
		return brokenFile{f}, nil
	}
	return f, err
}

type brokenFile struct{ fs.File }

func (f brokenFile) Read(p []byte) (int, error) {
	if n, err := f.File.Read(p[:1]); err == nil {
		return n, errUnreadable
	}
	return 0, errUnreadable
}

func blobAtomic(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b, before, files := open(t), backend.Snapshot{Term: 1, Seq: 1}, folder("a", "1", "b", "2")
	if err := put(b, "s", before, files); err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		broken := brokenFS{folder("a", "changed", "b", "changed too"), name}
		if _, err := b.Put(context.Background(), "s", backend.Snapshot{Term: 1, Seq: 2}, broken); !errors.Is(err,
			errUnreadable) {
			return fmt.Errorf("putting a folder that cannot be read returns %v", err)
		}
		if err := holds(b, "s", before, files); err != nil {
			return fmt.Errorf("after a snapshot that failed: %v", err)
		}
	}
	return put(b, "s", backend.Snapshot{Term: 1, Seq: 3}, folder("a", "3"))
}

func blobFenced(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b, now, files := open(t), backend.Snapshot{Term: 5, Seq: 1}, folder("a", "1")
	if err := put(b, "s", now, files); err != nil {
		return err
	}
	if _, err := b.Put(context.Background(), "s", backend.Snapshot{Term: 4, Seq: 2}, folder("a", "2")); !errors.Is(err,
		backend.ErrStale) {
		return fmt.Errorf("a snapshot of an earlier term returns %v", err)
	}
	return holds(b, "s", now, files)
}

func blobBegun(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b, ctx := open(t), context.Background()
	late := func(session string) error {
		_, err := b.Put(ctx, session, backend.Snapshot{Term: 4}, folder("a", "late"))
		if !errors.Is(err, backend.ErrStale) {
			return fmt.Errorf("a snapshot of a term before the one that has begun returns %v", err)
		}
		if err := b.Begin(ctx, session, 4); !errors.Is(err, backend.ErrStale) {
			return fmt.Errorf("beginning an earlier term returns %v", err)
		}
		return nil
	}
	if err := errors.Join(b.Begin(ctx, "new", 5), b.Begin(ctx, "new", 5), late("new")); err != nil {
		return err
	}
	if _, err := b.List(ctx, "new"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a session whose first term has begun has a snapshot: %v", err)
	}
	_, err := b.Get(ctx, "new", func(backend.File, io.Reader) error { return errors.New("there is a file") })
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("get returns %v", err)
	}
	files := folder("a", "1", "b", "2")
	if err := errors.Join(put(b, "new", backend.Snapshot{Term: 5}, files),
		put(b, "old", backend.Snapshot{Term: 4, Epoch: 1, Seq: 2}, files),
		b.Begin(ctx, "old", 5), late("old")); err != nil {
		return err
	}
	return errors.Join(holds(b, "old", backend.Snapshot{Term: 5, Epoch: 1, Seq: 2}, files),
		put(b, "old", backend.Snapshot{Term: 5, Seq: 3}, folder("a", "3")))
}

func blobDeleted(t testing.TB, open func(testing.TB) backend.Blobs) error {
	b, ctx := open(t), context.Background()
	if err := errors.Join(put(b, "a", backend.Snapshot{Term: 5}, folder("f", "1")),
		put(b, "b", backend.Snapshot{Term: 5}, folder("f", "2"))); err != nil {
		return err
	}
	if err := b.Delete(ctx, "a"); err != nil {
		return err
	}
	if _, err := b.List(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing a deleted snapshot returns %v", err)
	}
	return holds(b, "b", backend.Snapshot{Term: 5}, folder("f", "2"))
}
