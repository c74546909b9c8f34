// Package segment stores numbered entries in append-only files. It does not interpret entries.
//
// A log is a directory with files of some megabytes. Every file begins with a header, and every frame has a checksum.
// Recovery removes a frame that a crash left incomplete at the end. After damaged bytes reading continues with the
// next valid frame, and the missing numbers are reported: only the damaged frames are lost. The log's mark is a few
// bytes of the caller, written in order with the entries and repeated in every header, so that it survives the
// removal of older files. The oldest files can be dropped. Replace replaces all files at once by the files of a new
// epoch.
//
// A Log has two locks: mu guards its list of segments, fileMu keeps the open file open during a sync. The package
// starts no goroutines.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// DefaultSegmentBytes is the size at which a new file is started.
const DefaultSegmentBytes = 4 << 20

// indexEvery bounds the bytes read before an entry is found.
const indexEvery = 64 << 10

const (
	suffix   = ".seg"
	setAside = ".bad"
	format   = 1
)

// Entry is an entry with a number greater than all numbers before it, or, if Mark is set, the log's new mark.
type Entry struct {
	Number uint64
	// Head and Body are stored one after the other; a mark has only a Body. They are separate so that a large body
	// need not be copied to prepend a few bytes.
	Head, Body []byte
	Mark       bool
}

// keepBuffer is the size of the largest buffer that is reused: a batch and a large event.
const keepBuffer = 1 << 20

// buffers collect entries that are written together. All logs share them, because few are written at a time.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Options configure a log.
type Options struct {
	FS FS
	// SegmentBytes is the size at which a new file is started. The default is DefaultSegmentBytes.
	SegmentBytes int64
	// SyncFiles syncs a file before the next one is started.
	SyncFiles bool
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// Progress, if set, is called after each piece of an append.
	Progress func()
	// Copies, if set, returns the entries between two numbers of an epoch that are also stored elsewhere, oldest first.
	// Open writes them into the last file, where they are missing before others. They are needed until a Sync.
	Copies func(epoch, after, before uint64) []Copy
}

// Log is a log on disk. Append, Trim, Replace and Rest must not run concurrently. Sync and Read are safe for
// concurrent use.
type Log struct {
	dir string
	o   Options

	// fileMu keeps the open file open during a sync.
	fileMu sync.Mutex

	mu       sync.RWMutex
	epoch    uint64
	segments []*segment // oldest first
	mark     []byte
	last     uint64 // the last entry's number
	file     File   // the last segment's, while it is written
	appends  uint64 // counts the changes of files
	synced   uint64 // what appends was when everything was synced
	// unsure is the error of a sync that failed. Until Renew all further syncs fail: the system reports what it could
	// not write only once.
	unsure error
}

// segment is one file.
type segment struct {
	name  string
	base  uint64 // the number of the last entry before it
	last  uint64 // of its last entry; base if it has none
	size  int64
	index []place
	// newest is the time at which its last entry was written, if known.
	newest time.Time
	// sealed files are followed by another file and not appended to.
	sealed bool
	// damaged files contain unreadable bytes.
	damaged bool
}

// place is the location of an entry.
type place struct {
	number uint64
	offset int64
}

func segmentName(epoch, base uint64) string { return fmt.Sprintf("%016x-%016x%s", epoch, base, suffix) }

// Epoch returns the log's epoch.
func (l *Log) Epoch() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epoch
}

// Trimmed returns the number of the last dropped entry, 0 if there is none.
func (l *Log) Trimmed() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) == 0 {
		return 0
	}
	return l.segments[0].base
}

// Last returns the number of the last entry.
func (l *Log) Last() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last
}

