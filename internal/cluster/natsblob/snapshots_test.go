package natsblob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

func TestBlobs(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*Blobs) error{
		"a session without a snapshot":               blobMissing,
		"a snapshot has all files":                   blobKept,
		"a snapshot replaces the one before":         blobReplaced,
		"a failed snapshot leaves the one before":    blobAtomic,
		"an earlier term is refused":                 blobFenced,
		"a term that has begun refuses earlier ones": blobBegun,
		"a deleted snapshot is gone":                 blobDeleted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(testBlobs(t)); err != nil {
				t.Error(err)
			}
		})
	}
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
func holds(b *Blobs, session string, term uint64, files fstest.MapFS) error {
	got := map[string]string{}
	var gotten []File
	err := b.Get(context.Background(), session, func(f File, content io.Reader) error {
		text, err := io.ReadAll(content)
		gotten = append(gotten, f)
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
	if !slices.Equal(listed, gotten) || err != nil {
		return fmt.Errorf("listing describes %v, Get %v: %v", listed, gotten, err)
	}
	m, _, err := b.read(context.Background(), b.cfg.Subject(session))
	if err != nil || m.Term != term || len(m.Files) != len(files) {
		return fmt.Errorf("the snapshot is %v, want that of term %d: %v", m, term, err)
	}
	for i, f := range listed {
		if f.Size != int64(len(all[f.Name])) || len(f.SHA256) != 64 || i > 0 && listed[i-1].Name >= f.Name {
			return fmt.Errorf("file %d is %+v", i, f)
		}
	}
	return nil
}

// replaced puts a snapshot and checks that it is there.
func replaced(b *Blobs, session string, term uint64, files fstest.MapFS) error {
	if err := b.Put(context.Background(), session, term, files); err != nil {
		return fmt.Errorf("putting a snapshot: %v", err)
	}
	return holds(b, session, term, files)
}

func blobMissing(b *Blobs) error {
	if _, err := b.List(context.Background(), "a"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing returns %v", err)
	}
	err := b.Get(context.Background(), "a",
		func(File, io.Reader) error { return errors.New("there is a file") })
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("get returns %v", err)
	}
	return b.Delete(context.Background(), "a")
}

func blobKept(b *Blobs) error {
	files := folder("events.jsonl", strings.Repeat("x", 1<<20), "checkpoints/1", "same", "checkpoints/2", "same",
		"empty", "")
	if err := replaced(b, "a", 3, files); err != nil {
		return err
	}
	if err := replaced(b, "b", 1, folder("f", "of another session")); err != nil {
		return err
	}
	return holds(b, "a", 3, files)
}

func blobReplaced(b *Blobs) error {
	return errors.Join(
		replaced(b, "a", 1, folder("kept", "a", "changed", "b", "removed", "c")),
		replaced(b, "a", 1, folder("kept", "a", "changed", "d", "new", "c")),
		replaced(b, "a", 2, folder()))
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

func blobAtomic(b *Blobs) error {
	before, files := uint64(1), folder("a", "1", "b", "2")
	if err := replaced(b, "s", before, files); err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		broken := brokenFS{folder("a", "changed", "b", "changed too"), name}
		if err := b.Put(context.Background(), "s", 1, broken); !errors.Is(err, errUnreadable) {
			return fmt.Errorf("putting a folder that cannot be read returns %v", err)
		}
		if err := holds(b, "s", before, files); err != nil {
			return fmt.Errorf("after a snapshot that failed: %v", err)
		}
	}
	return replaced(b, "s", 1, folder("a", "3"))
}

func blobFenced(b *Blobs) error {
	now, files := uint64(5), folder("a", "1")
	if err := replaced(b, "s", now, files); err != nil {
		return err
	}
	if err := b.Put(context.Background(), "s", 4, folder("a", "2")); !errors.Is(err, backend.ErrStale) {
		return fmt.Errorf("a snapshot of an earlier term returns %v", err)
	}
	return holds(b, "s", now, files)
}

func blobBegun(b *Blobs) error {
	ctx := context.Background()
	late := func(session string) error {
		err := b.Put(ctx, session, 4, folder("a", "late"))
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
	err := b.Get(ctx, "new", func(File, io.Reader) error { return errors.New("there is a file") })
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("get returns %v", err)
	}
	files := folder("a", "1", "b", "2")
	if err := errors.Join(replaced(b, "new", 5, files),
		replaced(b, "old", 4, files),
		b.Begin(ctx, "old", 5), late("old")); err != nil {
		return err
	}
	return errors.Join(holds(b, "old", 5, files),
		replaced(b, "old", 5, folder("a", "3")))
}

func blobDeleted(b *Blobs) error {
	ctx := context.Background()
	if err := errors.Join(replaced(b, "a", 5, folder("f", "1")),
		replaced(b, "b", 5, folder("f", "2"))); err != nil {
		return err
	}
	if err := b.Delete(ctx, "a"); err != nil {
		return err
	}
	if _, err := b.List(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing a deleted snapshot returns %v", err)
	}
	return holds(b, "b", 5, folder("f", "2"))
}
