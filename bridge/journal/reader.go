package journal

import (
	"errors"
	"sort"
	"sync/atomic"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// GapReason is the reason why events are missing.
type GapReason uint8

const (
	// EphemeralLost: ephemeral events of the range are no longer in memory. The durable events of the range follow.
	EphemeralLost GapReason = iota + 1
	// EpochEnded: the position belongs to an epoch that cannot be related to the current one. The whole current epoch
	// follows.
	EpochEnded
	// Trimmed: durable events of the range are no longer stored, or may have been lost.
	Trimmed
)

// Gap is a range in which events are missing.
type Gap struct {
	From, To Position
	Reason   GapReason
	// NotesLost reports that notes are missing too: the reader must query the state that they reported.
	NotesLost bool
}

// ErrFuture reports a position that this journal has not issued yet.
var ErrFuture = errors.New("position is later than the journal's last")

// Reader is a cursor over a journal. Its methods, except notify, are not safe for concurrent use.
type Reader struct {
	j         *Journal
	off       uint64   // of the last record read
	pos       Position // of the last event passed
	announced uint64   // the horizon that has been told
	lossTold  uint64   // the loss that has been told last ends here
	notes     uint64   // notes before this off are not for this reader

	wake      func()
	asleep    atomic.Bool
	ephemeral bool
}

// NewReader returns a reader that starts after the given position. The zero position starts at the first event. A position
// of another epoch yields a Gap and the whole epoch, also if it is later: readers learn of an epoch before the disk has it,
// and the process may have ended in between. wake is called from any goroutine, once after each Next that returned nothing,
// when there is more to read, and perhaps once for a Next that returned what came meanwhile. It must not block, since the
// journal's lock is held: see Waking. If ephemeral is false, the loss of ephemeral events is not reported. Only notes added
// from now on are delivered. The caller must Close the reader.
func (j *Journal) NewReader(after Position, ephemeral bool, wake func()) (*Reader, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &Reader{j: j, ephemeral: ephemeral, wake: wake, notes: j.nextOff, pos: Position{Epoch: j.cfg.Epoch}}
	switch {
	case after == Position{}:
	case after.Epoch == j.cfg.Epoch && after.Seq >= j.nextSeq:
		return nil, ErrFuture
	case after.Epoch != j.cfg.Epoch:
		r.pos = after // the first look tells
	default:
		r.pos = after
		i := sort.Search(len(j.records), func(i int) bool { return j.records[i].Pos.Seq > after.Seq })
		r.off = j.nextOff - 1
		if i < len(j.records) {
			r.off = j.records[i].off - 1
		}
	}
	j.readers[r] = struct{}{}
	return r, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	delete(r.j.readers, r)
}

// Position returns the reader's current position.
func (r *Reader) Position() Position { return r.pos }

// Next appends the next records to dst, until their JSON exceeds maxBytes or there is no more, and returns a gap that
// precedes them. If it returns neither, the reader is at the end and wake will be called.
func (r *Reader) Next(dst []*Record, maxBytes int) ([]*Record, *Gap) {
	records, gap := r.next(dst, maxBytes)
	if len(records) > 0 || gap != nil {
		return records, gap
	}
	r.asleep.Store(true)
	// Records appended between the read and the store have not woken the reader.
	if records, gap = r.next(dst, maxBytes); len(records) > 0 || gap != nil {
		r.asleep.Store(false)
	}
	return records, gap
}

func (r *Reader) next(dst []*Record, maxBytes int) ([]*Record, *Gap) {
	j := r.j
	j.mu.RLock()
	if gap := r.gap(); gap != nil {
		j.mu.RUnlock()
		return dst, gap
	}
	if r.pos.Seq < j.evicted {
		through := j.evicted
		if l := r.nextLoss(); l.to > 0 { // the gap is reported in its place
			through = min(through, l.from)
		}
		j.mu.RUnlock()
		return r.nextOnDisk(dst, through, maxBytes)
	}
	defer j.mu.RUnlock()
	records := j.records
	i := sort.Search(len(records), func(i int) bool { return records[i].off > r.off })
	for bytes := 0; i < len(records) && bytes < maxBytes && records[i].off <= j.shownOff; i++ {
		rec := records[i]
		r.off = rec.off
		if rec.Note != nil && rec.off < r.notes && !rec.Posted {
			continue
		}
		if rec.Note == nil || rec.Posted && rec.Pos.Seq > r.pos.Seq {
			r.pos = rec.Pos
		}
		bytes += len(rec.JSON)
		dst = append(dst, rec)
	}
	if i == len(records) || records[i].off > j.shownOff {
		r.pos.Seq = max(r.pos.Seq, j.shownSeq) // numbers at the end may have no event
	}
	return dst, nil
}

// nextOnDisk reads records that are no longer in memory. It reports unreadable records as a gap.
func (r *Reader) nextOnDisk(dst []*Record, through uint64, maxBytes int) ([]*Record, *Gap) {
	epoch, bytes, last, before := r.pos.Epoch, 0, r.pos.Seq, len(dst)
	done := true
	err := r.j.disk.log.Read(last, func(n uint64, body []byte) bool {
		if done = n > through; done {
			return false
		}
		rec, err := ParseRecord(Position{Epoch: epoch, Seq: n}, body)
		if err != nil {
			return true // a loss, since it could not be read when the log was opened
		}
		last = n
		bytes += len(rec.JSON)
		dst = append(dst, rec)
		done = n == through
		return bytes < maxBytes && !done
	})
	if r.j.hasLeft(r.pos) { // what was read may be of another epoch, or lack files: the gap comes first
		return r.next(dst[:before], maxBytes)
	}
	damage, damaged := errors.AsType[*segment.DamageError](err)
	if damaged {
		r.j.damaged(damage)
		// The events before the damage come first, then the gap, then the events after it.
		if last = max(last, min(damage.After, through)); len(dst) == before &&
			r.lossTold >= min(damage.Through, through) {
			last = min(damage.Through, through)
		}
		err, done = nil, false
	}
	r.pos.Seq = last
	if err != nil {
		r.j.disk.writer.cfg.Logger.Error("reading events from disk failed", "directory", r.j.disk.dir, "error", err)
		gap := &Gap{From: r.pos, To: Position{Epoch: epoch, Seq: through}, Reason: Trimmed}
		if len(dst) == 0 {
			r.pos.Seq = through
			r.j.counts().gaps.Add(1)
			return dst, gap
		}
		return dst, nil // the next look comes upon it first
	}
	if done {
		r.pos.Seq = max(last, through)
	}
	if len(dst) == 0 { // there was none
		return r.next(dst, maxBytes)
	}
	return dst, nil
}

// hasLeft reports whether the epoch of a position has ended, or events after it were dropped.
func (j *Journal) hasLeft(p Position) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return p.Epoch != j.cfg.Epoch || p.Seq < j.dropped()
}

