package journal

import "sync/atomic"

// Counts are totals over all journals of a budget.
type Counts struct {
	// Events counts added events. Duplicates counts events that were rejected because their id was known.
	Events, Duplicates int64
	// Trimmed counts ephemeral events and notes dropped for space, GivenUp durable events that waited too long for
	// the disk.
	Trimmed, GivenUp int64
	// Gaps counts the gaps reported to readers.
	Gaps int64
}

// counters holds the running values of Counts.
type counters struct{ events, duplicates, trimmed, givenUp, gaps atomic.Int64 }

// Counts returns the current totals.
func (b *Budget) Counts() Counts {
	c := &b.counters
	return Counts{
		Events: c.events.Load(), Duplicates: c.duplicates.Load(), Trimmed: c.trimmed.Load(),
		GivenUp: c.givenUp.Load(), Gaps: c.gaps.Load(),
	}
}

// counts are the counters of the journal's budget.
func (j *Journal) counts() *counters { return &j.cfg.Budget.counters }

// Unwritten returns how many bytes of the journal wait for the disk.
func (j *Journal) Unwritten() int64 {
	if j.disk == nil {
		return 0
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return int64(j.disk.bytes)
}
