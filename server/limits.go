package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// limiter limits the calls of tenants: their rate, their number and their size. The bridge limits the resources that
// calls use.
type limiter struct {
	policy  *policy.Store // nil: no limits
	rates   quota.Rates
	calls   quota.Gauge
	streams quota.Gauge
	// streaming has the full names of the streaming rpcs. It is set before the first call.
	streaming map[string]bool
}

// limitsOf returns the current limits of a tenant and of all tenants together; none without a policy.
func limitsOf(s *policy.Store, tenant string) (own, all quota.Limits) {
	if s == nil {
		return own, all
	}
	p := s.Current()
	t, _ := p.Tenant(tenant)
	return t.Limits, p.Limits()
}

// limit refuses calls above the limits. It never waits, so that refused calls do not affect others.
func (l *limiter) limit(ctx context.Context, c *call) (context.Context, error) {
	if l.policy == nil || strings.HasPrefix(c.method, infrastructure) && c.caller.Tenant == caller.HostTenant {
		return ctx, nil
	}
	tenant := c.caller.Tenant
	if err := l.rate(tenant); err != nil {
		return ctx, err
	}
	own, all := limitsOf(l.policy, tenant)
	gauge, bound := &l.calls, quota.Limit{Name: "calls", Tenant: own.Calls, Overall: all.Calls}
	if l.streaming[c.method] {
		gauge, bound = &l.streams, quota.Limit{Name: "streams", Tenant: own.Streams, Overall: all.Streams}
	}
	release, err := gauge.Take(tenant, bound)
	if err != nil {
		return ctx, err
	}
	c.atEnd(func(err error) error {
		release()
		return err
	})
	if c.request != nil {
		err = checkSize(c.request, own, all)
	}
	c.incoming = &incoming{limiter: l, tenant: tenant}
	return ctx, err
}

// rate counts a call, or a frame of one.
func (l *limiter) rate(tenant string) error {
	own, all := limitsOf(l.policy, tenant)
	return l.rates.Do(tenant, "requests_per_second", rateOf(own), rateOf(all), time.Now())
}

func rateOf(l quota.Limits) quota.Rate {
	return quota.Rate{PerSecond: l.RequestsPerSecond, Burst: l.Burst}
}

// checkSize refuses a message that is too large.
func checkSize(message any, own, all quota.Limits) error {
	size := 0
	switch m := message.(type) {
	case *codec.Raw:
		size = m.Len()
	case codec.Ready:
		size = len(m.Wire())
	case proto.Message:
		size = proto.Size(m)
	}
	switch {
	case own.MessageBytes > 0 && size > own.MessageBytes:
		return quota.Exceeded("message_bytes", int64(own.MessageBytes), false, 0)
	case all.MessageBytes > 0 && size > all.MessageBytes:
		return quota.Exceeded("message_bytes", int64(all.MessageBytes), true, 0)
	}
	return nil
}

// incoming limits the messages received on a stream.
type incoming struct {
	limiter *limiter
	tenant  string
	first   sync.Once
}

// take counts a received frame. A frame above the rate waits, and by the stream's flow control so do the frames
// behind it, because frames cannot be retried like calls.
func (in *incoming) take(ctx context.Context, message any) error {
	own, all := limitsOf(in.limiter.policy, in.tenant)
	if err := checkSize(message, own, all); err != nil {
		return err
	}
	counted := false
	in.first.Do(func() { counted = true }) // counted as the call
	for !counted {
		err := in.limiter.rate(in.tenant)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(max(retryOf(err), time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// retryOf returns the time to retry of an error.
func retryOf(err error) time.Duration {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.RetryAfter
	}
	return 0
}
