package files

import (
	"io/fs"
	"os"
	"path"
	"strings"
)

// relative is an absolute path of a session's file system, relative to its root.
func relative(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// Dir is a FileSystem in a directory of this machine, which its paths cannot leave. Its methods
// may be called concurrently.
type Dir struct{ root *os.Root }

// Open opens a directory as a file system. The caller must Close it.
func Open(dir string) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{root}, nil
}

// Close gives the directory up.
func (d *Dir) Close() error { return d.root.Close() }

// ReadFile implements FileSystem.
func (d *Dir) ReadFile(name string) ([]byte, error) { return d.root.ReadFile(relative(name)) }

// WriteFile implements FileSystem.
func (d *Dir) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return d.root.WriteFile(relative(name), data, mode)
}

// AppendFile implements FileSystem.
func (d *Dir) AppendFile(name string, data []byte, mode fs.FileMode) error {
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

// Stat implements FileSystem.
func (d *Dir) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(relative(name)) }

// Mkdir implements FileSystem.
func (d *Dir) Mkdir(name string, recursive bool, mode fs.FileMode) error {
	if recursive {
		return d.root.MkdirAll(relative(name), mode)
	}
	return d.root.Mkdir(relative(name), mode)
}

// ReadDir implements FileSystem.
func (d *Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(d.root.FS(), relative(name))
}

// Rename implements FileSystem.
func (d *Dir) Rename(from, to string) error { return d.root.Rename(relative(from), relative(to)) }

// Remove implements FileSystem.
func (d *Dir) Remove(name string, recursive bool) error {
	name = relative(name)
	if !recursive {
		return d.root.Remove(name)
	}
	if _, err := d.root.Lstat(name); err != nil {
		return err
	}
	return d.root.RemoveAll(name)
}
