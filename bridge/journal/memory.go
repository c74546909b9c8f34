package journal

import (
	"context"
	"math"
)

// The records in memory are a window over the journal's end: all durable events after evicted, and the remaining
// ephemeral events and notes among them.

// trim drops the oldest non-durable records until at most target bytes remain. The target is below the limit, so that
// one trim serves many appends. The caller holds mu.
func (j *Journal) trim(target int) {
	kept := make([]*Record, 0, len(j.records))
	for _, r := range j.records {
		if r.durable() || r.Posted || j.ephemeral <= target {
			kept = append(kept, r)
			continue
		}
		j.drop(r)
	}
	j.records = kept
}

// drop updates the counts for a dropped non-durable record. The caller holds mu.
func (j *Journal) drop(r *Record) {
	j.ephemeral -= r.size()
	j.cfg.Budget.give(r.size())
	j.counts().trimmed.Add(1)
	if r.Note != nil {
		j.noteFloor = r.off + 1
	} else {
		j.horizon = max(j.horizon, r.Pos.Seq)
	}
}

// evict drops the oldest durable events that are on disk from memory if they exceed limit bytes, and all non-durable
// records before them. Like trim, it frees more than necessary, so that one call serves many appends. The caller
// holds mu.
func (j *Journal) evict(limit int) {
	if j.disk == nil || j.cached <= limit {
		return
	}
	target := limit / 4 * 3
	cut, left := 0, j.cached
	for i, r := range j.records {
		if left <= target || r.durable() && r.Pos.Seq > j.disk.safe {
			break
		}
		if r.durable() {
			left -= r.size()
			cut = i + 1
		}
	}
	if cut == 0 {
		return
	}
	var posted []*Record
	for _, r := range j.records[:cut] {
		if r.Posted {
			posted = append(posted, r)
			continue
		}
		if !r.durable() {
			j.drop(r)
			continue
		}
		j.cached -= r.size()
		j.cfg.Budget.give(r.size())
		j.evicted = r.Pos.Seq
	}
	j.records = append(posted, j.records[cut:]...)
}

// shrink frees as much memory as possible.
func (j *Journal) shrink() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trim(0)
	j.evict(0)
}

// release returns the journal's memory to the budget. The journal must not be used afterwards.
func (j *Journal) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg.Budget.give(j.ephemeral + j.cached)
	j.cfg.Budget.remove(j)
	j.cfg.Budget = NewBudget(math.MaxInt)
	if j.disk != nil {
		j.disk.hold(-j.disk.held)
	}
}

// Restart begins a new epoch with the given events. Use it if the relation of these events to the old ones is
// unknown. Readers receive a Gap and read the new epoch from its start.
func (j *Journal) Restart(epoch uint64, events []*Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg.Budget.give(j.ephemeral + j.cached)
	j.cfg.Epoch, j.records, j.nextSeq = epoch, nil, 1
	j.ephemeral, j.cached, j.horizon, j.noteFloor = 0, 0, 0, j.nextOff
	j.evicted, j.shownSeq, j.seen = 0, 0, newDedupe()
	if j.disk != nil {
		j.disk.restart()
	}
	for _, r := range events {
		r.kept = r.Ephemeral
		r.tidy, r.others = nil, nil
		j.seen.add(r.ID, false, j.nextSeq)
		r.Pos = Position{Epoch: epoch, Seq: j.nextSeq}
		j.nextSeq++
		j.push(r)
	}
	j.notify()
}

// Close writes the remaining events and releases resources. Nothing may be appended afterwards. Close stops waiting
// when ctx ends.
func (j *Journal) Close(ctx context.Context) error { return j.end(ctx, false) }

// Remove closes the journal and deletes it from disk.
func (j *Journal) Remove(ctx context.Context) error { return j.end(ctx, true) }

func (j *Journal) end(ctx context.Context, remove bool) error {
	defer j.release()
	d := j.disk
	if d == nil {
		return nil
	}
	j.mu.Lock()
	d.closing, d.removing = true, remove
	d.wakeWaiting()
	j.mu.Unlock()
	d.writer.wakeNow(d)
	select {
	case <-d.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return d.degraded
}

// Degraded returns why the journal's disk is behind; nil if it is not.
func (j *Journal) Degraded() error {
	if j.disk == nil {
		return nil
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.disk.degraded
}
