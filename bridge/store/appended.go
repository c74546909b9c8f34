package store

import (
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// maxAppended bounds the files that stay open for the next Append.
const maxAppended = 32

// appended are the folders with a file that is open for the next Append, the one used last at the end. It is safe for
// concurrent use. Its lock is not held while a file is used, since a disk may hang.
type appended struct {
	mu      sync.Mutex
	folders []*folder
}

// use notes that a folder has appended to its open file. If there are too many, it closes the file that was not used for
// the longest time.
func (a *appended) use(f *folder) {
	a.mu.Lock()
	if i := slices.Index(a.folders, f); i >= 0 {
		copy(a.folders[i:], a.folders[i+1:])
		a.folders[len(a.folders)-1] = f
		a.mu.Unlock()
		return
	}
	a.folders = append(a.folders, f)
	var oldest *folder
	if len(a.folders) > maxAppended {
		oldest = a.folders[0]
		a.folders = slices.Delete(a.folders, 0, 1)
	}
	a.mu.Unlock()
	if oldest != nil {
		oldest.restIfIdle()
	}
}

// close closes the files of a directory; of all directories if dir is empty.
func (a *appended) close(dir string) {
	a.mu.Lock()
	var closed []*folder
	a.folders = slices.DeleteFunc(a.folders, func(f *folder) bool {
		if dir != "" && f.dir != dir {
			return false
		}
		closed = append(closed, f)
		return true
	})
	a.mu.Unlock()
	for _, f := range closed {
		f.rest()
	}
}

// logFile is a file that stays open between calls of Append. Its folder's lock guards it.
type logFile struct {
	name string
	file segment.File // nil if none is open
}

// closeFile closes the file, if one is open. What was written to it was written.
func (l *logFile) closeFile() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
