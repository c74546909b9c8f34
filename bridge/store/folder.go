package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// folder is a directory of small files of a session. The first write creates it. The file that was appended to last
// stays open. A folder is safe for concurrent use, except for writes to the same file.
type folder struct {
	fs   segment.FS
	dir  string
	sync bool
	all  *appended

	mu   sync.Mutex // guards last; held while the file is used
	last logFile
}

// Outbox is the folder of the prompts of a session whose turns have not ended. With FsyncAlways its files survive a
// crash of the machine, otherwise one of the process.
func (s *Store) Outbox(id string) backend.Files {
	return &folder{fs: s.fs, dir: s.outboxDir(id), sync: s.cfg.Journals.Fsync == journal.FsyncAlways, all: &s.appended}
}

func (s *Store) outboxDir(id string) string { return filepath.Join(s.folder(id), "outbox") }

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
	f.forget(name)
	if err := f.fs.MkdirAll(f.dir); err != nil {
		return err
	}
	return segment.WriteFile(f.fs, filepath.Join(f.dir, name), data, f.sync)
}

// Append adds data to a file.
func (f *folder) Append(name string, size int64, data []byte) error {
	err := f.append(name, size, data)
	if err == nil {
		f.all.use(f)
	}
	return err
}

func (f *folder) append(name string, size int64, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(name); err != nil {
		return err
	}
	_, err := f.last.file.WriteAt(data, size)
	if err == nil && f.sync {
		err = f.last.file.Sync()
	}
	if err == nil && f.sync && size == 0 {
		err = f.fs.SyncDir(f.dir)
	}
	if err != nil {
		f.last.closeFile()
	}
	return err
}

// open opens the file for append, unless it is open. The caller holds mu.
func (f *folder) open(name string) error {
	if f.last.file != nil && f.last.name == name {
		return nil
	}
	f.last.closeFile()
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
	f.last = logFile{name, file}
	return nil
}

// forget closes a file that is about to be replaced or removed, if it is open.
func (f *folder) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.name == name {
		f.last.closeFile()
	}
}

// rest closes the file that stayed open.
func (f *folder) rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last.closeFile()
}

// restIfIdle is rest, except that it leaves a file in use: use is called again after that.
func (f *folder) restIfIdle() {
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		f.last.closeFile()
	}
}

// Remove removes a file. A missing file is not an error.
func (f *folder) Remove(name string) error {
	f.forget(name)
	return f.fs.RemoveAll(filepath.Join(f.dir, name))
}
