package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A CLI that did not start is tried again after a time that grows within these limits.
const (
	minProbePause = time.Second
	maxProbePause = 30 * time.Second
)

var errNotProbed = errors.New("the copilot CLI has not answered yet")

// probe finds out whether the CLI of the server's own profile can be started. Its methods may
// be called from any goroutine.
type probe struct {
	problem atomic.Pointer[error] // nil when there is none
	replied atomic.Bool           // the CLI has replied
}

func (p *probe) err() error {
	if problem := p.problem.Load(); problem != nil {
		return *problem
	}
	return nil
}

func (p *probe) set(err error) {
	if err == nil {
		p.problem.Store(nil)
		return
	}
	p.problem.Store(&err)
}

// run asks the CLI until it has replied once, or ctx ends. It logs a failure that has another reason than the last one.
// The CLI's supervisor reports later failures.
func (p *probe) run(ctx context.Context, ask func(context.Context) error, logger *slog.Logger) {
	pauses := &backoff.ExponentialBackOff{InitialInterval: minProbePause, Multiplier: 2, MaxInterval: maxProbePause}
	var failed bool
	var reason fault.Reason
	// The last attempt's result was set; the end of ctx is not an error.
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		err := ask(ctx)
		if ctx.Err() != nil {
			return struct{}{}, err
		}
		p.set(err)
		if now := fault.ReasonOf(err); err != nil && (!failed || now != reason) {
			failed, reason = true, now
			logger.Error("sessions cannot be served yet", slog.Any("error", err))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
}

// askCLI pings a CLI process of the server's own profile, which starts it. One that would be
// installed first is left alone until a call needs it.
func (a *App) askCLI(ctx context.Context) error {
	if s, ok := a.way.(*runtime.Spawner); ok {
		if _, err := s.Locator.Find(ctx); err != nil {
			if _, ok := s.Locator.WouldInstall(err); !ok {
				return fmt.Errorf("the copilot CLI cannot be started: %w", err)
			}
			a.logger.Info("no copilot CLI found; the first call that needs it installs a private copy",
				slog.String("version", clibin.PinnedVersion))
			return nil
		}
	}
	if _, err := a.bridge.Runtimes.Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		return fmt.Errorf("the copilot CLI cannot be started: %w", err)
	}
	a.observing.probe.replied.Store(true)
	return nil
}

// warm returns, by tenant, how many CLI processes are kept ready: none before the CLI has replied, so that no CLI is
// installed for them.
func (a *App) warm() map[string]int {
	if !a.observing.probe.replied.Load() || a.config.Dial != "" {
		return nil
	}
	warm := map[string]int{}
	if a.policy != nil {
		warm = a.policy.Current().WarmRuntimes()
	}
	if n := a.current.Load().WarmRuntimes; n > 0 {
		warm[caller.HostTenant] = n
	}
	return warm
}
