package journal

import "context"

// What is in memory is a window over the journal's end: the durable events from the one
// after evicted on, and what is left of the others among them.

// trim drops the oldest records that are not durable until they have at most target
// bytes: less than the limit, so that its cost is shared by the appends to come. The
// caller holds mu.
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

// drop takes a record that is not durable out of the books. The caller holds mu.
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

// evict drops durable events that are on disk from memory, the oldest first, when there
// are more than limit bytes of them; what is not durable and before them goes too. What is
// left is less than the limit, as in trim, so that its cost is shared. The caller holds mu.
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

// shrink frees memory, all of it that can be done without.
func (j *Journal) shrink() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trim(0)
	j.evict(0)
}

// release gives back the memory that the journal counts for. It is not to be used after.
func (j *Journal) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg.Budget.give(j.ephemeral + j.cached)
	j.cfg.Budget.remove(j)
	j.cfg.Budget = nil
	if j.disk != nil {
		j.disk.hold(-j.disk.held)
	}
}

// Restart begins a new epoch with the events, in their order: how what was before goes
// with them is not known. Readers are told, and read the new epoch from its beginning.
func (j *Journal) Restart(epoch uint64, events []*Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg.Budget.give(j.ephemeral + j.cached)
	j.cfg.Epoch, j.records, j.nextSeq = epoch, nil, 1
	j.ephemeral, j.cached, j.horizon, j.noteFloor = 0, 0, 0, j.nextOff
	j.evicted, j.trimmed, j.shownSeq, j.seen = 0, 0, 0, newDedupe()
	if j.disk != nil {
		j.disk.restart()
	}
	for _, r := range events {
		r.kept = r.Ephemeral
		r.tidy, r.others = nil, nil
		j.seen.add(r.ID, false, j.nextSeq)
		r.Pos = Position{epoch, j.nextSeq}
		j.nextSeq++
		j.push(r)
	}
	j.notify()
}

// Close writes what is not written yet, and gives back what the journal holds. Nothing
// may be appended after. It gives up with ctx.
func (j *Journal) Close(ctx context.Context) error { return j.end(ctx, false) }

// Remove is Close for a journal that nobody will want again: it goes from disk.
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
	d.writer.finishSoon(d)
	select {
	case <-d.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return d.degraded
}

// Degraded returns why the journal's disk is behind; nil while it is not.
func (j *Journal) Degraded() error {
	if j.disk == nil {
		return nil
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.disk.degraded
}
