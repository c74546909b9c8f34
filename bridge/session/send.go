package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// restoreTimeout bounds putting a provider's headers back after a turn.
const restoreTimeout = time.Minute

// failedTimeout bounds waiting for the end of a turn after its error; that takes some
// milliseconds, and in rare cases it never comes.
const failedTimeout = 5 * time.Second

// errUnanswered is the cause with which the waiting for the CLI's answer to a message ends.
var errUnanswered = errors.New("the CLI does not answer")

// Message is a prompt ready for the CLI.
type Message struct {
	// Method is the CLI's method; "" is session.send.
	Method string
	// Params are its parameters.
	Params Object
	// Override says that the message's headers take the place of the provider's.
	Override bool
	// Immediate says that it steers the running turn.
	Immediate bool
}

// Sent is what became of a message.
type Sent struct {
	MessageID string
	// Result is what the CLI answered.
	Result json.RawMessage
	At     journal.Position
	// Waiter waits for the turn's end. It ends with the turn, or when the session's use
	// or its runtime does, so that it need not be closed.
	Waiter *Waiter
}

// Send says something to the agent.
func (s *Session) Send(ctx context.Context, m Message) (Sent, error) {
	s.mu.Lock()
	steering := m.Immediate && s.override
	s.mu.Unlock()
	if steering {
		return Sent{}, fault.New(fault.SessionBusy, "a turn is running whose headers replace the provider's").WithField("prompt.mode")
	}
	if err := lock(ctx, s.sending); err != nil {
		return Sent{}, err
	}
	keep := false
	defer func() {
		if !keep {
			unlock(s.sending)
		}
	}()
	var sent Sent
	err := s.retried(ctx, func(rt Runtime) (err error) {
		if !m.Override || !s.hasHeaders() {
			sent, err = s.send(ctx, rt, m)
			return err
		}
		sent, err = s.sendOverriding(ctx, rt, m)
		keep = err == nil
		return err
	})
	return sent, err
}

// send makes the call, with a waiter that was there before it.
func (s *Session) send(ctx context.Context, rt Runtime, m Message) (Sent, error) {
	params := m.Params.Clone()
	w := s.newSpanWaiter(s.spanOf(ctx, &params))
	sent := Sent{Waiter: w}
	before := s.journal.Last()
	params.SetString("sessionId", s.id)
	method := cmp.Or(m.Method, "session.send")
	// The next messages of the session wait behind this one.
	limited, cancel := context.WithTimeoutCause(ctx, s.bounds.Send, errUnanswered)
	defer cancel()
	result, err := rt.Call(limited, method, params.JSON(), rpcconn.OnReply(func() {
		sent.At = s.journal.Last()
		w.accept()
	}))
	if err != nil {
		w.Close()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && context.Cause(limited) == errUnanswered {
			s.host.Logger().Error("message not answered by the CLI", "session_id", s.id, "method", method, "waited", s.bounds.Send)
			return Sent{}, fault.Wrap(errors.Join(ErrUnsettled, errUnanswered), fault.SendInDoubt, "no answer to %s within %v; it may have been taken up", method, s.bounds.Send)
		}
		return s.unsure(ctx, rt, m, before, Classify(err, method))
	}
	var r struct{ MessageID string }
	_ = json.Unmarshal(result, &r) // an id that is missing stays empty
	sent.MessageID, sent.Result = r.MessageID, result
	w.identify(r.MessageID)
	return sent, nil
}

// hasHeaders reports whether the session's provider has headers that could be replaced.
func (s *Session) hasHeaders() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	provider, err := ParseObject(s.config.Get("provider"))
	if err != nil {
		return false
	}
	headers, err := ParseObject(provider.Get("headers"))
	return err == nil && len(headers) > 0
}

// sendOverriding sends a message whose headers take the place of the provider's: the CLI
// only knows how to merge, so the provider loses its headers for that one turn. It
// returns with sending held until the turn has ended and the headers are back.
func (s *Session) sendOverriding(ctx context.Context, rt Runtime, m Message) (Sent, error) {
	if err := s.waitIdle(ctx); err != nil {
		return Sent{}, err
	}
	if err := s.withoutHeaders(ctx, rt, true); err != nil {
		return Sent{}, err
	}
	sent, err := s.send(ctx, rt, m)
	if err != nil {
		s.restoreHeaders(context.WithoutCancel(ctx), rt)
		return Sent{}, err
	}
	s.host.Go(func(ctx context.Context) {
		defer unlock(s.sending)
		sent.Waiter.Wait(ctx, 0)
		s.restoreHeaders(ctx, rt)
	})
	return sent, nil
}

// withoutHeaders takes the provider's headers away from the CLI, or gives them back.
func (s *Session) withoutHeaders(ctx context.Context, rt Runtime, away bool) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	s.override = away
	s.mu.Unlock()
	err := s.warmResume(ctx, rt, nil)
	if err != nil && away {
		s.mu.Lock()
		s.override = false
		s.mu.Unlock()
	}
	return err
}

func (s *Session) restoreHeaders(ctx context.Context, rt Runtime) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	s.mu.Lock()
	current := s.runtime == rt && s.override
	s.mu.Unlock()
	if !current {
		return // the runtime is gone; whichever comes next is told everything anyway
	}
	if err := s.withoutHeaders(ctx, rt, false); err != nil {
		s.host.Logger().Error("provider headers not restored", "session_id", s.id, "error", err)
	}
}

