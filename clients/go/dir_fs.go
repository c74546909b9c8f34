package copilot

import (
	"io/fs"
	"os"
	"path"
)

// DirFS is a [FileSystem] in a directory of this machine, which its paths cannot leave.
type DirFS struct{ root *os.Root }

// OpenDirFS opens a directory as a file system. The caller must Close it.
func OpenDirFS(dir string) (*DirFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &DirFS{root}, nil
}

// Close gives the directory up.
func (d *DirFS) Close() error { return d.root.Close() }

// ReadFile implements [FileSystem].
func (d *DirFS) ReadFile(name string) ([]byte, error) { return d.root.ReadFile(relative(name)) }

// WriteFile implements [FileSystem].
func (d *DirFS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return d.root.WriteFile(relative(name), data, mode)
}

// AppendFile implements [FileSystem].
func (d *DirFS) AppendFile(name string, data []byte, mode fs.FileMode) error {
	name = relative(name)
	if err := d.root.MkdirAll(path.Dir(name), defaultDirMode); err != nil {
		return err
	}
	f, err := d.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// Stat implements [FileSystem].
func (d *DirFS) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(relative(name)) }

// Mkdir implements [FileSystem].
func (d *DirFS) Mkdir(name string, recursive bool, mode fs.FileMode) error {
	if recursive {
		return d.root.MkdirAll(relative(name), mode)
	}
	return d.root.Mkdir(relative(name), mode)
}

// ReadDir implements [FileSystem].
func (d *DirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(d.root.FS(), relative(name))
}

// Rename implements [FileSystem].
func (d *DirFS) Rename(from, to string) error { return d.root.Rename(relative(from), relative(to)) }

// Remove implements [FileSystem].
func (d *DirFS) Remove(name string, recursive bool) error {
	name = relative(name)
	if !recursive {
		return d.root.Remove(name)
	}
	if _, err := d.root.Lstat(name); err != nil {
		return err
	}
	return d.root.RemoveAll(name)
}
