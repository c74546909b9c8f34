package session

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// passage keeps apart the calls that callers make to the CLI about a session and the warm
// resumes of the bridge. CLI 1.0.102 lets a resume wait for the calls that are under way,
// and every later call for the resume: an answer too, without which a call that waits for
// one (session.commands.invoke, session.ui.elicitation) never ends. So a resume waits
// here, where answers pass it.
type passage struct {
	mu      sync.Mutex
	inside  int
	shut    bool
	changed chan struct{}
}

// enter begins a call, when no resume is under way.
func (p *passage) enter(ctx context.Context) error {
	return p.await(ctx, func() bool {
		if !p.shut {
			p.inside++
			return true
		}
		return false
	})
}

// leave ends a call.
func (p *passage) leave() { p.change(func() { p.inside-- }) }

// close begins a resume, when no call is under way.
func (p *passage) close(ctx context.Context) error {
	return p.await(ctx, func() bool {
		if p.inside == 0 && !p.shut {
			p.shut = true
			return true
		}
		return false
	})
}

// open ends a resume.
func (p *passage) open() { p.change(func() { p.shut = false }) }

// await waits until done, which is called with mu held, says so.
func (p *passage) await(ctx context.Context, done func() bool) error {
	for {
		p.mu.Lock()
		if done() {
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Classify(ctx.Err(), "")
		}
	}
}

func (p *passage) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Invoke is Do for a call of the caller's own choice, which may take as long as callers
// take to answer what the CLI asks because of it.
func (s *Session) Invoke(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	if !callback.Answers(method) {
		if err := s.passage.enter(ctx); err != nil {
			return nil, journal.Position{}, err
		}
		defer s.passage.leave()
	}
	return s.Do(ctx, method, params)
}