// dropped returns the number of the last event that is neither in memory nor, because of the retention, on disk. The caller
// holds mu.
func (j *Journal) dropped() uint64 {
	if j.evicted == 0 { // as without a log
		return 0
	}
	return min(j.evicted, j.disk.log.Trimmed())
}

// damaged records that events have become unreadable.
func (j *Journal) damaged(damage *segment.DamageError) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.disk.lose(damage.After, damage.Through) {
		j.disk.writer.cfg.Logger.Error("events are damaged on disk", "directory", j.disk.dir, "error", damage)
		j.disk.wake()
	}
}

// gap returns a loss ahead of the reader that was not reported yet. The caller holds the journal's lock.
func (r *Reader) gap() (gap *Gap) {
	j := r.j
	if r.pos.Epoch != j.cfg.Epoch {
		gap = &Gap{From: r.pos, To: Position{Epoch: j.cfg.Epoch}, Reason: EpochEnded}
		r.pos, r.off, r.announced, r.lossTold = gap.To, 0, j.horizon, 0
	} else {
		gap = r.missing()
	}
	notesLost := max(r.notes, r.off+1) < j.noteFloor
	lost := r.ephemeral && r.pos.Seq < j.horizon && r.announced < j.horizon
	if gap == nil && (lost || notesLost) {
		gap = &Gap{From: r.pos, To: Position{Epoch: j.cfg.Epoch, Seq: max(j.horizon, r.pos.Seq)}, Reason: EphemeralLost}
		r.announced = j.horizon
	}
	if gap == nil {
		return nil
	}
	j.counts().gaps.Add(1)
	gap.NotesLost = notesLost
	if notesLost {
		r.notes = j.noteFloor
	}
	return gap
}

// missing returns a gap for durable events that are no longer stored or may have been lost, once the reader reaches
// their place.
func (r *Reader) missing() *Gap {
	j := r.j
	if through := j.dropped(); r.pos.Seq < through {
		gap := &Gap{From: r.pos, To: Position{Epoch: j.cfg.Epoch, Seq: through}, Reason: Trimmed}
		r.pos = gap.To
		return gap
	}
	l := r.nextLoss()
	if l.to == 0 || l.from > r.pos.Seq {
		return nil
	}
	r.lossTold = l.to
	return &Gap{From: r.pos, To: Position{Epoch: j.cfg.Epoch, Seq: l.to}, Reason: Trimmed}
}

// nextLoss returns the next unreported loss ahead of the reader; zero if there is none. The caller holds the
// journal's lock.
func (r *Reader) nextLoss() loss {
	j := r.j
	if j.disk == nil {
		return loss{}
	}
	for _, l := range j.disk.losses {
		// Events in memory are not lost for this reader.
		if to := min(l.to, max(j.evicted, j.disk.start)); to > r.lossTold && to > r.pos.Seq {
			return loss{l.from, to}
		}
	}
	return loss{}
}

// notify wakes the reader if it sleeps. The journal's lock is held.
func (r *Reader) notify() {
	if r.asleep.CompareAndSwap(true, false) {
		r.wake()
	}
}
