package journal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxMemoryBytes is a good limit for a Budget.
const DefaultMaxMemoryBytes = 512 << 20

// Budget bounds what all journals of a process have in memory together: past the limit
// those that were used least recently give up what they can do without. Durable events
// that no log has are counted too, and stay. A nil Budget bounds nothing.
type Budget struct {
	limit int64
	used  atomic.Int64
	kick  chan struct{} // capacity 1
	counters

	mu       sync.Mutex
	journals map[*Journal]struct{}
}

// NewBudget returns a budget of so many bytes. It bounds nothing before it runs.
func NewBudget(limit int) *Budget {
	return &Budget{limit: int64(limit), kick: make(chan struct{}, 1), journals: map[*Journal]struct{}{}}
}

// Used returns how many bytes the journals have in memory.
func (b *Budget) Used() int64 { return b.used.Load() }

// Run keeps to the budget until ctx ends.
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

// enforce frees memory until a quarter of it is free, or none can be freed.
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

// take counts memory that is used, and reports whether that is too much.
func (b *Budget) take(bytes int) bool {
	return b != nil && b.used.Add(int64(bytes)) > b.limit
}

// give counts memory that is not used any more.
func (b *Budget) give(bytes int) {
	if b != nil {
		b.used.Add(-int64(bytes))
	}
}

// relieve asks for memory to be freed.
func (b *Budget) relieve() {
	if b == nil {
		return
	}
	select {
	case b.kick <- struct{}{}:
	default: // it was asked already
	}
}

// clock orders the uses of journals.
var clock atomic.Uint64

func (b *Budget) add(j *Journal) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journals[j] = struct{}{}
}

func (b *Budget) remove(j *Journal) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.journals, j)
}
