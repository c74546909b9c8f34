// Package settings owns the configuration of one session. It sends the configuration to the CLI again after
// each load, and checks that the callbacks that the session needs have handlers.
//
// It also stores the calls by which callers changed the session in the CLI later (rememberedCalls of package
// passthrough, at most 512 for a session), because the CLI forgets their effects too, and repeats them after each load.
//
// The session's lock guards a Settings with its exported field. A method says when its caller holds the lock;
// all other methods take it. Changes of the session in a runtime run in Config.Exclusive, whose lock comes
// before the session's lock. The package has no goroutine.
package settings

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/participants"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
)

// Tx is the session while its lock is held.
type Tx interface {
	// Loaded reports whether a runtime has the session.
	Loaded() bool
	// Disconnected reports whether the use of the session has ended.
	Disconnected() bool
	// MarkDirty schedules a save of the session.
	MarkDirty()
}

// Config is what a Settings needs of its session.
type Config struct {
	// Session is the session's id.
	Session string
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock         sync.Locker
	Tx           Tx
	Journal      *journal.Journal
	Roster       *roster.Roster
	Turns        *turns.Turns
	Participants *participants.Manager
	// Exclusive calls f while nothing else changes the session in a runtime.
	Exclusive func(ctx context.Context, f func() error) error
	// Load returns the runtime that has the session, loading it if need be. It is called in
	// Exclusive.
	Load func(ctx context.Context) (participants.Runtime, error)
	// Do makes a call about the session, loading it if need be; Call makes it in a runtime. Both
	// return the journal's position when the reply was read.
	Do   func(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error)
	Call func(ctx context.Context, rt participants.Callee, method string, params jsonobj.Object) (
		json.RawMessage, journal.Position, error)
	Logger func() *slog.Logger
}

// Settings is the configuration of a session. New makes one.
type Settings struct {
	// State is the configuration that callers have set.
	State config.State

	cfg Config
	// needs are the methods that the session's handlers have to answer.
	needs []string
}

// New returns empty settings.
func New(cfg Config) *Settings { return &Settings{cfg: cfg} }

// Apply makes a call that sets something, and remembers it for the next load.
func (s *Settings) Apply(
	ctx context.Context, method string, params jsonobj.Object, keep config.Keep,
) (json.RawMessage, journal.Position, error) {
	s.cfg.Lock.Lock()
	full := s.State.Full(keep.Key)
	var given []string
	if !full {
		// The secrets that a setting of an earlier process carried are in this call: the
		// session can be loaded for it if nothing else is missing.
		given = s.State.Regained(method)
	}
	s.cfg.Lock.Unlock()
	if full {
		err := fault.New(fault.LimitExceeded, "the session remembers %d settings already", config.MaxSettings)
		return nil, journal.Position{}, err.With("limit", "session settings")
	}
	result, at, err := s.cfg.Do(ctx, method, params.Clone())
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	switch {
	case err != nil && !s.cfg.Tx.Disconnected():
		s.State.Lack(given...)
	case err == nil && Refused(result, method) == nil:
		s.State.Remember(config.Setting{Key: keep.Key, Method: method, Params: params}, keep.Merge)
		s.cfg.Tx.MarkDirty()
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

// Approve remembers settings that stand for an approval. The caller holds the lock.
func (s *Settings) Approve(settings []config.Setting) {
	if s.State.Approve(settings) {
		s.cfg.Tx.MarkDirty()
	}
}

// Repeat makes the calls that set something again, in a runtime that has just loaded the session. A
// setting that the CLI refuses, such as that of a server which is gone, is left out.
func (s *Settings) Repeat(ctx context.Context, rt participants.Callee) error {
	s.cfg.Lock.Lock()
	settings := s.State.Settings
	s.cfg.Lock.Unlock()
	for _, one := range settings {
		_, _, err := s.cfg.Call(ctx, rt, one.Method, one.Params.Clone())
		switch {
		case err == nil:
		case fault.ReasonOf(err) == fault.RuntimeLost || ctx.Err() != nil:
			return err
		default:
			s.cfg.Logger().Error("restoring a setting failed", "session_id", s.cfg.Session, "method", one.Method, "error", err)
		}
	}
	return nil
}

// SetTools replaces the session's own tools.
func (s *Settings) SetTools(ctx context.Context, tools []config.Tool) (journal.Position, error) {
	s.cfg.Lock.Lock()
	before := s.State.Tools
	if err := s.cfg.Roster.CheckTools(tools, nil, nil, "tools"); err != nil {
		s.cfg.Lock.Unlock()
		return journal.Position{}, err
	}
	s.State.Tools = tools
	s.cfg.Lock.Unlock()
	err := s.cfg.Participants.Sync(ctx)
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	if err != nil {
		s.State.Tools = before
		return journal.Position{}, err
	}
	s.cfg.Tx.MarkDirty()
	return s.cfg.Journal.Last(), nil
}

// Lack records that secrets of the session are missing.
func (s *Settings) Lack(paths ...string) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	s.State.Lack(paths...)
}

// Regained records that a caller has set the secrets under a member again. It returns their paths.
func (s *Settings) Regained(member string) (given []string) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	return s.State.Regained(member)
}

// Traced returns a copy of the parameters of a create or resume with the trace context of the call
// that asks for it, unless they or the configuration name one.
func (s *Settings) Traced(ctx context.Context, params jsonobj.Object) jsonobj.Object {
	s.cfg.Lock.Lock()
	named := s.State.Object.String("traceparent")
	s.cfg.Lock.Unlock()
	params = params.Clone()
	if named == "" && params.String("traceparent") == "" {
		turns.PutTrace(&params, observe.Of(ctx))
	}
	return params
}

// RequireHandlers has the session's handlers answer these callbacks. The CLI asks from the moment
// it opens the session, and cannot use the session without an answer.
func (s *Settings) RequireHandlers(methods ...string) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	s.needs = methods
}

// Provides reports whether the session's handlers provide something for the CLI process.
func (s *Settings) Provides() bool {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	return len(s.needs) > 0
}

// Requires reports whether the session's handlers have to answer a method, or with "" any. The
// caller holds the lock.
func (s *Settings) Requires(method string) bool {
	return method == "" && len(s.needs) > 0 || slices.Contains(s.needs, method)
}

// CheckProviders returns HANDLER_MISSING if a method that the session needs has no handler: neither
// one of the session's own nor a participant that is connected. The caller holds the lock.
func (s *Settings) CheckProviders() error {
	for _, method := range s.needs {
		if !slices.Contains(s.State.Handling.Methods, method) && !s.cfg.Roster.Answers(method) {
			return fault.New(fault.HandlerMissing, "no participant handles %s, which session %q needs",
				method, s.cfg.Session).With("session_id", s.cfg.Session).With("method", method)
		}
	}
	return nil
}
