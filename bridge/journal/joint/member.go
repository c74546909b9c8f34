package joint

import (
	"errors"
	"sort"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Member is a log whose newest entries may be in the joint log: its tail. Changes of the log (Append, Replace, Trim,
// Move) move the tail first where they need it. After a failed sync the next of them stores again what was not made
// safe.
type Member struct {
	key   string
	joint *Log
	own   *segment.Log
	// guard calls f while the member's owner may change the log, else it returns an error.
	guard func(f func() error) error

	mu    sync.Mutex
	tail  []held
	bytes int // of the tail
	// moved is the number in the joint log of the oldest entry that was moved since the own log was synced; 0
	// without one.
	moved   uint64
	newest  uint64 // the number in the joint log of its newest entry
	changes uint64 // counts the appends to the own log
	moves   uint64 // counts those of them that moved a tail
	owed    bool   // the own log has what a sync of the joint log does not cover
	apart   bool   // it is left to Finish
}

// Attach makes a log a member, with what the joint log has for it. It calls visit for these entries as segment.Open
// does for the others, and completes found. Without visit the log is not to be used: the caller calls Finish.
func (l *Log) Attach(
	key string, own *segment.Log, found *segment.Recovered, guard func(func() error) error,
	visit func(number uint64, body []byte) error,
) *Member {
	m := &Member{key: key, joint: l, own: own, guard: guard, apart: visit == nil}
	l.mu.Lock()
	defer l.mu.Unlock()
	found.Doubtful = l.damaged
	found.Altered = l.altered
	entries := l.inherited[key]
	delete(l.inherited, key)
	if old := l.members[key]; old != nil {
		entries, m.moved = old.release()
		delete(l.members, key)
	}
	last := own.Last()
	var tail []held
	for _, h := range entries {
		switch {
		case h.epoch != own.Epoch() || own.Size() == 0:
			continue // the log was replaced or deleted
		case h.entry.Number <= last:
			if m.moved == 0 {
				m.moved = h.at
			}
			continue
		case h.prev > last:
			found.Holes = append(found.Holes, segment.Hole{After: last, Through: h.prev})
		}
		if visit != nil && visit(h.entry.Number, h.body(nil)) != nil {
			found.Holes = append(found.Holes, segment.Hole{After: last, Through: h.entry.Number})
		} else {
			tail = append(tail, h)
		}
		last = h.entry.Number
	}
	l.adopt(m, tail)
	if m.moved != 0 {
		l.members[key] = m
	}
	return m
}

// body appends the stored form of an entry.
func (h *held) body(dst []byte) []byte { return append(append(dst, h.entry.Head...), h.entry.Body...) }

func (h *held) size() int { return len(h.entry.Head) + len(h.entry.Body) }

// adopt adds entries behind the tail.
func (m *Member) adopt(entries []held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes := 0
	for i := range entries {
		bytes += entries[i].size()
	}
	m.tail = append(m.tail, entries...)
	m.count(bytes)
	m.newest = entries[len(entries)-1].at
}

// count changes the size of the tail. The caller holds mu.
func (m *Member) count(bytes int) {
	m.bytes += bytes
	m.joint.tails.Add(int64(bytes))
}

// dropTail empties the tail. The caller holds mu.
func (m *Member) dropTail() {
	if len(m.tail) > 0 {
		m.tail = nil
		m.count(-m.bytes)
	}
}

// release takes from a member what it has in the joint log.
func (m *Member) release() (tail []held, moved uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tail, moved = m.tail, m.moved
	m.dropTail()
	m.moved = 0
	return tail, moved
}

// first returns the number in the joint log of the oldest entry that the member needs there, 0 without one.
func (m *Member) first() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == 0 && len(m.tail) > 0 {
		return m.tail[0].at
	}
	return m.moved
}

// oldest returns the number in the joint log of the tail's first entry, 0 without one, and the tail's size.
func (m *Member) oldest() (at uint64, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tail) == 0 {
		return 0, 0
	}
	return m.tail[0].at, int64(m.bytes)
}

// unsafe reports whether moved entries cannot leave the joint log because a sync of the own log has failed.
func (m *Member) unsafe() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved != 0 && m.own.Unsure()
}

func (m *Member) movedFrom() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved
}

// Full reports whether the member's tail is as long as it may be.
func (m *Member) Full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(m.bytes) >= m.joint.limits.Tail
}

// Covered returns the number of the last entry, and whether a sync of the joint log makes all entries survive a crash.
func (m *Member) Covered() (last uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last(), !m.owed
}

// last is Last. The caller holds mu.
func (m *Member) last() uint64 {
	if n := len(m.tail); n > 0 {
		return m.tail[n-1].entry.Number
	}
	return m.own.Last()
}

