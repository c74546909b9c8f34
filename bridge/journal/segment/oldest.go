package segment

import "time"

// Oldest returns the number of the last entry in the oldest file. It returns false if that is the current file or if
// there is none.
func (l *Log) Oldest() (last uint64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) < 2 {
		return 0, false
	}
	return l.segments[0].last, true
}

// Seal has the next Append begin a file, so that the current one can be dropped, unless that has no entries. It must not
// overlap with Append.
func (l *Log) Seal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.segments); n > 0 {
		s := l.segments[n-1]
		s.sealed = s.last > s.base
	}
}

// DropOldest drops the oldest file, unless it is the current file.
func (l *Log) DropOldest() error {
	_, err := l.Trim(l.Size()-1, time.Time{})
	return err
}
