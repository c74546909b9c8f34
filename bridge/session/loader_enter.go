package session

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// ErrNotAdmitted says that a runtime accepts no more sessions: it is draining or being replaced.
var ErrNotAdmitted error = fault.New(fault.RuntimeLost, "the runtime stopped accepting sessions: try again")

// maxEnterings bounds how often a runtime is chosen for one load. Each further choice needs another drain meanwhile.
const maxEnterings = 5

// enter asks the host for a runtime and calls open, which creates or loads the session in it. If the runtime stops
// accepting sessions before the session is routed there, enter asks for another one. The caller holds the lifecycle lock.
// open goes on if the caller goes.
func (l *Loader) enter(ctx context.Context, open func(ctx context.Context, rt Runtime) error) (rt Runtime, err error) {
	if err := l.s.settings.telling.acquire(ctx); err != nil {
		return nil, err
	}
	defer l.s.settings.telling.release()
	for range maxEnterings {
		if rt, err = l.s.host.Runtime(ctx); err != nil {
			return nil, err
		}
		ctx, cancel := l.lingering(ctx)
		err = open(ctx, rt)
		cancel()
		if !errors.Is(err, ErrNotAdmitted) {
			break
		}
	}
	return rt, err
}

// linger is how long a change of the session in its runtime goes on without its caller.
const linger = time.Minute

// lingering returns a context that ends some time after ctx, or when both have ended, ctx and the host's time. The CLI
// completes what it was asked although the caller has gone. Until it has, nothing else may be asked, which it could
// complete earlier. And a load that takes longer than callers wait would be begun again for each of them.
func (l *Loader) lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil { // the CLI is asked nothing
		return ctx, func() {}
	}
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		limit := time.NewTimer(linger)
		defer limit.Stop()
		select {
		case <-limit.C:
			cancel()
		case <-l.s.host.Stopped():
			cancel()
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel() }
}
