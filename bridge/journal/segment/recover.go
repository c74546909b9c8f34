package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Recovered is the result of opening a log.
type Recovered struct {
	// Mark is the last mark; nil if there is none.
	Mark []byte
	// Unsure reports damage after the last mark: a later mark may have been lost.
	Unsure bool
	// Holes are the ranges of missing entries that precede existing ones, oldest first. The files do not change, so
	// each Open finds the same holes.
	Holes []Hole
	// Skipped counts the invalid bytes before the last valid frame.
	Skipped int64
	// Cut counts the invalid bytes that were removed at the end.
	Cut int64
	// SetAside are files that are unreadable or belong to another log. They were renamed for inspection and are not
	// read again.
	SetAside []string
	// Altered reports that the removed bytes are more than the beginning of a frame, which a crash of the process does
	// not leave.
	Altered bool
	// Doubtful reports that entries after the last one may be missing.
	Doubtful bool

	hole  bool // bytes were skipped since the last whole frame
	after uint64
}

// Hole is a range of missing entries: those after After, up to and including Through.
type Hole struct{ After, Through uint64 }

// Open opens the log of a directory, or starts one with the given epoch if the directory is empty. It calls visit for
// every entry in order; body is valid only during the call. An entry for which visit returns an error is skipped like
// a damaged one. After damage Open continues with the next valid frame: entries keep their numbers, and all readable
// entries are kept. Copies of entries (Options.Copies) replace damaged ones. Open fails only if the file system fails.
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
	// Only a new epoch that was complete before its rename has this name.
	l.epoch = files[len(files)-1].epoch
	first := slices.IndexFunc(files, func(f fileName) bool { return f.epoch == l.epoch })
	older, files := files[:first], files[first:]
	l.last = files[0].base
	for i, file := range files {
		limit := uint64(math.MaxUint64)
		if i+1 < len(files) {
			limit = files[i+1].base
		}
		if err := l.readSegment(file, limit, i+1 == len(files), &found, visit); err != nil {
			return nil, found, err
		}
	}
	sound := !found.Damaged()
	for _, file := range older {
		if sound { // it was replaced, and a crash kept it from being removed
			err = o.FS.RemoveAll(file.name)
		} else {
			err = l.putAside(file.name, &found)
		}
		if err != nil {
			return nil, found, err
		}
	}
	if len(l.segments) == 0 {
		// The epoch has no readable entries left, and the numbers used in it are unknown.
		l.epoch, l.last = max(l.epoch, epoch), 0
		if !sound {
			l.epoch = max(epoch, files[0].epoch+1)
		}
	}
	l.mark = found.Mark
	if len(l.segments) > 0 {
		l.appends++ // an earlier process may have ended before it synced
	}
	return l, found, nil
}

// Damaged reports whether any content differs from what was written.
func (r *Recovered) Damaged() bool {
	return r.Cut > 0 || r.Skipped > 0 || len(r.SetAside) > 0 || len(r.Holes) > 0
}

// skip records invalid bytes after the entry with number last.
func (r *Recovered) skip(bytes int64, last uint64) {
	if !r.hole {
		r.hole, r.after = true, last
	}
	r.Skipped += bytes
	r.Unsure = true
}

// resume records that valid frames follow skipped bytes: entries up to through were written before.
func (r *Recovered) resume(through uint64) {
	if r.hole && through > r.after {
		r.Holes = append(r.Holes, Hole{r.after, through})
	}
	r.hole = false
}

// fileName is the parsed name of a segment's file.
type fileName struct {
	name        string
	epoch, base uint64
}

// list returns the segments in order, and removes incomplete files that a crash left.
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

