package session

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// hasHeaders reports whether the session's provider has headers that could be replaced.
func (s *Session) hasHeaders() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	provider, err := jsonobj.Parse(s.config.Object.Get("provider"))
	if err != nil {
		return false
	}
	headers, err := jsonobj.Parse(provider.Get("headers"))
	return err == nil && len(headers) > 0
}

// sendOverriding sends a message whose headers take the place of the provider's: the CLI
// only knows how to merge, so the provider loses its headers for that one turn. It
// returns with sending held until the turn has ended and the headers are back.
func (s *Session) sendOverriding(ctx context.Context, rt Runtime, m Message) (Sent, error) {
	if err := s.takeHeaders(ctx, rt); err != nil {
		return Sent{}, err
	}
	sent, err := s.send(ctx, rt, m)
	if err != nil {
		s.restoreHeaders(context.WithoutCancel(ctx), rt)
		return Sent{}, err
	}
	s.restoreAfter(sent.Waiter.state, rt)
	return sent, nil
}

// takeHeaders takes the provider's headers away once the running turn has ended.
func (s *Session) takeHeaders(ctx context.Context, rt Runtime) error {
	if err := s.waitIdle(ctx); err != nil {
		return err
	}
	return s.withoutHeaders(ctx, rt, true)
}

// restoreAfter gives the provider's headers back, and sending free, when a turn has ended or
// the runtime has.
func (s *Session) restoreAfter(w *turn.Waiter, rt Runtime) {
	s.host.Go(func(ctx context.Context) {
		defer s.prompts.Release()
		select {
		case <-w.Done():
		case <-rt.Ended(): // the message may be given to another, for which sending is needed
		case <-ctx.Done():
		}
		s.restoreHeaders(ctx, rt)
	})
}

// withoutHeaders takes the provider's headers away from the CLI, or gives them back.
func (s *Session) withoutHeaders(ctx context.Context, rt Runtime, away bool) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	s.headersReplaced = away
	s.mu.Unlock()
	err := s.warmResume(ctx, rt, nil)
	if err != nil && away {
		s.mu.Lock()
		s.headersReplaced = false
		s.mu.Unlock()
	}
	return err
}

func (s *Session) restoreHeaders(ctx context.Context, rt Runtime) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	s.mu.Lock()
	current := s.runtime == rt && s.headersReplaced
	s.mu.Unlock()
	if !current {
		return // the runtime is gone; whichever comes next is told everything anyway
	}
	if err := s.withoutHeaders(ctx, rt, false); err != nil {
		s.host.Logger().Error("provider headers not restored", "session_id", s.id, "error", err)
	}
}
