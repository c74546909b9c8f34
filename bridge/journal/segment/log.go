// Package segment keeps a row of numbered entries in files to which is only appended. It
// knows nothing of what the entries mean.
//
// A log is a directory with files of some megabytes. Every file begins with a header, and
// every frame has a checksum: what a crash left half written at the end is found and cut
// off. Behind damaged bytes reading goes on with the next whole frame, and which numbers are
// missing is reported: nothing is lost but the frames that were hit. The log's mark, a few bytes
// of the caller's, is written in order with the entries and repeated in every header, so
// that it outlives the files before. The oldest files can be dropped; all of them can be
// replaced at once by those of a new epoch.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// DefaultSegmentBytes is the size at which a new file is begun.
const DefaultSegmentBytes = 4 << 20

// indexEvery is how many bytes at most are read in vain to find an entry.
const indexEvery = 64 << 10

const (
	suffix   = ".seg"
	setAside = ".bad"
	format   = 1
)

// Entry is what is appended: an entry under a number greater than all before it, or with
// Mark set the log's new mark.
type Entry struct {
	Number uint64
	// Head and Body are what is kept, one after the other; a mark has a Body only. They are
	// two so that what is
	// large need not be copied to get a few bytes in front of it.
	Head, Body []byte
	Mark       bool
}

// keepBuffer is the largest buffer that is used again: a batch and a large event.
const keepBuffer = 1 << 20

// buffers are what entries are put together in to be written at once. All logs share
// them, since few are written at a time.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Options say how a log is kept.
type Options struct {
	FS FS
	// SegmentBytes is the size at which a new file is begun; default DefaultSegmentBytes.
	SegmentBytes int64
	// SyncFiles has a file synced before the next one is begun.
	SyncFiles bool
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Progress, if set, is called when a piece of what is appended was written.
	Progress func()
}

// Log is a log on disk. Append, Trim, Replace and Rest are for one goroutine at a time;
// Sync and Read may be called from any, at any time.
type Log struct {
	dir string
	o   Options

	// fileMu keeps the open file open while it is synced.
	fileMu sync.Mutex

	mu       sync.RWMutex
	epoch    uint64
	segments []*segment // oldest first
	mark     []byte
	last     uint64 // the last entry's number
	file     File   // the last segment's, while it is written
	piece    int    // how much is written at a time
	appends  uint64 // counts the changes of files
	synced   uint64 // what appends was when everything was synced
}

// segment is one file.
type segment struct {
	name  string
	base  uint64 // the number of the last entry before it
	last  uint64 // of its last entry; base if it has none
	size  int64
	index []place
	// newest is when its last entry was written, as far as is known.
	newest time.Time
	// sealed files are not appended to: another one followed.
	sealed bool
	// damaged files were found with bytes that could not be read.
	damaged bool
}

// place is where an entry is.
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

// Trimmed returns the number of the last entry that was dropped, 0 if none was.
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

// Size returns how many bytes the files have.
func (l *Log) Size() (n int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

// Append writes the entries. When it fails none of them counts as written, and the next
// Append writes over what it may have left.
func (l *Log) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
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
			return fmt.Errorf("entry %d comes after entry %d", e.Number, last)
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

// The pieces in which is written: large ones, which cost little, and smaller ones on a disk that
// takes longer than slowPiece for one, so that it can be seen to move.
const (
	maxPiece  = 256 << 10
	minPiece  = 16 << 10
	slowPiece = 250 * time.Millisecond
)

// write puts bytes into the open file.
func (l *Log) write(data []byte, at int64) error {
	for len(data) > 0 {
		n := min(len(data), max(l.piece, minPiece))
		begin := l.o.Now()
		if _, err := l.file.WriteAt(data[:n], at); err != nil {
			return err
		}
		switch took := l.o.Now().Sub(begin); {
		case took > slowPiece:
			l.piece /= 2
		case took < slowPiece/4:
			l.piece = min(2*max(l.piece, minPiece), maxPiece)
		}
		data, at = data[n:], at+int64(n)
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
		// A file without entries has the name that the next one would have.
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

// begin makes a segment's file with its header.
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

// openLast opens the last segment's file if it is not.
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

// Sync makes what was appended outlast a crash of the machine, and returns the number of
// the last entry for which that holds.
func (l *Log) Sync() (through uint64, err error) {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.mu.RLock()
	file, appends, synced := l.file, l.appends, l.synced
	through = l.last
	var name string
	if n := len(l.segments); n > 0 {
		name = l.segments[n-1].name
	}
	l.mu.RUnlock()
	if appends == synced {
		return through, nil
	}
	if file == nil { // it rests, or is gone: then it must not come again
		if file, err = l.o.FS.Open(name, false); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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

// Trim drops the oldest files while all of them together have more than maxBytes, or
// while their entries are older than before; zero values set no limit. The file that is
// written stays. It returns the number of the last entry dropped so far.
func (l *Log) Trim(maxBytes int64, before time.Time) (trimmed uint64, err error) {
	size, dropped := l.Size(), false
	for len(l.segments) > 1 {
		oldest := l.segments[0]
		if (maxBytes <= 0 || size <= maxBytes) && !oldest.newest.Before(before) {
			break
		}
		// Gone from the list first: a reader that has just found it finds the file missing,
		// and looks again.
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