// Last returns the number of the last entry.
func (m *Member) Last() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last()
}

// Epoch returns the log's epoch.
func (m *Member) Epoch() uint64 { return m.own.Epoch() }

// Trimmed returns the number of the last dropped entry, 0 if there is none.
func (m *Member) Trimmed() uint64 { return m.own.Trimmed() }

// Size returns the size of the log in bytes.
func (m *Member) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own.Size() + int64(m.bytes)
}

// Append appends entries to the member's own log, behind the tail, which is moved.
func (m *Member) Append(entries []segment.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return m.write(entries)
}

// Move appends the tail to the member's own log, and stores again what a failed sync did not make safe.
func (m *Member) Move() error {
	return m.guard(m.move)
}

// move is Move for the guard's holder. It leaves no file open: what follows goes to the joint log first.
func (m *Member) move() error { return errors.Join(m.write(nil), m.own.Rest()) }

// Finish moves the tail, syncs the own log and closes its file. It may take long: Tidy does not wait for it.
func (m *Member) Finish() error {
	moved := false
	err := m.guard(func() error {
		moved = true
		return m.move()
	})
	if !moved { // nothing changes the log any more
		err = errors.Join(err, m.own.Rest())
	}
	err = errors.Join(err, m.SyncOwn())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apart = false
	return err
}

// isApart reports whether Finish moves the tail.
func (m *Member) isApart() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.apart
}

// write appends the tail and entries to the own log.
func (m *Member) write(entries []segment.Entry) error {
	tail := m.currentTail()
	all := entries
	if len(tail) > 0 {
		all = make([]segment.Entry, 0, len(tail)+len(entries))
		for i := range tail {
			all = append(all, tail[i].entry)
		}
		all = append(all, entries...)
	}
	var err error
	switch {
	case len(all) > 0:
		err = m.own.Append(all) // which renews the log
	case m.own.Unsure():
		return m.own.Renew()
	default:
		return nil
	}
	if err == nil {
		m.wrote(len(tail) > 0, len(entries) > 0)
	}
	return err
}

func (m *Member) currentTail() []held {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tail
}

// wrote records an append to the own log, of the tail or of further entries.
func (m *Member) wrote(moved, further bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.owed = m.owed || further
	if moved && len(m.tail) > 0 { // else it was forgotten meanwhile
		m.moves++
		if m.moved == 0 && m.joint.o.SyncFiles {
			m.moved = m.tail[0].at
		}
		m.dropTail()
	}
}

// Sync makes all entries survive a crash of the machine, and returns the number of the last one.
func (m *Member) Sync() (through uint64, err error) {
	m.mu.Lock()
	through = m.last()
	tail, own := len(m.tail) > 0, m.owed
	joint := (tail || m.moved != 0) && m.joint.synced.Load() < m.newest
	m.mu.Unlock()
	if joint {
		err := m.joint.Sync()
		if err != nil && tail {
			return 0, err
		}
		own = own || err != nil
	}
	if own {
		return through, m.SyncOwn()
	}
	return through, nil
}

// SyncOwn syncs the member's own log, after which it needs nothing of what was moved.
func (m *Member) SyncOwn() error {
	m.mu.Lock()
	changes, moves := m.changes, m.moves
	m.mu.Unlock()
	_, err := m.own.Sync()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if m.changes == changes {
		m.owed = false
	}
	if m.moves == moves {
		m.moved = 0
	}
	return nil
}

// Read is that of segment.Log.
func (m *Member) Read(after uint64, f func(number uint64, body []byte) bool) error {
	tail := m.currentTail() // before the own log, where it can be before that is read
	more := true
	err := m.own.Read(after, func(number uint64, body []byte) bool {
		after, more = number, f(number, body)
		return more
	})
	if err != nil || !more {
		return err
	}
	var body []byte
	i := sort.Search(len(tail), func(i int) bool { return tail[i].entry.Number > after })
	for ; i < len(tail) && more; i++ {
		body = tail[i].body(body[:0])
		more = f(tail[i].entry.Number, body)
	}
	return nil
}

// Replace is that of segment.Log. It drops the tail.
func (m *Member) Replace(epoch uint64, entries []segment.Entry) error {
	if err := m.own.Replace(epoch, entries); err != nil {
		return err
	}
	m.release()
	return nil
}

// Trim is that of segment.Log.
func (m *Member) Trim(maxBytes int64, before time.Time) (trimmed uint64, err error) {
	if maxBytes > 0 && m.Size() > maxBytes {
		if err := m.write(nil); err != nil {
			return m.Trimmed(), err
		}
	}
	return m.own.Trim(maxBytes, before)
}

// Rest closes the own log's file. A tail stays.
func (m *Member) Rest() error { return m.own.Rest() }