// readSegment adds a file to the log. No entry in it has a number above limit. The log continues after the last valid
// frame of the last file.
func (l *Log) readSegment(
	name fileName, limit uint64, last bool, found *Recovered, visit func(uint64, []byte) error,
) (err error) {
	if name.base > l.last { // a file is missing, or the end of its predecessor
		found.skip(0, l.last)
		found.resume(name.base)
		l.last = name.base
	}
	size, err := l.o.FS.Size(name.name)
	if err != nil {
		return err
	}
	file, err := l.o.FS.Open(name.name, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scan := newScanner(file, 0, size)
	header, whole := scan.next()
	epoch, mark, isHeader := parseHeader(header)
	switch {
	case scan.err != nil:
		return scan.err
	case whole && isHeader && (epoch != name.epoch || header.number != name.base):
		found.skip(size, l.last)
		return l.putAside(name.name, found)
	case whole && isHeader:
		found.Mark, found.Unsure = append([]byte{}, mark...), false
		found.resume(name.base)
	default:
		scan.at = 0
	}
	s := &segment{name: name.name, base: name.base, last: name.base, newest: l.o.Now()}
	skipped := found.Skipped
	var spoiled File
	if last && l.o.Copies != nil { // the files before it were synced before it was begun
		spoiled = file
	}
	l.readEntries(s, scan, spoiled, limit, found, visit)
	s.damaged = found.Skipped > skipped
	if scan.err != nil {
		return scan.err
	}
	l.last = s.last
	if !last {
		s.size, s.sealed = size, true
		l.segments = append(l.segments, s)
		return nil
	}
	if s.size == 0 { // not one whole frame
		found.skip(0, l.last)
		found.Skipped -= size
		found.Cut += size
		if wrong, err := altered(file, 0, size); wrong || err != nil || size > maxBegun {
			return errors.Join(err, l.putAside(name.name, found))
		}
		return l.o.FS.RemoveAll(name.name) // a killed process had begun it
	}
	l.segments = append(l.segments, s)
	if s.size == size {
		return nil
	}
	found.Skipped -= size - s.size
	found.Cut += size - s.size
	found.Altered, err = altered(file, s.size, size)
	return errors.Join(err, file.Truncate(s.size))
}

// maxBegun bounds a file that a killed process has begun with a part of a header.
const maxBegun = 4 << 10

// altered reports whether the invalid bytes at the end of a file are more than the beginning of a frame.
func altered(file File, from, end int64) (bool, error) {
	head := make([]byte, min(end-from, frameHead))
	if _, err := file.ReadAt(head, from); err != nil && err != io.EOF {
		return false, err
	}
	_, need, _ := parseFrame(head)
	return from+int64(need) <= end, nil
}

// readEntries reads a segment's frames, including those after damage. The segment's size is set to the end of the
// last valid frame. In a file that may be spoiled, copies take the place of missing entries.
func (l *Log) readEntries(
	s *segment, scan *scanner, spoiled File, limit uint64, found *Recovered, visit func(uint64, []byte) error,
) {
	fits := func(f frame) bool {
		return f.kind == kindEntry && f.number > s.last && f.number <= limit || f.kind == kindMark &&
			f.number >= s.last && f.number <= limit
	}
	indexed := int64(-indexEvery)
	s.size = scan.position()
	for scan.position() < scan.end {
		at := scan.position()
		f, ok := scan.next()
		if ok && !fits(f) {
			scan.at -= f.size
			ok = false
		}
		if !ok {
			on := scan.err == nil && scan.resync(fits)
			if scan.err != nil {
				return
			}
			if !on {
				found.skip(scan.end-at, s.last)
				return
			}
			if spoiled != nil {
				if at, scan.err = l.mend(spoiled, s, at, scan, found, visit); scan.err != nil {
					return
				}
			}
			if at < scan.position() {
				found.skip(scan.position()-at, s.last)
			}
			continue
		}
		s.size = scan.position()
		if f.kind == kindMark {
			found.resume(f.number)
			found.Mark, found.Unsure = append([]byte{}, f.body...), false
			s.last = f.number
			continue
		}
		found.resume(f.number - 1)
		if visit(f.number, f.body) != nil {
			unsure := found.Unsure
			found.skip(int64(f.size), s.last)
			found.resume(f.number)
			found.Unsure = unsure
		} else if at-indexed >= indexEvery {
			s.index, indexed = append(s.index, place{f.number, at}), at
		}
		s.last = f.number
	}
}

// putAside renames a file that has no content of the log.
func (l *Log) putAside(name string, found *Recovered) error {
	size, err := l.o.FS.Size(name)
	if err != nil {
		return err
	}
	if size == 0 { // nothing is in it
		return l.o.FS.RemoveAll(name)
	}
	found.SetAside = append(found.SetAside, filepath.Base(name)+setAside)
	return l.o.FS.Rename(name, name+setAside)
}

// temporary is the suffix of an incomplete file.
const temporary = ".tmp"

// Replace replaces the log's content by entries of a new epoch. After a crash the log has either the old or the new
// content. The epoch must be greater than the log's.
func (l *Log) Replace(epoch uint64, entries []Entry) error {
	if epoch <= l.epoch {
		return fmt.Errorf("epoch %d follows epoch %d: epochs must increase", epoch, l.epoch)
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
	l.trust()
	if l.o.SyncFiles {
		if err := l.o.FS.SyncDir(l.dir); err != nil {
			return err
		}
	}
	for _, s := range old {
		// Remaining files are removed at the next open.
		if s.damaged { // the entries in it may be nowhere else
			if gone := l.o.FS.Rename(s.name, s.name+setAside); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		} else {
			err = errors.Join(err, l.o.FS.RemoveAll(s.name))
		}
	}
	return err
}

// Renew rewrites the current file from its readable content: after a failed sync it is unknown which of its bytes are
// on disk.
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
	err = WriteFile(l.o.FS, s.name, data[:s.size], true)
	if err == nil {
		l.trust()
	}
	return err
}

// trust lets syncs succeed again.
func (l *Log) trust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = nil
}

// Unsure reports whether a sync has failed since the last Renew.
func (l *Log) Unsure() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.unsure != nil
}
