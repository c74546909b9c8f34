package idempotency

import (
	"container/list"
	"context"
	"crypto/sha256"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// add adds the entry of a new request. The caller holds mu.
func (r *Runner) add(k backend.Key, request [sha256.Size]byte) *entry {
	e := &entry{key: k, request: request, expires: time.Now().Add(Keep), done: make(chan struct{})}
	r.put(e)
	return e
}

// put adds an entry and replaces one with the same key. The caller holds mu.
func (r *Runner) put(e *entry) {
	if before := r.entries[e.key]; before != nil {
		r.remove(before)
	}
	t := r.tenants[e.key.Tenant]
	if t == nil {
		t = &tenant{}
		r.tenants[e.key.Tenant] = t
	}
	r.entries[e.key] = e
	e.place = t.insert(e)
	e.size = Overhead + int64(len(e.since))
	r.count(e, 1, e.size)
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
func (r *Runner) remove(e *entry) {
	if r.entries[e.key] != e {
		return
	}
	r.count(e, -1, -e.size)
	delete(r.entries, e.key)
	t := r.tenants[e.key.Tenant]
	t.order.Remove(e.place)
	if t.order.Len() == 0 {
		delete(r.tenants, e.key.Tenant)
	}
}

// resize sets the counted size of an entry to that of its answer. The caller holds mu.
func (r *Runner) resize(e *entry, answer int64) {
	if r.entries[e.key] != e {
		return
	}
	size := Overhead + int64(len(e.since)) + answer
	r.count(e, 0, size-e.size)
	e.size = size
}

func (r *Runner) count(e *entry, requests int, bytes int64) {
	t := r.tenants[e.key.Tenant]
	t.used.add(requests, bytes)
	t.kinds[kindOf(e.key)].add(requests, bytes)
	r.used.add(requests, bytes)
}

// sweep deletes expired entries of all tenants, and compacts the log.
func (r *Runner) sweep(ctx context.Context) error {
	r.mu.Lock()
	var expired []*entry
	for name := range r.tenants {
		expired = append(expired, r.expire(name)...)
	}
	r.mu.Unlock()
	r.forget(expired)
	if r.requests == nil {
		return nil
	}
	return r.requests.Compact(ctx)
}

// expire removes the expired entries of a tenant. The caller holds mu, and passes the entries to forget after it has
// released mu.
func (r *Runner) expire(name string) (expired []*entry) {
	now := time.Now()
	for t := r.tenants[name]; t != nil && t.order.Len() > 0; {
		e := t.order.Front().Value.(*entry)
		if !e.expires.Before(now) {
			break
		}
		r.remove(e)
		expired = append(expired, e)
	}
	return expired
}

// giveWay removes entries without guaranteed lifetime of tenants beyond their quota, by expiry. They come from a
// version without quotas. The caller holds mu.
func (r *Runner) giveWay() (dropped []*entry) {
	for name, t := range r.tenants {
		own, _ := r.limits(name)
		for at := t.order.Front(); at != nil; {
			e := at.Value.(*entry)
			at = at.Next()
			beyond := t.used.exceeds(own, 1) || t.kinds[kindOf(e.key)].exceeds(own, kindShare)
			if beyond && e.old && !e.doubt {
				r.remove(e)
				dropped = append(dropped, e)
			}
		}
	}
	return dropped
}

// forget drops entries from the log. The caller does not hold mu.
func (r *Runner) forget(entries []*entry) {
	if r.requests == nil {
		return
	}
	for _, e := range entries {
		r.requests.Forget(e.key, e.expires)
	}
}
