package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// limiter bounds what tenants ask of the server: how often, how much at once, how large.
// What they make the bridge keep and run, the bridge bounds.
type limiter struct {
	policy  *policy.Store // nil: no limits
	rates   quota.Rates
	calls   quota.Gauge
	streams quota.Gauge
	// streaming are the full names of the rpcs that stream; set before the first call.
	streaming map[string]bool
}

// limits returns what a tenant, and what everybody, may use now.
func (l *limiter) limits(tenant string) (own, all quota.Limits) {
	p := l.policy.Current()
	t, _ := p.Tenant(tenant)
	return t.Limits, p.Limits()
}

// limit refuses calls that are too many or too large. Nobody waits here: a caller who is
// refused is told at once, and the others notice nothing.
func (l *limiter) limit(ctx context.Context, c *call) (context.Context, ending, error) {
	if l.policy == nil || strings.HasPrefix(c.method, infrastructure) && c.caller.Tenant == caller.HostTenant {
		return ctx, nil, nil
	}
	tenant := c.caller.Tenant
	if err := l.rate(tenant); err != nil {
		return ctx, nil, err
	}
	own, all := l.limits(tenant)
	gauge, bound := &l.calls, quota.Limit{Name: "calls", Tenant: own.Calls, Overall: all.Calls}
	if l.streaming[c.method] {
		gauge, bound = &l.streams, quota.Limit{Name: "streams", Tenant: own.Streams, Overall: all.Streams}
	}
	release, err := gauge.Take(tenant, bound)
	if err != nil {
		return ctx, nil, err
	}
	if c.request != nil {
		err = checkSize(c.request, own, all)
	}
	c.incoming = &incoming{limiter: l, tenant: tenant}
	return ctx, func(err error) error {
		release()
		return err
	}, err
}

// rate counts a call, or a frame of one.
func (l *limiter) rate(tenant string) error {
	own, all := l.limits(tenant)
	return l.rates.Do(tenant, "requests_per_second", rateOf(own), rateOf(all), time.Now())
}

func rateOf(l quota.Limits) quota.Rate {
	return quota.Rate{PerSecond: l.RequestsPerSecond, Burst: l.Burst}
}

// checkSize refuses a message that is too large.
func checkSize(message any, own, all quota.Limits) error {
	size := 0
	switch m := message.(type) {
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

// incoming bounds what comes on a stream.
type incoming struct {
	limiter *limiter
	tenant  string
	first   sync.Once
}

// take counts a frame that has come. One that comes too early waits, and with it, by the
// flow control of its stream, those behind it: frames are no calls that could be made again.
func (in *incoming) take(ctx context.Context, message any) error {
	own, all := in.limiter.limits(in.tenant)
	if err := checkSize(message, own, all); err != nil {
		return err
	}
	counted := false
	in.first.Do(func() { counted = true }) // as the call
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

// retryOf returns when an error says to try again.
func retryOf(err error) time.Duration {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.RetryAfter
	}
	return 0
}

// streamingOf are the full names of the rpcs of a server that stream.
func streamingOf(services map[string]grpc.ServiceInfo) map[string]bool {
	names := map[string]bool{}
	for service, info := range services {
		for _, m := range info.Methods {
			if m.IsServerStream || m.IsClientStream {
				names["/"+service+"/"+m.Name] = true
			}
		}
	}
	return names
}
