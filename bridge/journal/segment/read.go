package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"
)

// ErrDamaged reports that a file no longer has the content that was written.
var ErrDamaged = errors.New("the log's file is damaged")

// DamageError is an ErrDamaged with the range of missing entries.
type DamageError struct{ Hole }

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: entries %d (exclusive) to %d are missing", ErrDamaged, e.After, e.Through)
}

// Unwrap makes the error an ErrDamaged.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// Read calls f for the entries after a number, in order, until f returns false. body is valid only during the call.
// Entries that Trim drops meanwhile are skipped. If entries are missing, Read returns a DamageError: f has received
// the entries before it, and the caller can continue after the error's Through.
func (l *Log) Read(after uint64, f func(number uint64, body []byte) bool) error {
	for {
		s, from, end, last := l.find(after)
		if s == nil {
			return nil
		}
		more, err := l.readFrom(s.name, from, end, last, &after, f)
		if errors.Is(err, fs.ErrNotExist) {
			if again, _, _, _ := l.find(after); again == s {
				return &DamageError{Hole{after, last}}
			}
			continue // it has been dropped
		}
		if err == nil && more && after < last {
			err = &DamageError{Hole{after, last}}
		}
		if err != nil {
			l.mu.Lock()
			s.damaged = true
			l.mu.Unlock()
		}
		if err != nil || !more {
			return err
		}
	}
}

// ReadPast reads a log like Log.Read, but continues after missing entries.
func ReadPast(l interface {
	Read(after uint64, f func(number uint64, body []byte) bool) error
}, after uint64, f func(number uint64, body []byte) bool,
) error {
	for {
		err := l.Read(after, f)
		damage, damaged := errors.AsType[*DamageError](err)
		if !damaged {
			return err
		}
		after = damage.Through
	}
}

// find returns the segment with the first entry after a number, and the range to search.
func (l *Log) find(after uint64) (s *segment, from, end int64, last uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].last > after })
	if i == len(l.segments) {
		return nil, 0, 0, 0
	}
	s = l.segments[i]
	if k := sort.Search(len(s.index), func(k int) bool { return s.index[k].number > after }); k > 0 {
		from = s.index[k-1].offset
	}
	return s, from, s.size, s.last
}

// readFrom reads a part of a file whose last entry is last. It advances after.
func (l *Log) readFrom(
	name string, from, end int64, last uint64, after *uint64, f func(uint64, []byte) bool,
) (more bool, err error) {
	file, err := l.o.FS.Open(name, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scan := newScanner(file, from, end)
	seen, hole := uint64(0), false
	for {
		fr, ok := scan.next()
		switch {
		case ok:
		case scan.err != nil || scan.position() >= end:
			return true, scan.err
		case !scan.resync(func(fr frame) bool {
			return fr.kind != kindHeader && fr.number >= seen &&
				fr.number <= last
		}):
			return true, scan.err
		default:
			hole = true
			continue
		}
		if fr.kind == kindHeader {
			continue
		}
		before := fr.number // entries through this one are before the frame
		if fr.kind == kindEntry {
			before--
		}
		if hole && before > *after {
			return false, &DamageError{Hole{*after, before}}
		}
		seen, hole = fr.number, false
		if fr.kind != kindEntry || fr.number <= *after {
			continue
		}
		*after = fr.number
		if !f(fr.number, fr.body) {
			return false, nil
		}
	}
}