// waitIdle waits for the end of the running turn, if one runs.
func (s *Session) waitIdle(ctx context.Context) error {
	w := s.newWaiter()
	defer w.Close()
	s.mu.Lock()
	running := s.turn.busy()
	w.accepted, w.begun, w.all = true, true, true
	s.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

// AwaitRest waits for the end of the running turn, if one runs, and of what is queued.
func (s *Session) AwaitRest(ctx context.Context) error { return s.waitIdle(ctx) }

// waitFailed waits a moment for the end of a turn that has failed: callers learn of that
// from the error, before the CLI is done with the turn, and may mend its cause at once.
func (s *Session) waitFailed(ctx context.Context) error {
	s.mu.Lock()
	failing := s.turn.failing
	s.mu.Unlock()
	if !failing {
		return nil
	}
	moment, cancel := context.WithTimeout(ctx, failedTimeout)
	defer cancel()
	if err := s.waitIdle(moment); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// Abort stops the running turn and what is queued, and reports whether one was running.
func (s *Session) Abort(ctx context.Context) (bool, journal.Position, error) {
	running := s.TurnRunning()
	if err := s.Usable(); err != nil {
		return false, journal.Position{}, err
	}
	if s.State() != Loaded {
		return false, s.journal.Last(), nil
	}
	_, at, err := s.Do(ctx, "session.abort", nil)
	return running, at, err
}

// Do makes a call about the session, loading it if need be.
func (s *Session) Do(ctx context.Context, method string, params Object, opts ...rpcconn.CallOption) (json.RawMessage, journal.Position, error) {
	var result json.RawMessage
	var at journal.Position
	err := s.retried(ctx, func(rt Runtime) (err error) {
		result, at, err = s.call(ctx, rt, method, params, opts...)
		return err
	})
	return result, at, err
}

// SetModel switches the model and remembers it for the next load.
func (s *Session) SetModel(ctx context.Context, params Object) (json.RawMessage, journal.Position, error) {
	if err := lock(ctx, s.gate); err != nil {
		return nil, journal.Position{}, err
	}
	defer unlock(s.gate)
	rt, err := s.loaded(ctx)
	if err != nil {
		return nil, journal.Position{}, err
	}
	result, at, err := s.call(ctx, rt, "session.model.switchTo", params)
	if err != nil {
		return nil, at, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = s.config.Clone()
	s.config.Set("model", params.Get("modelId"))
	s.config.Set("reasoningEffort", params.Get("reasoningEffort"))
	s.config.Set("modelCapabilities", params.Get("modelCapabilities"))
	s.host.Keep(s)
	return result, at, nil
}

// SetProvider changes the provider's members, and the model if one is named.
func (s *Session) SetProvider(ctx context.Context, change func(provider Object) (Object, error), model string) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	if err := s.waitFailed(ctx); err != nil {
		return err
	}
	if s.TurnRunning() {
		return fault.New(fault.SessionBusy, "a turn is running")
	}
	s.mu.Lock()
	before, ref := s.config, s.providerRef
	provider, err := ParseObject(before.Get("provider"))
	if err != nil {
		provider = nil
	}
	s.mu.Unlock()
	if provider, err = change(provider.Clone()); err != nil {
		return err
	}
	rt, err := s.loaded(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.config = before.Clone()
	s.config.Set("provider", provider.JSON())
	s.providerRef = "" // it is the session's own from now on
	if model != "" {
		s.config.SetString("model", model)
	}
	s.host.Keep(s)
	s.mu.Unlock()
	if err := s.warmResume(ctx, rt, nil); err != nil {
		s.mu.Lock()
		s.config, s.providerRef = before, ref
		s.mu.Unlock()
		return err
	}
	return nil
}

// ProviderRef is the provider of the bridge's own that the session has, "" if it has one of
// its own.
func (s *Session) ProviderRef() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.providerRef
}

// SetCredentials gives the session secrets of its provider, or a GitHub token, in the
// place of those it has.
func (s *Session) SetCredentials(ctx context.Context, secrets Object, token string) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	provider, err := ParseObject(s.config.Get("provider"))
	if len(secrets) > 0 && err != nil {
		s.mu.Unlock()
		return fault.New(fault.InvalidField, "the session has no provider").WithField("provider")
	}
	before := s.config
	s.config = before.Clone()
	if len(secrets) > 0 {
		s.config.Set("provider", provider.Merge(secrets).JSON())
	}
	missing := s.missing
	if token != "" {
		s.config.SetString(gitHubToken, token)
		s.regained(gitHubToken)
	}
	if len(secrets) > 0 {
		s.regained("provider")
	}
	s.host.Keep(s)
	loaded, rt := s.state == Loaded, s.runtime
	s.mu.Unlock()
	if loaded {
		err = s.warmResume(ctx, rt, nil)
	} else {
		_, err = s.loaded(ctx)
	}
	if err != nil && fault.ReasonOf(err) != fault.CredentialsNeeded { // some may still be missing
		// What the CLI refused must not be in the way of every later load.
		s.mu.Lock()
		s.config, s.missing = before, missing
		s.mu.Unlock()
	}
	return err
}
