package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// Settings is the configuration of a session. It sends the configuration to the CLI again after each load, and checks
// that the callbacks that the session needs have handlers.
//
// It also stores the calls by which callers changed the session in the CLI later (rememberedCalls of package
// passthrough, at most 512 for a session), because the CLI forgets their effects too, and repeats them after each load.
//
// The session's lock guards State and needs. A method says when its caller holds the lock; all other methods take it.
type Settings struct {
	// State is the configuration that callers have set.
	State config.State

	s *Session
	// needs are the methods that the session's handlers have to answer.
	needs []string
	// trials are changes that the CLI has not accepted yet, oldest first. They are not saved: no process could load a
	// session with a configuration that the CLI refuses.
	trials []*trial
	// telling is held while the CLI is told what was set later: by a call that sets something, and by a load. A load would
	// else repeat an older mode behind a newer one. Warm resumes repeat none of it, and are not waited for.
	telling slot
}

// trial is a change of a configuration.
type trial struct{ before, after config.State }

// try makes a change, which runs with mu held and leaves State as it is if it fails, and gives the CLI the configuration. It
// takes back what the CLI refuses, except what others have changed since.
func (st *Settings) try(change, give func() error) error {
	st.s.mu.Lock()
	t := &trial{before: st.State}
	if err := change(); err != nil {
		st.State = t.before
		st.s.mu.Unlock()
		return err
	}
	t.after = st.State
	st.trials = append(st.trials, t)
	st.s.mu.Unlock()
	err := give()
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	at := slices.Index(st.trials, t)
	later := st.trials[at+1:]
	st.trials = slices.Concat(st.trials[:at], later)
	if err != nil {
		st.State.Undo(t.before, t.after)
		for _, l := range later {
			l.before.Undo(t.before, t.after)
			l.after.Undo(t.before, t.after)
		}
	}
	st.s.markDirty()
	return err
}

// accepted returns the configuration without changes that the CLI has not accepted yet. The caller holds mu.
func (st *Settings) accepted() config.State {
	state := st.State
	for _, t := range slices.Backward(st.trials) {
		state.Undo(t.before, t.after)
	}
	return state
}

// Apply makes a call that sets something, and remembers it for the next load.
func (st *Settings) Apply(
	ctx context.Context, method string, params jsonobj.Object, keep config.Keep,
) (json.RawMessage, journal.Position, error) {
	st.s.mu.Lock()
	full := st.State.Full(keep.Key)
	var given []string
	if !full {
		// The secrets that a setting of an earlier process carried are in this call: the
		// session can be loaded for it if nothing else is missing.
		given = st.State.Regained(method)
	}
	st.s.mu.Unlock()
	if full {
		err := fault.New(fault.LimitExceeded, "the session remembers %d settings already", config.MaxSettings)
		return nil, journal.Position{}, err.With("limit", "session settings")
	}
	var result json.RawMessage
	var at journal.Position
	err := st.s.loader.in(ctx, func(rt Runtime) (err error) {
		if err := st.telling.acquire(ctx); err != nil {
			return err
		}
		defer st.telling.release()
		if result, at, err = st.s.call(ctx, rt, method, params.Clone()); err != nil || Refused(result, method) != nil {
			return err
		}
		st.s.mu.Lock()
		defer st.s.mu.Unlock()
		st.State.Remember(config.Setting{Key: keep.Key, Method: method, Params: params}, keep.Merge)
		st.s.markDirty()
		return nil
	})
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if err != nil && st.s.loader.state != Disconnected {
		st.State.Lack(given...)
	}
	return result, at, err
}

// Refused turns a result of {"success": false} into an error.
func Refused(result json.RawMessage, method string) error {
	var r struct {
		Success *bool
		Error   string
	}
	if json.Unmarshal(result, &r) != nil || r.Success == nil || *r.Success {
		return nil
	}
	if r.Error == "" {
		r.Error = "the CLI refused " + method
	}
	return fault.New(fault.SessionRefused, "%s", r.Error).With("method", method)
}

// approve remembers settings that stand for an approval. The caller holds the lock.
func (st *Settings) approve(settings []config.Setting) {
	if st.State.Approve(settings) {
		st.s.markDirty()
	}
}

// repeat makes the calls that set something again, in a runtime that has just loaded the session. A
// setting that the CLI refuses, such as that of a server which is gone, is left out.
func (st *Settings) repeat(ctx context.Context, rt Runtime) error {
	st.s.mu.Lock()
	settings := st.State.Settings
	st.s.mu.Unlock()
	for _, one := range settings {
		_, _, err := st.s.call(ctx, rt, one.Method, one.Params.Clone())
		switch {
		case err == nil:
		case fault.ReasonOf(err) == fault.RuntimeLost || ctx.Err() != nil:
			return err
		default:
			st.s.host.Logger().Error("restoring a setting failed", "session_id", st.s.id, "method", one.Method, "error", err)
		}
	}
	return nil
}

// SetTools replaces the session's own tools.
func (st *Settings) SetTools(ctx context.Context, tools []config.Tool) (journal.Position, error) {
	err := st.try(func() error {
		st.State.Tools = tools
		return st.s.roster.CheckTools(tools, nil, nil, "tools")
	}, func() error { return st.s.participants.sync(ctx) })
	if err != nil {
		return journal.Position{}, err
	}
	return st.s.journal.Last(), nil
}

// Lack records that secrets of the session are missing.
func (st *Settings) Lack(paths ...string) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.State.Lack(paths...)
}

// Regained records that a caller has set the secrets under a member again. It returns their paths.
func (st *Settings) Regained(member string) (given []string) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.State.Regained(member)
}

// traced returns a copy of the parameters of a create or resume with the trace context of the call
// that asks for it, unless they or the configuration name one.
func (st *Settings) traced(ctx context.Context, params jsonobj.Object) jsonobj.Object {
	st.s.mu.Lock()
	named := st.State.Object.String("traceparent")
	st.s.mu.Unlock()
	params = params.Clone()
	if named == "" && params.String("traceparent") == "" {
		putTrace(&params, observe.Of(ctx))
	}
	return params
}

// RequireHandlers has the session's handlers answer these callbacks. The CLI asks from the moment
// it opens the session, and cannot use the session without an answer.
func (st *Settings) RequireHandlers(methods ...string) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.needs = methods
}

// Provides reports whether the session's handlers provide something for the CLI process.
func (st *Settings) Provides() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return len(st.needs) > 0
}

// requires reports whether the session's handlers have to answer a method, or with "" any. The
// caller holds the lock.
func (st *Settings) requires(method string) bool {
	return method == "" && len(st.needs) > 0 || slices.Contains(st.needs, method)
}

// checkProviders returns HANDLER_MISSING if a method that the session needs has no handler: neither
// one of the session's own nor a participant that is connected. The caller holds the lock.
func (st *Settings) checkProviders() error {
	for _, method := range st.needs {
		if !slices.Contains(st.State.Handling.Methods, method) && !st.s.roster.Answers(method) {
			return fault.New(fault.HandlerMissing, "no participant handles %s, which session %q needs",
				method, st.s.id).With("session_id", st.s.id).With("method", method)
		}
	}
	return nil
}
