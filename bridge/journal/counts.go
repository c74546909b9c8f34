package journal

import "sync/atomic"

// Counts are what all journals of a budget have seen.
type Counts struct {
	// Events were added; Duplicates were not, since they had been.
	Events, Duplicates int64
	// Trimmed were ephemeral events and notes that had to go; GivenUp were durable events
	// that waited for the disk too long.
	Trimmed, GivenUp int64
	// Gaps were told to readers.
	Gaps int64
}

// counters are Counts while they grow.
type counters struct{ events, duplicates, trimmed, givenUp, gaps atomic.Int64 }

// Counts returns the counts as they are now.
func (b *Budget) Counts() Counts {
	c := &b.counters
	return Counts{
		Events: c.events.Load(), Duplicates: c.duplicates.Load(), Trimmed: c.trimmed.Load(),
		GivenUp: c.givenUp.Load(), Gaps: c.gaps.Load(),
	}
}

// uncounted takes the counts of journals that have no budget. Nobody reads it.
var uncounted counters

// counts are the counters of the journal's budget.
func (j *Journal) counts() *counters {
	if j.cfg.Budget == nil {
		return &uncounted
	}
	return &j.cfg.Budget.counters
}

// Unwritten returns how many bytes of the journal wait for the disk.
func (j *Journal) Unwritten() int64 {
	if j.disk == nil {
		return 0
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return int64(j.disk.bytes)
}
