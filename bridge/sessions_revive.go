package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

const (
	// maxReviving bounds the sessions that are loaded at once when a runtime has ended.
	maxReviving = 4
	// reviveTries bounds how often a session is tried whose load itself ends runtimes.
	reviveTries = 3
	// reviveTimeout bounds each try, the start of a runtime included.
	reviveTimeout = 2 * time.Minute
)

// revive loads sessions in the successor of a runtime that ended under them. One that
// cannot be is left to whoever needs it next: a session that ends every runtime it is
// loaded in must not go on doing so by itself.
func (b *Bridge) revive(sessions []*session.Session) {
	if len(sessions) == 0 {
		return
	}
	b.Go(func(ctx context.Context) {
		var workers sync.WaitGroup
		defer workers.Wait()
		places := make(chan struct{}, maxReviving)
		for _, s := range sessions {
			places <- struct{}{}
			workers.Go(func() {
				defer func() { <-places }()
				b.reviveOne(ctx, s)
			})
		}
	})
}

func (b *Bridge) reviveOne(ctx context.Context, s *session.Session) {
	var err error
	defer func() {
		// What a load would have settled. Where participants are to bring what the session
		// needs, theirs settles it; and a bridge that stops leaves it to its next life.
		if b.shutdown.Accepting() == nil && ctx.Err() == nil && fault.ReasonOf(err) != fault.ProviderGone {
			s.Watchdog().GiveUp(ctx, err)
		}
	}()
	for range reviveTries {
		if b.shutdown.Accepting() != nil || s.Usable() != nil {
			return
		}
		if err = load(ctx, s); err == nil || !again(err) {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		b.log.Warn("session not loaded in the successor of its runtime, it will be when needed",
			"session_id", s.ID(), "error", err)
	}
}

func load(ctx context.Context, s *session.Session) error {
	ctx, cancel := context.WithTimeout(ctx, reviveTimeout)
	defer cancel()
	_, err := s.Loaded(ctx)
	return err
}

// again reports whether an error says that the successor ended too.
func again(err error) bool {
	switch fault.ReasonOf(err) {
	case fault.RuntimeLost, fault.CLIExited, fault.CLIHung, fault.CLIStartFailed, fault.CLIProtocolError:
		return true
	}
	return false
}
