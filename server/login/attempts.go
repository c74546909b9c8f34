package login

import (
	"net/netip"
	"sync"
	"time"
)

// Limits of attempts to log in, of each address and of all together.
const (
	addressBurst  = 20
	addressEvery  = time.Second
	overallBurst  = 200
	overallEvery  = time.Second / 20
	maxAddresses  = 1024
	networkPrefix = 64 // of IPv6: one machine has many addresses
)

// attempts limits attempts of a kind. It bounds what attempts cost the server and its audit log. It is no protection
// of secrets, which have 128 random bits: a correct one is accepted above the limits too.
type attempts struct {
	now func() time.Time

	mu     sync.Mutex
	all    bucket
	by     map[netip.Prefix]*bucket
	oldest []netip.Prefix // of by, in the order of their first attempt
}

func newAttempts(now func() time.Time) *attempts {
	return &attempts{now: now, by: map[netip.Prefix]*bucket{}}
}

// take counts an attempt. It returns false, and counts nothing, if there were too many.
func (a *attempts) take(remote string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	own, now := a.of(prefixOf(remote)), a.now()
	own.leak(now, addressEvery)
	a.all.leak(now, overallEvery)
	if own.used+1 > addressBurst || a.all.used+1 > overallBurst {
		return false
	}
	own.used++
	a.all.used++
	return true
}

// give takes an attempt back that was counted and has succeeded.
func (a *attempts) give(remote string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.of(prefixOf(remote))
	own.used = max(0, own.used-1)
	a.all.used = max(0, a.all.used-1)
}

// of returns the bucket of an address. The caller holds mu.
func (a *attempts) of(address netip.Prefix) *bucket {
	own := a.by[address]
	if own == nil {
		if len(a.oldest) >= maxAddresses {
			delete(a.by, a.oldest[0])
			a.oldest = a.oldest[1:]
		}
		own = &bucket{}
		a.by[address] = own
		a.oldest = append(a.oldest, address)
	}
	return own
}

// bucket counts attempts, and forgets one in each interval.
type bucket struct {
	used float64
	at   time.Time
}

// leak forgets the attempts of the time that has passed.
func (b *bucket) leak(now time.Time, every time.Duration) {
	b.used = max(0, b.used-float64(now.Sub(b.at))/float64(every))
	b.at = now
}

// prefixOf returns the network of a "HOST:PORT"; the zero prefix for other texts.
func prefixOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = networkPrefix
	}
	p, _ := addr.Prefix(bits) // the bits fit
	return p
}
