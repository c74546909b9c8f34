package audit

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// fileMode permits only the server's user to read the log.
const fileMode fs.FileMode = 0o600

// File appends to a file. When that was moved or removed, as those do who rotate logs, the
// next line goes to a new one.
type File struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

// OpenFile opens the file, making it if need be.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	return f, f.open()
}

func (f *File) open() (err error) {
	f.f, err = os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, fileMode)
	return err
}

func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil || f.moved() {
		if f.f != nil {
			_ = f.f.Close() // all was written
			f.f = nil
		}
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	return f.f.Write(p)
}

// moved reports whether the path names another file by now, or none.
func (f *File) moved() bool {
	ours, err := f.f.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(f.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(ours, there)
}

func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}
