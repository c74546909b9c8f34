package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Loader moves one session into and out of CLI processes. It creates and resumes the session, loads it when
// a call needs it, unloads it when it is idle, and disconnects or deletes it.
//
// Loader uses two locks, and takes them in this order:
//
//   - The lifecycle lock serialises the changes of the session in its runtime (create, resume, tools,
//     provider, destroy). It is held during calls to the CLI.
//   - The session's lock guards the fields that change. It is held briefly, also by the goroutine that reads
//     the CLI's connection. That goroutine never waits for the lifecycle lock.
type Loader struct {
	s         *Session
	lifecycle slot // the lifecycle lock

	state       State
	runtime     Runtime
	lifetime    bridgev1.Lifetime
	timeout     time.Duration // of callbacks
	awaited     []string      // callbacks that were pending when the bridge last ended, until a runtime has the session
	shut        bool          // the work in the CLI's history has ended; a load does not continue it
	search      bool          // the caller that made the session looks for it in the CLI's history
	opening     chan struct{} // closed when the caller that made the session has opened it, or failed to
	handingOver bool          // another server is to continue the session
	ending      bool          // the use of the session is about to end, as the stored state has it
	uses        int           // calls of Hold that are not released; above zero the session stays loaded
	usedAt      time.Time     // end of the last use
}

// newLoader returns the loader of a session in the state Creating.
func newLoader(s *Session, timeout time.Duration) *Loader {
	if timeout <= 0 {
		timeout = callback.DefaultTimeout
	}
	return &Loader{
		s: s, lifecycle: make(slot, 1), opening: make(chan struct{}), timeout: timeout, usedAt: time.Now(),
	}
}

// exclusive calls f with the lifecycle lock held.
func (l *Loader) exclusive(ctx context.Context, f func() error) error {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return err
	}
	defer l.lifecycle.release()
	return f()
}

// State returns the stage of the session's life cycle.
func (l *Loader) State() State {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.state
}

// Usable returns SESSION_NOT_FOUND unless callers may use the session, and SESSION_UNAVAILABLE while it leaves this
// server.
func (l *Loader) Usable() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.usable()
}

// usable is Usable with the session's lock held.
func (l *Loader) usable() error {
	if l.handingOver { // first, because a session that has left is Deleted
		return fault.New(fault.SessionUnavailable, "session %q is moving to another server", l.s.id).
			With("session_id", l.s.id).WithRetry(leavingRetry)
	}
	switch l.state {
	case Disconnected:
		return Stored(l.s.id)
	case Deleted, Creating:
		return NotFound(l.s.id)
	}
	return nil
}

// Load returns the runtime that has the session. It loads the session if no runtime has it.
func (l *Loader) Load(ctx context.Context) (Runtime, error) {
	l.s.mu.Lock()
	rt, state, err := l.runtime, l.state, l.usable()
	l.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if state == Loaded {
		return rt, nil
	}
	if err := l.lifecycle.acquire(ctx); err != nil {
		return nil, err
	}
	defer l.lifecycle.release()
	return l.load(ctx)
}

// load is Load with the lifecycle lock held.
func (l *Loader) load(ctx context.Context) (Runtime, error) {
	l.s.mu.Lock()
	rt, state, err := l.runtime, l.state, l.usable()
	shut, goesOn := l.shut, !l.shut && !l.s.ingester.Known.Withdrawn
	l.s.ingester.Internal = state == Unloaded
	if err == nil && state != Loaded {
		err = l.s.settings.State.CredentialsNeeded(l.s.id)
	}
	l.s.mu.Unlock()
	defer l.setInternal(false)
	if err != nil || state == Loaded {
		return rt, err
	}
	// The bridge cannot know whether the CLI has a history of the session: the CLI may have accepted a
	// message and ended before it reported that. reload therefore tries the history first.
	var params jsonobj.Object
	// With disableResume, session.resume adds no event to the history. CLI 1.0.81 continues pending work
	// only if the resume adds one. The event also says that pending work has ended.
	params.SetBool("disableResume", l.s.callbacks.Registry().Len() == 0 && !shut)
	params.SetBool("continuePendingWork", goesOn)
	return l.enter(ctx, func(ctx context.Context, rt Runtime) error { return l.reload(ctx, rt, params, goesOn) })
}

// setInternal sets whether the events that follow are effects of the bridge's own work.
func (l *Loader) setInternal(on bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.ingester.Internal = on
}

// Answerable returns nil while callers may answer the session's callbacks. That includes the time in which
// the session is created, and, if the CLI needs answers to load the session, the time in which it is resumed.
func (l *Loader) Answerable() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.state == Creating || l.state != Deleted && l.s.settings.requires("") {
		return nil
	}
	return l.usable()
}

