package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
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
	Params jsonobj.Object
	// Override says that the message's headers take the place of the provider's.
	Override bool
	// Immediate says that it steers the running turn.
	Immediate bool
	// Request is the request id under which it may come again, with its scope; may be empty.
	Request string
}

// Sent is what became of a message.
type Sent struct {
	MessageID string
	// Result is what the CLI answered.
	Result json.RawMessage
	At     journal.Position
	// InMemory says that a disk that fails does not have the message: it would be lost with
	// the bridge's process until it is taken up.
	InMemory bool
	// Waiter waits for the turn's end. It ends with the turn, or when the session's use
	// or its runtime does, so that it need not be closed.
	Waiter *Waiter
}

// Send says something to the agent.
func (s *Session) Send(ctx context.Context, m Message) (Sent, error) {
	s.mu.Lock()
	steering := m.Immediate && s.headersReplaced
	s.mu.Unlock()
	if steering {
		return Sent{}, fault.New(fault.SessionBusy, "a turn is running whose headers replace the provider's").WithField("prompt.mode")
	}
	for {
		sent, err := s.sendInOrder(ctx, m)
		if !errors.Is(err, prompts.ErrBehind) {
			return sent, err
		}
		if err := s.prompts.AwaitDelivery(ctx); err != nil {
			return Sent{}, err
		}
	}
}

