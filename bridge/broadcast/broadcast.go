// Package broadcast hands each published value to every subscriber that accepts it. Each
// subscriber has a bounded queue, so publishing never blocks and a slow subscriber delays
// no other.
//
// A Hub owns its subscriptions and their queues. One mutex in the Hub guards all of them;
// accept functions run while it is held. The package starts no goroutine.
package broadcast

import "sync"

// Overflow says what happens to a full queue when another value is published.
type Overflow int

const (
	// DropOldest removes the oldest value and counts it in Batch.Dropped.
	DropOldest Overflow = iota
	// Reset discards the whole queue and every later value until the subscriber takes its
	// batch, which has Batch.Reset set. The subscriber then reads the current state.
	Reset
)

// Hub distributes values of type T. Call New to make one. It is safe for concurrent use.
type Hub[T any] struct {
	size     int
	overflow Overflow

	mu            sync.Mutex
	subscriptions map[*Subscription[T]]struct{}
}

// Subscription is the queue of one subscriber. It is safe for concurrent use.
type Subscription[T any] struct {
	hub    *Hub[T]
	accept func(T) bool
	signal chan struct{} // capacity 1
	queue  Batch[T]      // guarded by hub.mu
}

// Batch is what a subscription has queued, oldest value first.
type Batch[T any] struct {
	Values []T
	// Dropped counts the values that were removed before Values[0].
	Dropped int64
	// Reset says that values were discarded; Values is then empty.
	Reset bool
}

// New returns a hub whose queues hold up to size values each.
func New[T any](size int, overflow Overflow) *Hub[T] {
	return &Hub[T]{size: size, overflow: overflow, subscriptions: map[*Subscription[T]]struct{}{}}
}

// Subscribe starts a subscription to the values that accept returns true for. The caller
// must Close it. accept runs while the hub is locked: it must not call the hub.
func (h *Hub[T]) Subscribe(accept func(T) bool) *Subscription[T] {
	s := &Subscription[T]{hub: h, accept: accept, signal: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscriptions[s] = struct{}{}
	return s
}

// Active reports whether there are subscriptions.
func (h *Hub[T]) Active() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscriptions) > 0
}

// Publish queues v for the subscriptions that accept it. It never blocks on a subscriber.
func (h *Hub[T]) Publish(v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscriptions {
		if !s.accept(v) {
			continue
		}
		s.queue.add(v, h.size, h.overflow)
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
}

func (b *Batch[T]) add(v T, size int, overflow Overflow) {
	switch {
	case b.Reset:
		return
	case len(b.Values) < size:
	case overflow == Reset:
		*b = Batch[T]{Reset: true}
		return
	default:
		b.Values = b.Values[1:]
		b.Dropped++
	}
	b.Values = append(b.Values, v)
}

// Ready receives a value when the subscription may have something to take.
func (s *Subscription[T]) Ready() <-chan struct{} { return s.signal }

// Take empties the queue and returns what was in it.
func (s *Subscription[T]) Take() Batch[T] {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	batch := s.queue
	s.queue = Batch[T]{}
	return batch
}

// Close ends the subscription. Queued values can still be received.
func (s *Subscription[T]) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subscriptions, s)
}
