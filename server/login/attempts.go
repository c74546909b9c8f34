package login

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// attempts limits attempts to log in.
type attempts struct {
	now func() time.Time

	mu     sync.Mutex
	all    *rate.Limiter
	by     map[netip.Prefix]*rate.Limiter
	oldest []netip.Prefix // of by, in the order of their first attempt
}

func newAttempts(now func() time.Time) *attempts {
	return &attempts{now: now, all: rate.NewLimiter(rate.Every(overallEvery), overallBurst),
		by: map[netip.Prefix]*rate.Limiter{}}
}

// allow counts an attempt. It returns false if there were too many.
func (a *attempts) allow(remote string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, now := prefixOf(remote), a.now()
	own := a.by[of]
	if own == nil {
		if len(a.oldest) >= maxAddresses {
			delete(a.by, a.oldest[0])
			a.oldest = a.oldest[1:]
		}
		own = rate.NewLimiter(rate.Every(addressEvery), addressBurst)
		a.by[of] = own
		a.oldest = append(a.oldest, of)
	}
	return own.AllowN(now, 1) && a.all.AllowN(now, 1)
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
