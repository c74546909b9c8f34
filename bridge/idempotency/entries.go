package idempotency

import (
	"container/list"
	"context"
	"crypto/sha256"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// add adds the entry of a new request. The caller holds mu.
func (s *Store) add(k backend.Key, request [sha256.Size]byte) *entry {
	e := &entry{key: k, request: request, expires: s.now().Add(Keep), done: make(chan struct{})}
	s.put(e)
	return e
}

// put adds an entry and replaces one with the same key. The caller holds mu.
func (s *Store) put(e *entry) {
	if before := s.entries[e.key]; before != nil {
		s.remove(before)
	}
	t := s.tenants[e.key.Tenant]
	if t == nil {
		t = &tenant{}
		s.tenants[e.key.Tenant] = t
	}
	s.entries[e.key] = e
	e.place = t.insert(e)
	e.size = Overhead + int64(len(e.since))
	s.count(e, 1, e.size)
}

// insert adds an entry in the order of expiry. Nearly always that is at the end.
func (t *tenant) insert(e *entry) *list.Element {
	for at := t.order.Back(); at != nil; at = at.Prev() {
		if !at.Value.(*entry).expires.After(e.expires) {
			return t.order.InsertAfter(e, at)
		}
	}
	return t.order.PushFront(e)
}

// remove deletes an entry. The caller holds mu.
func (s *Store) remove(e *entry) {
	if s.entries[e.key] != e {
		return
	}
	s.count(e, -1, -e.size)
	delete(s.entries, e.key)
	t := s.tenants[e.key.Tenant]
	t.order.Remove(e.place)
	if t.order.Len() == 0 {
		delete(s.tenants, e.key.Tenant)
	}
}

// resize sets the counted size of an entry to that of its answer. The caller holds mu.
func (s *Store) resize(e *entry, answer int64) {
	if s.entries[e.key] != e {
		return
	}
	size := Overhead + int64(len(e.since)) + answer
	s.count(e, 0, size-e.size)
	e.size = size
}

func (s *Store) count(e *entry, requests int, bytes int64) {
	t := s.tenants[e.key.Tenant]
	t.used.add(requests, bytes)
	t.kinds[kindOf(e.key)].add(requests, bytes)
	s.used.add(requests, bytes)
}

// Sweep deletes expired entries of all tenants, and compacts the log.
func (s *Store) Sweep(ctx context.Context) error {
	s.mu.Lock()
	var expired []*entry
	for name := range s.tenants {
		expired = append(expired, s.expire(name)...)
	}
	s.mu.Unlock()
	s.forget(expired)
	if s.log == nil {
		return nil
	}
	return s.log.Compact(ctx)
}

// expire removes the expired entries of a tenant. The caller holds mu, and passes the entries to forget after it has
// released mu.
func (s *Store) expire(name string) (expired []*entry) {
	now := s.now()
	for t := s.tenants[name]; t != nil && t.order.Len() > 0; {
		e := t.order.Front().Value.(*entry)
		if !e.expires.Before(now) {
			break
		}
		s.remove(e)
		expired = append(expired, e)
	}
	return expired
}

// giveWay removes entries without guaranteed lifetime of tenants beyond their quota, by expiry. They come from a
// version without quotas. The caller holds mu.
func (s *Store) giveWay() (dropped []*entry) {
	for name, t := range s.tenants {
		own, _ := s.limits(name)
		for at := t.order.Front(); at != nil; {
			e := at.Value.(*entry)
			at = at.Next()
			beyond := t.used.exceeds(own, 1) || t.kinds[kindOf(e.key)].exceeds(own, kindShare)
			if beyond && e.old && !e.doubt {
				s.remove(e)
				dropped = append(dropped, e)
			}
		}
	}
	return dropped
}

// forget drops entries from the log. The caller does not hold mu.
func (s *Store) forget(entries []*entry) {
	if s.log == nil {
		return
	}
	for _, e := range entries {
		s.log.Forget(e.key, e.expires)
	}
}
