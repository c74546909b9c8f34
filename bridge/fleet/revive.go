package fleet

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
	// ReviveTries bounds how often a session is tried whose load itself ends runtimes.
	ReviveTries = 3
	// reviveTimeout bounds each try, the start of a runtime included.
	reviveTimeout = 2 * time.Minute
)

// Revive loads sessions in another runtime in the background after the end of their runtime. A session that
// cannot be loaded waits for the next call that needs it: otherwise a session that ends every runtime would end
// one after the other.
func (f *Fleet) Revive(sessions []*session.Session) {
	if len(sessions) == 0 {
		return
	}
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		var workers sync.WaitGroup
		defer workers.Wait()
		places := make(chan struct{}, maxReviving)
		for _, s := range sessions {
			places <- struct{}{}
			workers.Go(func() {
				defer func() { <-places }()
				f.reviveOne(ctx, s)
			})
		}
	})
}

func (f *Fleet) reviveOne(ctx context.Context, s *session.Session) {
	var err error
	defer func() {
		// Settle what the load would have settled. A session that waits for a participant is settled when that
		// attaches, and a bridge that stops leaves it to its next start.
		if f.cfg.Shutdown.Accepting() == nil && ctx.Err() == nil && fault.ReasonOf(err) != fault.HandlerMissing {
			s.Watchdog().GiveUp(ctx, err)
		}
	}()
	for range ReviveTries {
		if f.cfg.Shutdown.Accepting() != nil || s.Loader().Usable() != nil {
			return
		}
		if err = load(ctx, s); err == nil || !again(err) {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("loading a session after the end of its runtime failed; the next call that needs it tries again",
			"session_id", s.ID(), "error", err)
	}
}

func load(ctx context.Context, s *session.Session) error {
	ctx, cancel := context.WithTimeout(ctx, reviveTimeout)
	defer cancel()
	_, err := s.Loader().Load(ctx)
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
