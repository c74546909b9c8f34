package segment

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// FS is the file system of a log. Its calls may fail at any time without damage to the log.
type FS interface {
	// Open opens a file for reading and, if write is set, for writing; then a missing file is created.
	Open(name string, write bool) (File, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// Size returns a file's size.
	Size(name string) (int64, error)
	// MkdirAll creates a directory and its parents with access for the user only.
	MkdirAll(name string) error
	Rename(from, to string) error
	// RemoveAll removes a file or a directory with its content. A missing file is not an error.
	RemoveAll(name string) error
	// SyncDir makes changes of a directory's entries survive a crash of the machine.
	SyncDir(name string) error
}

// OS is the operating system's file system.
type OS struct{}

// Open implements FS.
func (OS) Open(name string, write bool) (File, error) {
	if write {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	}
	return os.Open(name)
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Size implements FS.
func (OS) Size(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// MkdirAll implements FS.
func (OS) MkdirAll(name string) error { return os.MkdirAll(name, 0o700) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

// Removed is the suffix of a directory that RemoveDir has not removed completely.
const Removed = "~removed"

// RemoveDir removes a directory. After a crash of the process the directory is complete, or has its name no more: what
// is left of it has the suffix Removed. A missing directory is not an error.
func RemoveDir(fsys FS, name string) error {
	if err := fsys.RemoveAll(name + Removed); err != nil { // of an earlier crash
		return err
	}
	err := fsys.Rename(name, name+Removed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.RemoveAll(name + Removed)
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	size, err := fsys.Size(name)
	if err != nil {
		return nil, err
	}
	f, err := fsys.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return data[:n], nil
}

// WriteFile replaces a file atomically: after a crash of the process it has the old or the new content. With sync
// this also holds for crashes of the machine.
func WriteFile(fsys FS, name string, data []byte, sync bool) (err error) {
	unfinished := name + temporary
	f, err := fsys.Open(unfinished, true)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = fsys.Rename(unfinished, name)
	}
	if err != nil || !sync {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}
