package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Recovered is what a log was found to hold.
type Recovered struct {
	// Mark is the last mark; nil if there is none.
	Mark []byte
	// Cut is how many bytes at the end were no whole frames and have been cut off.
	Cut int64
	// SetAside are files that could not follow what is before them. They were renamed, so
	// that somebody can look at them, and are not read again.
	SetAside []string
}

// Open opens the log of a directory, or begins one with the epoch when it is empty, and
// calls visit for every entry in order. The body is valid during the call only. An error
// of visit ends the log before that entry, as damage does. What can be read is kept;
// Open fails only when the file system does.
func Open(dir string, epoch uint64, o Options, visit func(number uint64, body []byte) error) (*Log, Recovered, error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{dir: dir, o: o, epoch: epoch}
	var found Recovered
	files, err := l.list()
	if err != nil || len(files) == 0 {
		return l, found, err
	}
	// Only a new epoch that was complete when it was renamed into place has this name.
	l.epoch = files[len(files)-1].epoch
	for i, file := range files {
		if file.epoch != l.epoch {
			if err := o.FS.RemoveAll(file.name); err != nil {
				return nil, found, err
			}
			continue
		}
		whole, err := l.readSegment(file, &found, visit)
		if err != nil {
			return nil, found, err
		}
		if whole {
			continue
		}
		for _, rest := range files[i+1:] {
			if err := l.putAside(rest.name, &found); err != nil {
				return nil, found, err
			}
		}
		break
	}
	if len(l.segments) == 0 {
		// Nothing is left of that epoch; what a file that was begun says, somebody may have gone
		// on with in memory.
		l.epoch = max(l.epoch, epoch)
	}
	l.mark = found.Mark
	return l, found, nil
}

// fileName is what the name of a segment's file says.
type fileName struct {
	name        string
	epoch, base uint64
}

// list finds the segments, in order, and removes what a crash left unfinished.
func (l *Log) list() ([]fileName, error) {
	entries, err := l.o.FS.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []fileName
	for _, e := range entries {
		path := filepath.Join(l.dir, e.Name())
		if strings.HasSuffix(e.Name(), suffix+temporary) {
			if err := l.o.FS.RemoveAll(path); err != nil {
				return nil, err
			}
			continue
		}
		stem, ok := strings.CutSuffix(e.Name(), suffix)
		first, second, both := strings.Cut(stem, "-")
		epoch, err1 := strconv.ParseUint(first, 16, 64)
		base, err2 := strconv.ParseUint(second, 16, 64)
		if ok && both && err1 == nil && err2 == nil {
			files = append(files, fileName{path, epoch, base})
		}
	}
	slices.SortFunc(files, func(a, b fileName) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.base, b.base))
	})
	return files, nil
}

// readSegment takes a file into the log as far as it is good, and reports whether it was
// good to its end.
func (l *Log) readSegment(name fileName, found *Recovered, visit func(uint64, []byte) error) (whole bool, err error) {
	size, err := l.o.FS.Size(name.name)
	if err != nil {
		return false, err
	}
	file, err := l.o.FS.Open(name.name, true)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scan := newScanner(file, 0, size)
	header, ok := scan.next()
	if scan.err != nil {
		return false, scan.err
	}
	epoch, mark, good := parseHeader(header)
	first := len(l.segments) == 0
	if !ok || !good || epoch != name.epoch || header.number != name.base || !first && header.number != l.last {
		return false, l.putAside(name.name, found)
	}
	if first {
		l.last = name.base
	}
	found.Mark = append([]byte{}, mark...)
	s := &segment{name: name.name, base: name.base, last: name.base, newest: l.o.Now()}
	l.readEntries(s, scan, found, visit)
	if scan.err != nil {
		return false, scan.err
	}
	l.segments, l.last = append(l.segments, s), s.last
	if s.size < size {
		found.Cut += size - s.size
		return false, file.Truncate(s.size)
	}
	return true, nil
}

// readEntries reads a segment's frames up to the first that does not belong there.
func (l *Log) readEntries(s *segment, scan *scanner, found *Recovered, visit func(uint64, []byte) error) {
	indexed := int64(-indexEvery)
	for {
		s.size = scan.position()
		f, ok := scan.next()
		if !ok {
			return
		}
		switch f.kind {
		case kindMark:
			found.Mark = append([]byte{}, f.body...)
		case kindEntry:
			if f.number <= s.last || visit(f.number, f.body) != nil {
				return
			}
			if s.size-indexed >= indexEvery {
				s.index, indexed = append(s.index, place{f.number, s.size}), s.size
			}
			s.last = f.number
		default:
			return
		}
	}
}

// putAside renames a file that does not belong to the log.
func (l *Log) putAside(name string, found *Recovered) error {
	size, err := l.o.FS.Size(name)
	if err != nil {
		return err
	}
	if size == 0 { // made, and not written to
		return l.o.FS.RemoveAll(name)
	}
	found.SetAside = append(found.SetAside, filepath.Base(name)+setAside)
	return l.o.FS.Rename(name, name+setAside)
}

// temporary ends the name of a file that is not complete.
const temporary = ".tmp"

// Replace puts entries of a new epoch in the place of all that the log holds. After a
// crash there is the one or the other. The epoch must be greater than the log's.
func (l *Log) Replace(epoch uint64, entries []Entry) error {
	if epoch <= l.epoch {
		return fmt.Errorf("epoch %d comes after epoch %d", epoch, l.epoch)
	}
	fresh := &Log{dir: l.dir, o: l.o, epoch: epoch}
	fresh.o.SegmentBytes = 1 << 62 // one file, so that one rename does it
	s := &segment{name: filepath.Join(l.dir, segmentName(epoch, 0)) + temporary}
	file, err := l.begin(s, epoch, nil)
	if err != nil {
		return err
	}
	fresh.file, fresh.segments = file, []*segment{s}
	err = fresh.Append(entries)
	if err == nil && l.o.SyncFiles {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	name := strings.TrimSuffix(s.name, temporary)
	if err == nil {
		err = l.o.FS.Rename(s.name, name)
	}
	if err != nil {
		return errors.Join(err, l.o.FS.RemoveAll(s.name))
	}
	s.name = name
	if err := l.Rest(); err != nil {
		return err
	}
	l.mu.Lock()
	old := l.segments
	l.epoch, l.segments, l.last, l.mark, l.synced = epoch, fresh.segments, fresh.last, fresh.mark, l.appends
	l.mu.Unlock()
	if l.o.SyncFiles {
		if err := l.o.FS.SyncDir(l.dir); err != nil {
			return err
		}
	}
	for _, s := range old {
		// What stays behind is removed when the log is opened next.
		err = errors.Join(err, l.o.FS.RemoveAll(s.name))
	}
	return err
}

// Renew writes the file that is written anew, from what can be read of it: after a sync
// that failed nobody knows what of it is on the disk.
func (l *Log) Renew() error {
	if len(l.segments) == 0 {
		return nil
	}
	s := l.segments[len(l.segments)-1]
	data, err := ReadFile(l.o.FS, s.name)
	if err != nil {
		return err
	}
	if int64(len(data)) < s.size {
		return fmt.Errorf("%w: %d bytes of %d", ErrDamaged, len(data), s.size)
	}
	if err := l.Rest(); err != nil {
		return err
	}
	return WriteFile(l.o.FS, s.name, data[:s.size], true)
}
