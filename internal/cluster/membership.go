package cluster

import (
	"sync"
	"time"
)

const (
	// DefaultTTL is the default of Config.TTL.
	DefaultTTL = 10 * time.Second
	// minTTL is the shortest lease: the server expires keys with the precision of a second.
	minTTL = 2 * time.Second
)

// timing has the times of a lease.
type timing struct {
	ttl time.Duration // after which the server drops a key that was not renewed
}

// margin is how long before the server may drop the key the node has ended its lease. It covers pauses of the process
// and clocks that differ in speed.
func (t timing) margin() time.Duration { return t.ttl / 4 }

// every is the interval of renewals; two may fail before the lease ends.
func (t timing) every() time.Duration { return t.ttl / 5 }

// until returns when a lease ends for its node. The renewal was sent at that time, and the server dated it later.
func (t timing) until(sentAt time.Duration) time.Duration { return sentAt + t.ttl - t.margin() }

// membership is one lease of a node, from its begin to its end. It is safe for concurrent use.
type membership struct {
	id     string
	timing timing
	now    func() time.Duration
	lost   chan struct{} // closed at the end

	mu    sync.Mutex
	until time.Duration
	ended bool
	timer *time.Timer
}

// newMembership returns a lease whose key was created by a request that was sent at that time.
func newMembership(id string, t timing, now func() time.Duration, sentAt time.Duration) *membership {
	m := &membership{id: id, timing: t, now: now, lost: make(chan struct{}), until: t.until(sentAt)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = time.AfterFunc(m.until-now(), m.check)
	return m
}

// check ends the lease if it has run out, and else checks again when it will have: timers use another clock.
func (m *membership) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.expire() {
		m.timer.Reset(m.until - m.now())
	}
}

// extend notes a renewal that was sent at that time and acknowledged. It does nothing after the end.
func (m *membership) extend(sentAt time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expire() {
		return
	}
	m.until = max(m.until, m.timing.until(sentAt))
	m.timer.Reset(m.until - m.now())
}

// valid reports whether the lease is held. A lease that has run out ends.
func (m *membership) valid() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.expire()
}

// end ends the lease.
func (m *membership) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finish()
}

// expire ends the lease if it has run out, and reports whether it has ended. The caller holds mu.
func (m *membership) expire() bool {
	if !m.ended && m.now() >= m.until {
		m.finish()
	}
	return m.ended
}

// finish ends the lease. The caller holds mu.
func (m *membership) finish() {
	if m.ended {
		return
	}
	m.ended = true
	m.timer.Stop()
	close(m.lost)
}
