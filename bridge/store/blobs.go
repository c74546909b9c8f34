package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// blobsFolder holds a session's snapshot: snapshotFile describes it, and each content has its
// digest as name. A content is stored before the description that names it, and removed after.
const (
	blobsFolder  = "blobs"
	snapshotFile = "snapshot"
	unfinished   = "unfinished"
)

// Blobs keeps snapshots of the CLI's folders, each in the folder of its session.
func (s *Store) Blobs() backend.Blobs { return s.blobs }

// blobs implements backend.Blobs. Its mutex is held while snapshots are read or changed.
type blobs struct {
	fs     segment.FS
	folder func(session string) string
	sync   bool

	mu sync.RWMutex
}

func (b *blobs) path(session string, parts ...string) string {
	return filepath.Join(append([]string{b.folder(session), blobsFolder}, parts...)...)
}

// description is the content of snapshotFile.
type description struct {
	backend.Snapshot

	// Begun says that a term has begun, and that there is no snapshot yet.
	Begun bool `json:"begun,omitempty"`
}

// List implements backend.Blobs.
func (b *blobs) List(_ context.Context, session string) (backend.Snapshot, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.snapshot(session)
}

// snapshot describes the snapshot of a session that has one. The caller holds mu.
func (b *blobs) snapshot(session string) (backend.Snapshot, error) {
	d, err := b.read(session)
	if err == nil && d.Begun {
		err = fmt.Errorf("snapshot of session %q: %w", session, fs.ErrNotExist)
	}
	if err != nil {
		return backend.Snapshot{}, err
	}
	return d.Snapshot, nil
}

// read reads the description. The caller holds mu.
func (b *blobs) read(session string) (d description, err error) {
	text, err := segment.ReadFile(b.fs, b.path(session, snapshotFile))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return description{}, fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	return d, nil
}

// current reads the description, which may be missing, for an owner of a term. The caller holds mu.
func (b *blobs) current(session string, term uint64) (d description, found bool, err error) {
	d, err = b.read(session)
	if errors.Is(err, fs.ErrNotExist) {
		return d, false, nil
	}
	if err == nil && d.Term > term {
		err = fmt.Errorf("snapshot of session %q in term %d, after term %d: %w", session, term, d.Term, backend.ErrStale)
	}
	return d, true, err
}

// Begin implements backend.Blobs.
func (b *blobs) Begin(_ context.Context, session string, term uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, found, err := b.current(session, term)
	if err != nil {
		return err
	}
	if err := b.fs.MkdirAll(b.path(session)); err != nil {
		return err
	}
	d.Term, d.Begun = term, d.Begun || !found
	return b.describe(session, &d)
}

// Put implements backend.Blobs.
func (b *blobs) Put(ctx context.Context, session string, s backend.Snapshot, folder fs.FS) (backend.Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, _, err := b.current(session, s.Term); err != nil {
		return backend.Snapshot{}, err
	}
	if err := b.fs.MkdirAll(b.path(session)); err != nil {
		return backend.Snapshot{}, err
	}
	s.Files = nil
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err = cmp.Or(err, ctx.Err()); err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := b.store(session, name, folder)
		s.Files = append(s.Files, f)
		return err
	})
	if err == nil {
		err = b.describe(session, &description{Snapshot: s})
	}
	if err != nil {
		return backend.Snapshot{}, fmt.Errorf("snapshot of session %q: %w", session, err)
	}
	_ = b.sweep(session, &s) // the next Put removes what stayed
	return s, nil
}

// describe makes a snapshot the session's.
func (b *blobs) describe(session string, d *description) error {
	text, err := json.Marshal(d)
	if err == nil && b.sync { // no description is safe before the contents it names
		err = b.fs.SyncDir(b.path(session))
	}
	if err != nil {
		return err
	}
	return segment.WriteFile(b.fs, b.path(session, snapshotFile), text, b.sync)
}

// store stores the content of a file.
func (b *blobs) store(session, name string, folder fs.FS) (f backend.File, err error) {
	from, err := folder.Open(name)
	if err != nil {
		return f, err
	}
	defer func() { _ = from.Close() }()
	to, err := b.fs.Open(b.path(session, unfinished), true)
	if err != nil {
		return f, err
	}
	digest := sha256.New()
	f.Name = name
	f.Size, err = io.Copy(io.MultiWriter(io.NewOffsetWriter(to, 0), digest), from)
	if err == nil {
		err = to.Truncate(f.Size)
	}
	if err == nil && b.sync {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return f, err
	}
	f.SHA256 = hex.EncodeToString(digest.Sum(nil))
	return f, b.fs.Rename(b.path(session, unfinished), b.path(session, f.SHA256))
}

// sweep removes what no description names.
func (b *blobs) sweep(session string, s *backend.Snapshot) error {
	named := map[string]bool{snapshotFile: true}
	for _, f := range s.Files {
		named[f.SHA256] = true
	}
	entries, err := b.fs.ReadDir(b.path(session))
	for _, e := range entries {
		if !named[e.Name()] {
			err = errors.Join(err, b.fs.RemoveAll(b.path(session, e.Name())))
		}
	}
	return err
}

// Get implements backend.Blobs.
func (b *blobs) Get(ctx context.Context, session string, write func(f backend.File, content io.Reader) error) (backend.Snapshot, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.snapshot(session)
	for i := 0; err == nil && i < len(s.Files); i++ {
		if err = ctx.Err(); err == nil {
			err = b.load(session, s.Files[i], write)
		}
	}
	return s, err
}

// load calls write for a file, and checks what write has read and the rest.
func (b *blobs) load(session string, f backend.File, write func(f backend.File, content io.Reader) error) error {
	if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("snapshot of session %q: %q is not a digest", session, f.SHA256)
	}
	file, err := b.fs.Open(b.path(session, f.SHA256), false)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content := &checked{Reader: io.NewSectionReader(file, 0, f.Size), hash: sha256.New(), file: f}
	if err := write(f, content); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	return err
}

// checked is a content that ends with an error if it is not what was stored.
type checked struct {
	io.Reader
	hash hash.Hash
	file backend.File
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	_, _ = c.hash.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(c.hash.Sum(nil)) != c.file.SHA256 {
		err = fmt.Errorf("%q in a snapshot: %w", c.file.Name, segment.ErrDamaged)
	}
	return n, err
}

// Delete implements backend.Blobs.
func (b *blobs) Delete(_ context.Context, session string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fs.RemoveAll(b.path(session))
}