// sendInOrder sends a message, unless others that a runtime has lost come before it: then it
// fails with prompts.ErrBehind.
func (s *Session) sendInOrder(ctx context.Context, m Message) (sent Sent, err error) {
	if err := s.prompts.Acquire(ctx); err != nil {
		return Sent{}, err
	}
	keep := false
	defer func() {
		if !keep {
			s.prompts.Release()
		}
	}()
	err = s.retried(ctx, func(rt Runtime) (err error) {
		if s.prompts.Box().Owes() {
			return prompts.ErrBehind
		}
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

// send makes the call. The outbox has the message before the CLI, and the CLI's answer before
// the caller.
func (s *Session) send(ctx context.Context, rt Runtime, m Message) (Sent, error) {
	params := m.Params.Clone()
	w := s.newWaiter(s.spanOf(ctx, &params))
	before := s.journal.Last()
	n, stored, err := s.prompts.Add(m.outboxForm(params), before)
	if err != nil {
		w.Close()
		return Sent{}, err
	}
	s.mu.Lock()
	s.prompts.Expect(locked{s}, w.state, n)
	s.mu.Unlock()
	method := cmp.Or(m.Method, "session.send")
	sent, err := s.give(ctx, rt, method, params, w)
	if err != nil {
		if !errors.Is(err, errUnanswered) {
			sent, err = s.unconfirmed(ctx, rt, m, before, err)
		}
		s.forgetPrompt(w)
		return sent, err
	}
	ids := prompts.IDs(sent.Result)
	durable, again := s.prompts.Box().Accepted(n, ids)
	sent.MessageID, sent.InMemory = prompts.First(ids), s.prompts.Box().Problem() != nil && !(stored && durable)
	w.identify(prompts.Last(ids))
	if again {
		s.mu.Lock()
		s.prompts.Deliver(locked{s})
		s.mu.Unlock()
	}
	return sent, nil
}

// forgetPrompt ends the waiting for a message whose sender is told that it failed.
func (s *Session) forgetPrompt(w *Waiter) {
	w.Close()
	s.mu.Lock()
	s.prompts.Forget(locked{s}, w.state)
	s.mu.Unlock()
}

// give makes the call, with a waiter that was there before it.
func (s *Session) give(ctx context.Context, rt Runtime, method string, params jsonobj.Object, w *Waiter) (Sent, error) {
	sent := Sent{Waiter: w}
	params.SetString("sessionId", s.id)
	// The next messages of the session wait behind this one.
	limited, cancel := context.WithTimeoutCause(ctx, s.turn.Bounds.Send, errUnanswered)
	defer cancel()
	result, err := rt.Call(limited, method, params.JSON(), rpcconn.OnReply(func() {
		sent.At = s.journal.Last()
		w.accept()
	}))
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && context.Cause(limited) == errUnanswered {
			s.host.Logger().Error("message not answered by the CLI", "session_id", s.id, "method", method, "waited", s.turn.Bounds.Send)
			return Sent{}, fault.Wrap(errors.Join(ErrUnsettled, errUnanswered), fault.SendInDoubt, "no answer to %s within %v; it may have been taken up", method, s.turn.Bounds.Send)
		}
		return Sent{}, Classify(err, method)
	}
	sent.Result = result
	return sent, nil
}

// waitIdle waits for the end of the running turn, if one runs.
func (s *Session) waitIdle(ctx context.Context) error {
	w := s.newWaiter(nil)
	defer w.Close()
	s.mu.Lock()
	running := s.turn.Busy()
	s.turn.AwaitRest(w.state)
	s.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-w.state.Done():
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
	failing := s.turn.Failing()
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
	given := s.prompts.Acknowledged()
	if err := s.Usable(); err != nil {
		return false, journal.Position{}, err
	}
	if s.State() != Loaded {
		return s.prompts.Abort(given), s.journal.Last(), nil
	}
	_, at, err := s.Do(ctx, "session.abort", nil)
	if err == nil {
		s.prompts.Abort(given)
	}
	return running, at, err
}

// Do makes a call about the session, loading it if need be.
func (s *Session) Do(ctx context.Context, method string, params jsonobj.Object, opts ...rpcconn.CallOption) (json.RawMessage, journal.Position, error) {
	var result json.RawMessage
	var at journal.Position
	err := s.retried(ctx, func(rt Runtime) (err error) {
		result, at, err = s.call(ctx, rt, method, params, opts...)
		return err
	})
	if err == nil && changesQueue(method) {
		s.prompts.Edit()
	}
	return result, at, err
}

// changesQueue reports whether a method changes what the CLI has queued: messages may be gone
// then, or have other words.
func changesQueue(method string) bool {
	switch method {
	case "session.queue.clear", "session.queue.duplicateAt", "session.queue.insertAt", "session.queue.moveItem",
		"session.queue.removeAt", "session.queue.removeMostRecent", "session.queue.updateText", "session.queue.withdrawMessage":
		return true
	}
	return false
}

// SetModel switches the model and remembers it for the next load.
func (s *Session) SetModel(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
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
	s.config.Object = s.config.Object.Clone()
	s.config.Object.Set("model", params.Get("modelId"))
	s.config.Object.Set("reasoningEffort", params.Get("reasoningEffort"))
	s.config.Object.Set("modelCapabilities", params.Get("modelCapabilities"))
	s.host.Keep(s)
	return result, at, nil
}

// SetProvider changes the provider's members, and the model if one is named.
func (s *Session) SetProvider(ctx context.Context, change func(provider jsonobj.Object) (jsonobj.Object, error), model string) error {
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
	before, ref := s.config.Object, s.config.ProviderRef
	provider, err := jsonobj.Parse(before.Get("provider"))
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
	s.config.Object = before.Clone()
	s.config.Object.Set("provider", provider.JSON())
	s.config.ProviderRef = "" // it is the session's own from now on
	if model != "" {
		s.config.Object.SetString("model", model)
	}
	s.host.Keep(s)
	s.mu.Unlock()
	if err := s.warmResume(ctx, rt, nil); err != nil {
		s.mu.Lock()
		s.config.Object, s.config.ProviderRef = before, ref
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
	return s.config.ProviderRef
}

// SetCredentials gives the session secrets of its provider, or a GitHub token, in the
// place of those it has.
func (s *Session) SetCredentials(ctx context.Context, secrets jsonobj.Object, token string) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	provider, err := jsonobj.Parse(s.config.Object.Get("provider"))
	if len(secrets) > 0 && err != nil {
		s.mu.Unlock()
		return fault.New(fault.InvalidField, "the session has no provider").WithField("provider")
	}
	before := s.config.Object
	s.config.Object = before.Clone()
	if len(secrets) > 0 {
		s.config.Object.Set("provider", provider.Merge(secrets).JSON())
	}
	missing := s.config.Missing
	if token != "" {
		s.config.Object.SetString(gitHubToken, token)
		s.config.Regained(gitHubToken)
	}
	if len(secrets) > 0 {
		s.config.Regained("provider")
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
		s.config.Object, s.config.Missing = before, missing
		s.mu.Unlock()
	}
	return err
}
