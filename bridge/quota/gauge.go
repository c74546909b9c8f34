package quota

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// retryAfter is the suggested time before a retry if other calls must end first.
const retryAfter = time.Second

// Exceeded returns the error for a reached limit. name is the limit's name; the limit is included unless it is 0.
func Exceeded(name string, limit int64, everybody bool, retry time.Duration) error {
	whose, where := "the tenant's", "tenants.NAME.limits."+name
	if everybody {
		whose, where = "the server's", "limits."+name
	}
	what := name
	if limit > 0 {
		what = fmt.Sprintf("%s of %d", name, limit)
	}
	return fault.New(fault.LimitExceeded, "%s limit %s is reached; the policy sets it as %s", whose, what, where).With("limit", name).
		With("setting", where).WithRetry(retry)
}

// Limit is a limit for a tenant and one for all tenants together. Zero sets no limit.
type Limit struct {
	Name            string
	Tenant, Overall int
	// Fixed says that no policy sets the limit.
	Fixed bool
}

// exceeded returns the error for the reached limit of the tenant, or of everybody.
func (l Limit) exceeded(limit int, everybody bool) error {
	if l.Fixed {
		return fault.New(fault.LimitExceeded, "the fixed limit of %d %s is reached: repeat the call when others have ended",
			limit, l.Name).With("limit", l.Name).WithRetry(retryAfter)
	}
	return Exceeded(l.Name, int64(limit), everybody, retryAfter)
}

// Gauge counts the use of one resource by tenants. The zero value is ready to use.
type Gauge struct {
	mu   sync.Mutex
	used map[string]int
	sum  int
}

// Take increments the tenant's count, or returns LIMIT_EXCEEDED. release decrements it; further calls of release have
// no effect.
func (g *Gauge) Take(tenant string, l Limit) (release func(), err error) {
	return g.TakeBeside(tenant, l, 0, 0)
}

// TakeBeside is Take for a resource with uses that are counted elsewhere: own of the tenant, all of all tenants.
func (g *Gauge) TakeBeside(tenant string, l Limit, own, all int) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case l.Tenant > 0 && own+g.used[tenant] >= l.Tenant:
		return nil, l.exceeded(l.Tenant, false)
	case l.Overall > 0 && all+g.sum >= l.Overall:
		return nil, l.exceeded(l.Overall, true)
	}
	if g.used == nil {
		g.used = map[string]int{}
	}
	g.used[tenant]++
	g.sum++
	var once sync.Once
	return func() { once.Do(func() { g.give(tenant) }) }, nil
}

func (g *Gauge) give(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sum--
	if g.used[tenant]--; g.used[tenant] <= 0 {
		delete(g.used, tenant)
	}
}

// Rates limits the rate of a tenant's operations. The zero value is ready to use.
type Rates struct {
	mu      sync.Mutex
	tenants map[string]*rate.Limiter
	overall *rate.Limiter
}

// Rate is a rate of operations. Zero sets no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// burstTime determines the default burst: the operations of this time may come at once.
const burstTime = 2 * time.Second

// limiter updates l to the rate r and preserves its remaining tokens.
func (r Rate) limiter(l *rate.Limiter) *rate.Limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	burst := r.Burst
	if burst <= 0 {
		burst = max(1, int(r.PerSecond*burstTime.Seconds()))
	}
	if l == nil {
		return rate.NewLimiter(rate.Limit(r.PerSecond), burst)
	}
	if l.Limit() != rate.Limit(r.PerSecond) {
		l.SetLimit(rate.Limit(r.PerSecond))
	}
	if l.Burst() != burst {
		l.SetBurst(burst)
	}
	return l
}

// Do takes a token for one operation, or returns LIMIT_EXCEEDED with the time to retry. The tenant's own limit is
// checked first, so that a tenant that exceeds it does not use tokens of the common limit.
func (r *Rates) Do(tenant, name string, own, all Rate, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := own.limiter(r.tenants[tenant])
	if r.tenants == nil {
		r.tenants = map[string]*rate.Limiter{}
	}
	if r.tenants[tenant] = mine; mine == nil {
		delete(r.tenants, tenant)
	}
	r.overall = all.limiter(r.overall)
	taken, wait := reserve(mine, now)
	if wait > 0 {
		return Exceeded(name, int64(own.PerSecond), false, wait)
	}
	if _, wait = reserve(r.overall, now); wait > 0 {
		if taken != nil {
			taken.CancelAt(now)
		}
		return Exceeded(name, int64(all.PerSecond), true, wait)
	}
	return nil
}

// reserve takes a token, or returns how long to wait for one.
func reserve(l *rate.Limiter, now time.Time) (taken *rate.Reservation, wait time.Duration) {
	if l == nil {
		return nil, 0
	}
	taken = l.ReserveN(now, 1)
	if wait = taken.DelayFrom(now); wait > 0 {
		taken.CancelAt(now)
	}
	return taken, wait
}
