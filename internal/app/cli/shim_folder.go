package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

const (
	folderPrefix = "copilot-grpc-shim-"
	// folderLock is a file that the owner of a folder holds locked, folderSocket that of its bridge.
	folderLock   = "lock"
	folderSocket = "bridge.sock"
	// folderMark is the content of the lock: without it a folder is not one of ours.
	folderMark = "copilot-grpc shim\n"
	// maxSocketPath is how long the path of a socket may be on every system.
	maxSocketPath = 103
)

// errInUse reports a folder whose process lives.
var errInUse = errors.New("in use by another process")

// privateFolder is the temporary folder of a private bridge.
type privateFolder struct {
	path string
	lock *flock.Flock
}

// newPrivateFolder makes a folder, and removes those whose processes are gone.
func newPrivateFolder() (_ *privateFolder, err error) {
	base := os.TempDir()
	if len(filepath.Join(base, folderPrefix+"4294967295", folderSocket)) > maxSocketPath {
		base = "/tmp" // a socket cannot be made below TMPDIR
	}
	sweepFolders(base)
	path, err := os.MkdirTemp(base, folderPrefix)
	if err != nil {
		return nil, err
	}
	f := &privateFolder{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.remove())
		}
	}()
	// A sweeper looks at the lock under its final name only, which it gets when it is held.
	early := filepath.Join(path, ".lock")
	if err := os.WriteFile(early, []byte(folderMark), 0o600); err != nil {
		return nil, err
	}
	f.lock = flock.New(early, flock.SetFlag(os.O_RDWR))
	if locked, err := f.lock.TryLock(); err != nil || !locked {
		return nil, fmt.Errorf("locking %q: %w", early, cmp.Or(err, errInUse))
	}
	return f, os.Rename(early, filepath.Join(path, folderLock))
}

func (f *privateFolder) socket() string { return filepath.Join(f.path, folderSocket) }

func (f *privateFolder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// sweepFolders removes the folders below base that processes left behind. Those that are in use,
// that belong to another user, or that have anything else in them stay.
func sweepFolders(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	if err != nil {
		return // the pattern is bad: base has a special character
	}
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && info.Mode().Perm() == 0o700 && isOurs(info) {
			_ = sweepFolder(dir) // the next start tries again
		}
	}
}

// sweepFolder removes a folder if its owner is gone.
func sweepFolder(dir string) error {
	root, err := os.OpenRoot(dir) // nothing outside it can be removed
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != folderLock && e.Name() != folderSocket {
			return fmt.Errorf("%q was not made by a shim", e.Name())
		}
	}
	if mark, err := root.ReadFile(folderLock); err != nil || string(mark) != folderMark {
		return cmp.Or(err, errors.New("the lock was not made by a shim"))
	}
	lock := flock.New(filepath.Join(dir, folderLock), flock.SetFlag(os.O_RDWR))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return cmp.Or(err, errInUse)
	}
	defer func() { _ = lock.Close() }()
	if err := root.Remove(folderSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(root.Remove(folderLock), os.Remove(dir))
}
