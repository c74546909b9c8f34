package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsblob"
)

const (
	// snapshotPause is the pause between two looks at the sessions whose folders have changed.
	snapshotPause = 200 * time.Millisecond
	// snapshotTimeout bounds a snapshot.
	snapshotTimeout = 30 * time.Second
	// recordFile is the newest file of the CLI's record of a session, to which the CLI appends.
	recordFile = record.File
)

// Folders keeps snapshots of the CLI's folders of sessions, so that another node can continue them. A folder is saved
// after each save of its session's state, which follows each turn. It is safe for concurrent use. mu guards the map;
// saving is held while a snapshot is saved or removed, and taken before mu. Run is its goroutine.
type Folders struct {
	blobs blobs
	// place returns the folder of a session by its saved state; "" if it has none.
	place func(key string, state json.RawMessage) string
	log   *slog.Logger

	saving sync.Mutex

	mu    sync.Mutex
	dirty map[string]changed
}

// blobs keeps the snapshots: *natsblob.Blobs does.
type blobs interface {
	Begin(ctx context.Context, session string, term uint64) error
	Put(ctx context.Context, session string, term uint64, folder fs.FS) error
	List(ctx context.Context, session string) ([]natsblob.File, error)
	Get(ctx context.Context, session string, write func(f natsblob.File, content io.Reader) error) error
	Delete(ctx context.Context, session string) error
}

// changed is a folder to save.
type changed struct {
	path string
	term uint64 // of the session's owner
	// failed says that the log has a failure to save it.
	failed bool
}

// NewFolders returns the folders. place returns the folder of a session by its key and its saved state, "" if the
// session has none.
func NewFolders(
	blobs blobs, place func(key string, state json.RawMessage) string, log *slog.Logger,
) *Folders {
	return &Folders{blobs: blobs, place: place, log: log, dirty: map[string]changed{}}
}

// changed has Run save the folder of a session.
func (f *Folders) changed(key string, state json.RawMessage, term uint64) {
	folder := f.place(key, state)
	if folder == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[key] = changed{path: folder, term: term}
}

// Run saves changed folders until ctx ends.
func (f *Folders) Run(ctx context.Context) {
	tick := time.NewTicker(snapshotPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.Flush()
		case <-ctx.Done():
			return
		}
	}
}

// Flush saves the changed folders now. The next Flush tries a folder again that could not be saved.
func (f *Folders) Flush() {
	for tried := map[string]bool{}; f.saveNext(tried); {
	}
}

// flush saves the folder of one session now, if it has changed.
func (f *Folders) flush(key string) error {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	c, found := f.dirty[key]
	f.mu.Unlock()
	if !found {
		return nil
	}
	err := f.save(key, c)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.dirty, key)
	}
	return err
}

// saveNext saves a changed folder that was not tried yet, and reports whether there was one.
func (f *Folders) saveNext(tried map[string]bool) bool {
	f.saving.Lock()
	defer f.saving.Unlock()
	key, c, found := f.take(tried)
	if !found {
		return false
	}
	tried[key] = true
	err := f.save(key, c)
	if err == nil || errors.Is(err, backend.ErrStale) {
		return true
	}
	if !errors.Is(err, fs.ErrNotExist) && !c.failed { // else a file went while it was read
		c.failed = true
		f.log.Error("the CLI's folder of a session was not saved", "session_id", key, "error", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.dirty[key]; !again {
		f.dirty[key] = c
	}
	return true
}

// take takes a changed folder that was not tried yet.
func (f *Folders) take(tried map[string]bool) (string, changed, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, c := range f.dirty {
		if !tried[key] {
			delete(f.dirty, key)
			return key, c, true
		}
	}
	return "", changed{}, false
}

// save saves a folder. The error is fs.ErrNotExist if a file went while it was read.
func (f *Folders) save(key string, c changed) error {
	root, err := os.OpenRoot(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	// A snapshot has the regular files of the folder: it would lack what a link names elsewhere.
	if _, err := record.Files(root.FS(), filepath.Base(c.path)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	return f.blobs.Put(ctx, key, c.term, root.FS())
}

// restore makes the folder of a session that this node has acquired as the last owner saved it, and returns its path. A
// folder that continues the saved one stays: the homes may be on a shared disk. An earlier owner that was frozen cannot
// save it any more.
func (f *Folders) restore(ctx context.Context, key string, state json.RawMessage, term uint64) (string, error) {
	folder := f.place(key, state)
	if folder == "" {
		return "", nil
	}
	if err := f.blobs.Begin(ctx, key, term); err != nil {
		return "", err
	}
	saved, err := f.blobs.List(ctx, key)
	if errors.Is(err, fs.ErrNotExist) || err == nil && continues(folder, saved) {
		return folder, nil
	}
	if err != nil {
		return "", err
	}
	if err := f.replace(ctx, key, folder); err != nil {
		return "", fmt.Errorf("restoring the CLI's folder of session %q: %w", key, err)
	}
	return folder, nil
}

// replace replaces a folder by the saved one.
func (f *Folders) replace(ctx context.Context, key, folder string) error {
	staging := filepath.Join(filepath.Dir(folder), ".restoring-"+filepath.Base(folder))
	// An earlier attempt may have ended with its process.
	if err := errors.Join(os.RemoveAll(staging), os.MkdirAll(staging, 0o700)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }() // it has been renamed, or is of no use
	if err := f.fill(ctx, key, staging); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(staging, folder)
}

// fill writes the saved files into a new folder. Their names were checked; the root refuses others.
func (f *Folders) fill(ctx context.Context, key, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // files are closed one by one
	return f.blobs.Get(ctx, key, func(file natsblob.File, content io.Reader) error {
		if err := root.MkdirAll(path.Dir(file.Name), 0o700); err != nil {
			return err
		}
		to, err := root.OpenFile(file.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, content)
		return errors.Join(err, to.Close())
	})
}

// continues reports whether a folder has the saved record of the CLI, and maybe more.
func continues(folder string, saved []natsblob.File) bool {
	i := slices.IndexFunc(saved, func(f natsblob.File) bool { return f.Name == recordFile })
	if i < 0 {
		_, err := os.Stat(folder)
		return err == nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }() // it was only read
	files, err := record.Files(root.FS(), filepath.Base(folder))
	if err != nil {
		return false
	}
	// The CLI may have begun other files since: the saved one then is one of the earlier files.
	at := slices.IndexFunc(files, func(name string) bool { return begins(root, name, saved[i]) })
	if at < 0 {
		return false
	}
	for _, name := range files[at+1:] {
		same := func(f natsblob.File) bool { return f.Name == name && begins(root, name, f) }
		if !slices.ContainsFunc(saved, same) {
			return false
		}
	}
	return true
}

// begins reports whether a file in a folder begins with the content of a saved one.
func begins(folder *os.Root, name string, saved natsblob.File) bool {
	file, err := folder.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it was only read
	sum := sha256.New()
	n, err := io.CopyN(sum, file, saved.Size)
	return err == nil && n == saved.Size && hex.EncodeToString(sum.Sum(nil)) == saved.SHA256
}

// remove removes the snapshot of a session. The CLI removes the folder.
func (f *Folders) remove(ctx context.Context, key string) error {
	f.saving.Lock() // a snapshot that is being saved would stay
	defer f.saving.Unlock()
	f.mu.Lock()
	delete(f.dirty, key)
	f.mu.Unlock()
	return f.blobs.Delete(ctx, key)
}
