package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/filelock"
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

// privateFolder is the temporary folder of a private bridge.
type privateFolder struct {
	path string
	lock *os.File
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
	f.lock, err = os.OpenFile(filepath.Join(path, ".lock"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.lock.WriteString(folderMark); err != nil {
		return nil, err
	}
	if err := filelock.Try(f.lock); err != nil {
		return nil, err
	}
	return f, os.Rename(filepath.Join(path, ".lock"), filepath.Join(path, folderLock))
}

// socket is the path of the bridge's socket.
func (f *privateFolder) socket() string { return filepath.Join(f.path, folderSocket) }

// remove removes the folder.
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
			return fmt.Errorf("%q is not of a shim", e.Name())
		}
	}
	lock, err := root.OpenFile(folderLock, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	mark := make([]byte, len(folderMark)+1)
	if n, _ := lock.Read(mark); string(mark[:n]) != folderMark {
		return errors.New("the lock is not that of a shim")
	}
	if err := filelock.Try(lock); err != nil {
		return err // its owner lives
	}
	if err := root.Remove(folderSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(root.Remove(folderLock), os.Remove(dir))
}
