package offlinemodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Bounds of what a scope keeps of its requests. The oldest are forgotten first;
// [Scope.Requests] then starts with a number above 1.
const (
	// MaxRequests is the number of captured requests.
	MaxRequests = 1000
	// MaxRequestBytes is the sum of their bodies.
	MaxRequestBytes = 128 << 20
)

// errClosed ends requests whose scope or server was closed.
var errClosed = errors.New("the offline model was closed")

// Scope is a script with its own captured requests and gates, served under its
// own URL. A test that opens one is alone with it however many run at once.
type Scope struct {
	name   string
	base   string // URL without a trailing slash
	ctx    context.Context
	cancel context.CancelCauseFunc
	remove func()

	mu       sync.Mutex
	program  *program
	gates    map[string]*gate
	requests []*Request
	total    int           // requests so far
	bytes    int           // of the bodies kept
	changed  chan struct{} // closed and replaced whenever the above changes
}

// gate holds requests until it is released.
type gate struct {
	released chan struct{}
	waiting  int
}

func newScope(ctx context.Context, name, base string, p *program, remove func()) *Scope {
	s := &Scope{
		name: name, base: base, program: p, remove: remove, gates: map[string]*gate{}, changed: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// Name is the scope's name as it appears in its URL; empty at the root.
func (s *Scope) Name() string { return s.name }

// URL is the base of the scope: what Anthropic and Azure providers take as
// their base URL, and what COPILOT_API_URL and COPILOT_DEBUG_GITHUB_API_URL
// are set to for GitHub's own API.
func (s *Scope) URL() string { return s.base }

// OpenAIBaseURL is what OpenAI providers take as their base URL, for
// completions and responses alike.
func (s *Scope) OpenAIBaseURL() string { return s.base + "/v1" }

// AnthropicBaseURL is what Anthropic providers take as their base URL.
func (s *Scope) AnthropicBaseURL() string { return s.base }

// AzureBaseURL is what Azure providers take as their base URL. CLI 1.0.81 drops
// its path, so there the API key has to be the scope's name.
func (s *Scope) AzureBaseURL() string { return s.base }

// SetScript replaces the script; uses of rules are counted anew. Replies that
// are being played go on.
func (s *Scope) SetScript(script *Script) error {
	p, err := compile(script)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program = p
	return nil
}

// Push puts rules before those the scope has, in the order given.
func (s *Scope) Push(rules ...Rule) error {
	added := &Script{Rules: slices.Clone(rules)}
	if err := added.validate(); err != nil {
		return fmt.Errorf("offline model script: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.program
	next.rules = append(compileRules(added.Rules), next.rules...)
	s.program = &next
	return nil
}

// Release opens a gate for good: requests that wait at it go on, and later ones
// do not stop there.
func (s *Scope) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gate(name)
	select {
	case <-g.released:
	default:
		close(g.released)
	}
}

// WaitGate waits until a request has come to a gate that is not released.
func (s *Scope) WaitGate(ctx context.Context, name string) error {
	return s.wait(ctx, func() bool { return s.gate(name).waiting > 0 })
}

// gate finds or makes a gate. The lock is held.
func (s *Scope) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		g = &gate{released: make(chan struct{})}
		s.gates[name] = g
	}
	return g
}

// passGate waits for a gate's release.
func (s *Scope) passGate(ctx context.Context, name string) error {
	s.mu.Lock()
	g := s.gate(name)
	g.waiting++
	s.notify()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.waiting--
		s.notify()
	}()
	select {
	case <-g.released:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Requests are the captured requests of every kind, oldest first.
func (s *Scope) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot(func(*Request) bool { return true })
}

// ModelRequests are the captured requests that rules answer.
func (s *Scope) ModelRequests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot((*Request).IsModelRequest)
}

// WaitRequests waits until at least n model requests are captured and returns
// them all. They are captured when they arrive, before they are answered.
func (s *Scope) WaitRequests(ctx context.Context, n int) ([]Request, error) {
	var found []Request
	err := s.wait(ctx, func() bool {
		found = s.snapshot((*Request).IsModelRequest)
		return len(found) >= n
	})
	return found, err
}

// WaitRequest waits for a captured request that fits and returns the first. It
// looks again whenever a request arrives, has its rule, or has its outcome.
func (s *Scope) WaitRequest(ctx context.Context, fits func(*Request) bool) (Request, error) {
	var found []Request
	err := s.wait(ctx, func() bool {
		found = s.snapshot(fits)
		return len(found) > 0
	})
	if err != nil {
		return Request{}, err
	}
	return found[0], nil
}

// Forget drops the captured requests. Numbers go on.
func (s *Scope) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.bytes = nil, 0
}

// Close ends the scope: its waiting requests are dropped and its URL answers 404. Captured requests stay readable.
func (s *Scope) Close() {
	s.remove()
	s.cancel(errClosed)
}

// snapshot copies the requests that fit. The lock is held.
func (s *Scope) snapshot(fits func(*Request) bool) []Request {
	var copies []Request
	for _, r := range s.requests {
		if fits(r) {
			copies = append(copies, *r)
		}
	}
	return copies
}

// wait blocks until a condition on the scope's state holds. It evaluates the condition with the lock held.
func (s *Scope) wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// notify wakes those who wait. The lock is held.
func (s *Scope) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// capture numbers a request and keeps it.
func (s *Scope) capture(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	r.Number, r.Scope, r.Outcome = s.total, s.name, OutcomePending
	s.requests = append(s.requests, r)
	s.bytes += len(r.Body)
	for len(s.requests) > MaxRequests || (s.bytes > MaxRequestBytes && len(s.requests) > 1) {
		s.bytes -= len(s.requests[0].Body)
		s.requests[0] = nil
		s.requests = s.requests[1:]
	}
	s.notify()
}

// pick finds the rule for a request and notes it.
func (s *Scope) pick(r *Request) (*compiledRule, *values, *Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rule, found := s.program.pick(r)
	if rule != nil {
		r.Rule = rule.label
		s.notify()
	}
	return rule, found, s.program.script
}

// note records how the answer to a request stands.
func (s *Scope) note(r *Request, status int, outcome Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Status, r.Outcome = status, outcome
	s.notify()
}

func (s *Scope) currentScript() *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.program.script
}
