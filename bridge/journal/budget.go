package journal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxMemoryBytes is the recommended limit for a Budget.
const DefaultMaxMemoryBytes = 512 << 20

// Budget bounds the memory of all journals of a process. Above the limit the journals used least recently drop
// records that they can read from disk or that are ephemeral. Durable events without a log count too, but are never
// dropped.
type Budget struct {
	limit int64
	used  atomic.Int64
	kick  chan struct{} // capacity 1
	counters

	mu       sync.Mutex
	journals map[*Journal]struct{}
}

// NewBudget returns a budget with a limit in bytes. The limit has no effect until Run is called.
func NewBudget(limit int) *Budget {
	return &Budget{limit: int64(limit), kick: make(chan struct{}, 1), journals: map[*Journal]struct{}{}}
}

// Used returns how many bytes the journals have in memory.
func (b *Budget) Used() int64 { return b.used.Load() }

// Run enforces the limit until ctx ends.
func (b *Budget) Run(ctx context.Context) {
	for {
		select {
		case <-b.kick:
			b.enforce()
			if b.used.Load() <= b.limit {
				continue
			}
			select { // it is no use to look again at once
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// enforce frees memory until a quarter of the limit is free or no journal can free more.
func (b *Budget) enforce() {
	type aged struct {
		j    *Journal
		used uint64
	}
	b.mu.Lock()
	list := make([]aged, 0, len(b.journals))
	for j := range b.journals {
		list = append(list, aged{j: j})
	}
	b.mu.Unlock()
	for i := range list {
		list[i].used = list[i].j.used.Load()
	}
	slices.SortFunc(list, func(a, b aged) int { return cmp.Compare(a.used, b.used) })
	for _, victim := range list {
		if b.used.Load() <= b.limit/4*3 {
			return
		}
		victim.j.shrink()
	}
}

// take adds to the used memory and reports whether it exceeds the limit.
func (b *Budget) take(bytes int) bool { return b.used.Add(int64(bytes)) > b.limit }

// give subtracts from the used memory.
func (b *Budget) give(bytes int) { b.used.Add(-int64(bytes)) }

// relieve requests a run of enforce. It does nothing if b is nil.
func (b *Budget) relieve() {
	if b == nil {
		return
	}
	select {
	case b.kick <- struct{}{}:
	default: // Run is already signalled
	}
}

// clock orders the uses of journals.
var clock atomic.Uint64

func (b *Budget) add(j *Journal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journals[j] = struct{}{}
}

func (b *Budget) remove(j *Journal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.journals, j)
}
