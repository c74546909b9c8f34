package quota

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// retryAfter is when those are told to try again who find something used up that others
// give back at their own time.
const retryAfter = time.Second

// Exceeded is the error of a limit that is reached. name is that of the limit, which is told
// unless it is 0.
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

// Limit is one limit, for a tenant and for everybody together; zero is none.
type Limit struct {
	Name            string
	Tenant, Overall int
}

// Gauge counts what tenants have of one thing. The zero value is ready.
type Gauge struct {
	mu   sync.Mutex
	used map[string]int
	sum  int
}

// Take counts one more for a tenant, unless that is too much. release gives it back; it
// may be called again.
func (g *Gauge) Take(tenant string, l Limit) (release func(), err error) {
	return g.TakeBeside(tenant, l, 0, 0)
}

// TakeBeside is Take where own of the tenant, and all of everybody, are counted elsewhere.
func (g *Gauge) TakeBeside(tenant string, l Limit, own, all int) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case l.Tenant > 0 && own+g.used[tenant] >= l.Tenant:
		return nil, Exceeded(l.Name, int64(l.Tenant), false, retryAfter)
	case l.Overall > 0 && all+g.sum >= l.Overall:
		return nil, Exceeded(l.Name, int64(l.Overall), true, retryAfter)
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

// Rates bounds how often tenants do something. The zero value is ready.
type Rates struct {
	mu      sync.Mutex
	tenants map[string]*rate.Limiter
	overall *rate.Limiter
}

// Rate is how often something may be done; zero sets no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// burstTime is how much may come at once where nobody says.
const burstTime = 2 * time.Second

// limiter makes l what r says, keeping what is left of it.
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

// Do counts one more, or says when it could be. The tenant's own limit comes first, so that
// one who exceeds it takes nothing of what is everybody's.
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

// reserve takes one, or says how long there is none to take.
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