// in calls f with the runtime that has the session, as withLoaded does. It loads the session if no runtime has it.
func (l *Loader) in(ctx context.Context, f func(rt Runtime) error) error {
	defer l.Hold()()
	return l.withLoaded(ctx, l.Load, f)
}

// alone is in with the lifecycle lock held, for a call that changes what a resume gives the CLI.
func (l *Loader) alone(ctx context.Context, f func(rt Runtime) error) error {
	return l.exclusive(ctx, func() error { return l.withLoaded(ctx, l.load, f) })
}

// withLoaded calls f with the runtime that load returns. If the runtime loses the session before f's call reaches it,
// withLoaded does both once more.
func (l *Loader) withLoaded(ctx context.Context, load func(context.Context) (Runtime, error), f func(rt Runtime) error) error {
	rt, err := load(ctx)
	if err != nil {
		return err
	}
	if err = f(rt); !l.moved(ctx, rt, err) {
		return err
	}
	if rt, err = load(ctx); err != nil {
		return err
	}
	return f(rt)
}

// moved reports whether a call failed because the runtime no longer has the session: the session was unloaded
// at that moment, or the runtime has just ended.
func (l *Loader) moved(ctx context.Context, rt Runtime, err error) bool {
	if !mayHaveMoved(err) {
		return false
	}
	if fault.ReasonOf(err) == fault.RuntimeLost {
		select {
		case <-rt.Ended():
		case <-ctx.Done():
			return false
		}
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.runtime != rt && l.usable() == nil
}

// Invoke is Do for a method that the caller chose. The CLI may ask callbacks before it replies, so the call
// can last until callers have answered them. Meanwhile no warm resume runs (resumeLock), unless
// the method answers a callback.
func (l *Loader) Invoke(ctx context.Context, method string, params jsonobj.Object) (
	json.RawMessage, journal.Position, error) {
	return l.do(ctx, method, params, !callback.Answers(method))
}

// Do calls a method of the CLI for the session, which it loads if no runtime has it. It returns the result and
// the journal's last position when the reply was read.
func (l *Loader) Do(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	return l.do(ctx, method, params, false)
}

// do is Do. If it excludes resumes, none runs during the call. It does not exclude them while it waits for a load: a resume
// holds the lifecycle lock when it waits for calls.
func (l *Loader) do(ctx context.Context, method string, params jsonobj.Object, excludes bool) (
	json.RawMessage, journal.Position, error) {
	if cutsHistory(method) { // a turn that was interrupted is not continued in another conversation
		l.s.prompts.beginAbort(ctx)
		defer l.s.prompts.endAbort()
	}
	var result json.RawMessage
	var at journal.Position
	err := l.in(ctx, func(rt Runtime) (err error) {
		if excludes {
			calls := &l.s.participants.resumes
			if err := calls.beginCall(ctx); err != nil {
				return Classify(err, "")
			}
			defer calls.endCall()
		}
		result, at, err = l.s.call(ctx, rt, method, params)
		return err
	})
	if err == nil && changesQueue(method) {
		err = l.s.prompts.Edit(ctx)
	}
	if err == nil && cutsHistory(method) { // else the next owner of the session would restore what was cut
		err = l.s.awaitStored(ctx)
	}
	return result, at, err
}

// cutsHistory reports whether a method removes the end of the conversation.
func cutsHistory(method string) bool {
	return method == "session.history.rewind" || method == "session.history.truncate"
}

// changesQueue reports whether a method removes, adds, moves or edits messages in the CLI's queue.
func changesQueue(method string) bool {
	switch method {
	case "session.queue.clear", "session.queue.duplicateAt", "session.queue.insertAt", "session.queue.moveItem",
		"session.queue.removeAt", "session.queue.removeMostRecent",
		"session.queue.updateText", "session.queue.withdrawMessage":
		return true
	}
	return false
}

// call calls a method of the CLI with params and the session's id. It returns the result and the journal's last position
// when the reply was read.
func (s *Session) call(
	ctx context.Context, rt Runtime, method string, params jsonobj.Object, opts ...rpcconn.CallOption) (
	json.RawMessage, journal.Position, error) {
	if (method == "session.create" || method == "session.resume") && quirks.AgentsNeedNames.In(rt.Version()) {
		params = config.WithAgentNames(params)
	}
	params.SetString("sessionId", s.id)
	var at journal.Position
	opts = append(opts, rpcconn.OnReply(func() { at = s.journal.Last() }))
	result, err := rt.Call(ctx, method, params.JSON(), opts...)
	if err != nil {
		return nil, at, Classify(err, method)
	}
	return result, at, nil
}

// query is call for a method whose result is decoded.
func (s *Session) query(ctx context.Context, rt Runtime, method string, params jsonobj.Object, into any) error {
	result, _, err := s.call(ctx, rt, method, params)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s for session %q", method, s.id)
	}
	return nil
}
