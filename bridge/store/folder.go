package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// folder is a directory of small files of a session. The first write creates it. It is safe for concurrent use, except for writes to the same file.
type folder struct {
	fs   segment.FS
	dir  string
	sync bool
}

// Outbox is the folder of the prompts of a session whose turns have not ended. With FsyncAlways its files survive a
// crash of the machine, otherwise one of the process.
func (s *Store) Outbox(id string) backend.Files {
	return &folder{s.fs, filepath.Join(s.folder(id), "outbox"), s.cfg.Journals.Fsync == journal.FsyncAlways}
}

func (f *folder) List() (names []string, err error) {
	entries, err := f.fs.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.ContainsRune(e.Name(), filepath.Separator) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (f *folder) Read(name string) ([]byte, error) {
	return segment.ReadFile(f.fs, filepath.Join(f.dir, name))
}

// Write replaces a file.
func (f *folder) Write(name string, data []byte) error {
	if err := f.fs.MkdirAll(f.dir); err != nil {
		return err
	}
	return segment.WriteFile(f.fs, filepath.Join(f.dir, name), data, f.sync)
}

// Append adds data to a file.
func (f *folder) Append(name string, size int64, data []byte) error {
	path := filepath.Join(f.dir, name)
	file, err := f.fs.Open(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.fs.MkdirAll(f.dir); err != nil {
			return err
		}
		file, err = f.fs.Open(path, true)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, size)
	if err == nil && f.sync {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil && f.sync && size == 0 {
		err = f.fs.SyncDir(f.dir)
	}
	return err
}

// Remove removes a file. A missing file is not an error.
func (f *folder) Remove(name string) error { return f.fs.RemoveAll(filepath.Join(f.dir, name)) }