// Size returns the total size of the files in bytes.
func (l *Log) Size() (n int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

// Append writes the entries. If it fails, none of them counts as written, and the next Append overwrites what was
// written. After a failed Sync it calls Renew first.
func (l *Log) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if l.Unsure() {
		if err := l.Renew(); err != nil {
			return err
		}
	}
	current, err := l.current()
	if err != nil {
		return err
	}
	shared := buffers.Get().(*[]byte)
	buffer := (*shared)[:0]
	defer func() {
		if cap(buffer) <= keepBuffer {
			*shared = buffer
			buffers.Put(shared)
		}
	}()
	last, mark := l.last, l.mark
	var index []place
	indexed := int64(-indexEvery)
	if n := len(current.index); n > 0 {
		indexed = current.index[n-1].offset
	}
	for _, e := range entries {
		if e.Mark {
			buffer, mark = appendFrame(buffer, kindMark, last, nil, e.Body), e.Body
			continue
		}
		if e.Number <= last {
			return fmt.Errorf("entry %d follows entry %d: numbers must increase", e.Number, last)
		}
		if at := current.size + int64(len(buffer)); at-indexed >= indexEvery {
			index, indexed = append(index, place{e.Number, at}), at
		}
		last = e.Number
		buffer = appendFrame(buffer, kindEntry, e.Number, e.Head, e.Body)
	}
	if err := l.write(buffer, current.size); err != nil {
		_ = l.file.Truncate(current.size) // else what is left is written over, or cut off by recovery
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	current.size += int64(len(buffer))
	current.last, current.newest = last, l.o.Now()
	current.index = append(current.index, index...)
	l.last, l.mark = last, append([]byte(nil), mark...)
	l.appends++
	return nil
}

// pieceBytes is the size of a single write, after which the progress of a slow disk is visible.
const pieceBytes = 64 << 10

// write writes bytes to the open file.
func (l *Log) write(data []byte, at int64) error {
	for piece := range slices.Chunk(data, pieceBytes) {
		if _, err := l.file.WriteAt(piece, at); err != nil {
			return err
		}
		at += int64(len(piece))
		if l.o.Progress != nil {
			l.o.Progress()
		}
	}
	return nil
}

// current returns the segment to append to, with its file open.
func (l *Log) current() (*segment, error) {
	n := len(l.segments)
	if n > 0 {
		// A file without entries has the name that the next file would have.
		if s := l.segments[n-1]; !s.sealed && (s.size < l.o.SegmentBytes || s.last == s.base) {
			return s, l.openLast()
		}
		if l.o.SyncFiles {
			if err := l.openLast(); err != nil {
				return nil, err
			}
			if _, err := l.Sync(); err != nil {
				return nil, err
			}
		}
	}
	s := &segment{name: filepath.Join(l.dir, segmentName(l.epoch, l.last)), base: l.last, last: l.last}
	file, err := l.begin(s, l.epoch, l.mark)
	if err != nil {
		return nil, err
	}
	_ = l.Rest() // what was written was written
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, l.segments = file, append(l.segments, s)
	l.appends++
	return s, nil
}

// begin creates a segment's file with its header.
func (l *Log) begin(s *segment, epoch uint64, mark []byte) (File, error) {
	if err := l.o.FS.MkdirAll(l.dir); err != nil {
		return nil, err
	}
	file, err := l.o.FS.Open(s.name, true)
	if err != nil {
		return nil, err
	}
	header := appendFrame(nil, kindHeader, s.base, nil, headerBody(epoch, mark))
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt(header, 0)
	}
	if err == nil && l.o.SyncFiles {
		err = l.o.FS.SyncDir(l.dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.size, s.newest = int64(len(header)), l.o.Now()
	return file, nil
}

func headerBody(epoch uint64, mark []byte) []byte {
	body := append([]byte("cgj"), format)
	body = binary.LittleEndian.AppendUint64(body, epoch)
	return append(body, mark...)
}

// parseHeader reads a header's body.
func parseHeader(f frame) (epoch uint64, mark []byte, ok bool) {
	const fixed = 4 + 8
	if f.kind != kindHeader || len(f.body) < fixed || string(f.body[:4]) != "cgj\x01" {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(f.body[4:]), f.body[fixed:], true
}

// openLast opens the last segment's file if it is closed.
func (l *Log) openLast() error {
	if l.file != nil {
		return nil
	}
	file, err := l.o.FS.Open(l.segments[len(l.segments)-1].name, true)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = file
	return nil
}

// Sync makes appended entries survive a crash of the machine, and returns the number of the last entry for which this
// holds. After an error it fails until Renew or the next Append.
func (l *Log) Sync() (through uint64, err error) {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.mu.RLock()
	file, appends, synced, unsure := l.file, l.appends, l.synced, l.unsure
	through = l.last
	var name string
	if n := len(l.segments); n > 0 {
		name = l.segments[n-1].name
	}
	l.mu.RUnlock()
	if appends == synced {
		return through, nil
	}
	if unsure != nil {
		return 0, unsure
	}
	if file == nil { // it rests, or is gone: then it must not come again
		if file, err = l.o.FS.Open(name, false); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	err = file.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unsure = err
		return 0, err
	}
	l.synced = max(l.synced, appends)
	return through, nil
}

// Rest closes the open file, if any; the next Append opens it again.
func (l *Log) Rest() error {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.file
	l.file = nil
	if file == nil {
		return nil
	}
	return file.Close()
}

// Trim drops the oldest files while the total size exceeds maxBytes or while their entries are older than before;
// zero values set no limit. The current file stays. Trim returns the number of the last entry dropped so far.
func (l *Log) Trim(maxBytes int64, before time.Time) (trimmed uint64, err error) {
	size, dropped := l.Size(), false
	for len(l.segments) > 1 {
		oldest := l.segments[0]
		if (maxBytes <= 0 || size <= maxBytes) && !oldest.newest.Before(before) {
			break
		}
		// The list is changed first: a reader that has just found the file sees that it is missing, and searches
		// again.
		l.mu.Lock()
		l.segments = append([]*segment(nil), l.segments[1:]...)
		l.mu.Unlock()
		if err = l.o.FS.RemoveAll(oldest.name); err != nil {
			l.mu.Lock()
			l.segments = append([]*segment{oldest}, l.segments...)
			l.mu.Unlock()
			break
		}
		size -= oldest.size
		dropped = true
	}
	if dropped && l.o.SyncFiles {
		err = errors.Join(err, l.o.FS.SyncDir(l.dir))
	}
	return l.Trimmed(), err
}
