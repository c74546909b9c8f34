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

// DropOldest drops the oldest file, unless it is the current file.
func (l *Log) DropOldest() error {
	_, err := l.Trim(l.Size()-1, time.Time{})
	return err
}
