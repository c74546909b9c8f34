package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"
)

// ErrDamaged reports that a file no longer holds what was written to it.
var ErrDamaged = errors.New("the log's file is damaged")

// Read calls f for the entries after a number, in order, until f returns false. The body
// is valid during the call only. What Trim drops meanwhile is passed over.
func (l *Log) Read(after uint64, f func(number uint64, body []byte) bool) error {
	for {
		s, from, end, last := l.find(after)
		if s == nil {
			return nil
		}
		more, err := l.readFrom(s.name, from, end, &after, f)
		if errors.Is(err, fs.ErrNotExist) {
			if again, _, _, _ := l.find(after); again == s {
				return err
			}
			continue // it has been dropped
		}
		if err != nil || !more {
			return err
		}
		if after < last {
			return fmt.Errorf("%w: entry %d not found", ErrDamaged, last)
		}
	}
}

// find returns the segment in which the first entry after a number is, and where to look
// for it.
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

// readFrom reads a part of a file. It moves after along.
func (l *Log) readFrom(name string, from, end int64, after *uint64, f func(uint64, []byte) bool) (more bool, err error) {
	file, err := l.o.FS.Open(name, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scan := newScanner(file, from, end)
	for {
		fr, ok := scan.next()
		if !ok {
			return true, scan.err
		}
		if fr.kind != kindEntry || fr.number <= *after {
			continue
		}
		*after = fr.number
		if !f(fr.number, fr.body) {
			return false, nil
		}
	}
}
