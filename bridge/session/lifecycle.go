package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/settings"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Opening is how a session is created or resumed.
type Opening struct {
	// Config is the CLI's configuration without the tools; on a resume, what changes.
	Config jsonobj.Object
	// Tools are the session's own; nil on a resume keeps them.
	Tools *[]config.Tool
	// Handling is the session's own; nil on a resume keeps it.
	Handling *config.Handling
	Lifetime bridgev1.Lifetime
	// Timeout of callbacks; zero keeps it.
	Timeout time.Duration
	// ProviderRef is where Config's provider is from, if it is one of the bridge's own.
	ProviderRef string
	// Params are members for this call alone.
	Params jsonobj.Object
	// Join makes the caller a participant.
	Join *Joining
	// Anew, on a resume of a session that is disconnected, forgets what it was configured
	// with before, as the CLI does.
	Anew bool
	// ContinuePending, on a resume, keeps the pending tool calls and permissions.
	ContinuePending bool
}

// AnswersGitHubToken reports whether whoever opens the session gives the CLI its GitHub
// tokens when asked.
func (o Opening) AnswersGitHubToken() bool {
	return o.Handling != nil && slices.Contains(o.Handling.Methods, callback.GitHubToken) ||
		o.Join != nil && slices.Contains(o.Join.Handling.Methods, callback.GitHubToken)
}

// Ended is the note that the session's use is over.
type Ended struct{ Reason bridgev1.CloseReason }

// Restarted is the note that the session's runtime ended.
type Restarted struct {
	Turn  *turn.Outcome
	Cause string
}

// Create makes the session in a runtime.
func (s *Session) Create(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { s.audit.did(ctx, "session.create", err) }()
	if err := lock(ctx, s.gate); err != nil {
		return Joined{}, err
	}
	defer unlock(s.gate)
	joined, _, err := s.open(o)
	if err != nil {
		return joined, err
	}
	rt, err := s.host.Runtime(ctx)
	if err == nil {
		err = s.create(ctx, rt, s.settings.Traced(ctx, o.Params))
	}
	if err != nil {
		s.mu.Lock()
		s.state = Deleted
		s.mu.Unlock()
		return Joined{}, err
	}
	s.host.Changed(s, bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	return joined, nil
}

// open takes over what an Opening says. undo puts back what was before, but for the
// participant.
func (s *Session) open(o Opening) (_ Joined, undo func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undo = s.savepoint()
	if o.Anew && s.state == Disconnected {
		s.settings.State.Forget()
	}
	s.settings.State.Object = s.settings.State.Object.Merge(o.Config)
	has := func(member string) bool { return s.settings.State.Object.Get(member) != nil }
	if o.AnswersGitHubToken() && !has("provider") && !has(config.GitHubToken) && !has(config.TokenProvider) {
		s.settings.State.Object = s.settings.State.Object.Clone()
		s.settings.State.Object.SetString(config.TokenProvider, s.id)
	}
	for _, m := range o.Config {
		s.settings.State.Regained(m.Key)
	}
	if o.Tools != nil {
		s.settings.State.Tools = *o.Tools
		for p := range s.roster.All() {
			if err := s.roster.CheckTools(p.Tools, s.settings.State.Tools, p, "config.tools"); err != nil {
				undo()
				return Joined{}, nil, err
			}
		}
	}
	if o.Handling != nil {
		s.settings.State.Handling = *o.Handling
	}
	if o.Lifetime != bridgev1.Lifetime_LIFETIME_UNSPECIFIED {
		s.lifetime = o.Lifetime
	}
	if o.Timeout > 0 {
		s.timeout = o.Timeout
	}
	if o.ProviderRef != "" || o.Config.Get("provider") != nil { // which is its own without a name
		s.settings.State.ProviderRef = o.ProviderRef
	}
	if o.Join == nil {
		return Joined{}, undo, nil
	}
	joined, err := s.participants.Add(o.Join.In(s))
	if err != nil {
		undo()
		return Joined{}, nil, err
	}
	return joined, undo, nil
}

// savepoint returns a function that puts back what open changes. The caller holds mu.
func (s *Session) savepoint() (undo func()) {
	own, lifetime, timeout := s.settings.State, s.lifetime, s.timeout
	return func() { s.settings.State, s.lifetime, s.timeout = own, lifetime, timeout }
}

// create is session.create, with the gate held.
func (s *Session) create(ctx context.Context, rt Runtime, extra jsonobj.Object) error {
	s.mu.Lock()
	if err := s.settings.CheckProviders(); err != nil {
		s.mu.Unlock()
		return err
	}
	plan := s.participants.Plan()
	s.mu.Unlock()
	rt.Route(s)
	result, at, err := s.call(ctx, rt, "session.create", plan.Params.Merge(extra))
	if err != nil {
		rt.Unroute(s)
		return err
	}
	s.participants.Told(plan, result, at)
	s.loadedIn(rt)
	if err := s.participants.Attend(ctx, rt); err != nil {
		return err
	}
	return s.settings.Repeat(ctx, rt)
}

// loadedIn notes which runtime has the session. If that ended since it answered, nobody
// else will tell: a session that was not loaded in it had nothing to lose.
func (s *Session) loadedIn(rt Runtime) {
	s.mu.Lock()
	s.participants.Loaded()
	s.runtime, s.state, s.usedAt = rt, Loaded, time.Now()
	s.host.Keep(s)
	s.mu.Unlock()
	if cause := rt.Err(); cause != nil {
		s.RuntimeLost(rt, cause)
	}
}

// Resume opens the session again, or tells the CLI anew about one that is open.
func (s *Session) Resume(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { s.audit.did(ctx, "session.resume", err) }()
	if err := lock(ctx, s.gate); err != nil {
		return Joined{}, err
	}
	defer unlock(s.gate)
	if s.State() == Deleted {
		return Joined{}, NotFound(s.id)
	}
	joined, undo, err := s.open(o)
	if err != nil {
		return joined, err
	}
	if err := s.resume(ctx, o); err != nil {
		// What the CLI refused must not be in the way of every later load.
		s.mu.Lock()
		undo()
		s.mu.Unlock()
		if joined.Participant != nil && !joined.Returned {
			s.participants.Leave(joined.Participant)
		}
		return Joined{}, err
	}
	return joined, nil
}

func (s *Session) resume(ctx context.Context, o Opening) error {
	if s.State() == Unloaded {
		// That no runtime has it is the bridge's own affair: to its callers it is open.
		if _, err := s.loaded(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	rt, warm, continuing := s.runtime, s.state == Loaded, s.turns.Machine().Continuing()
	s.mu.Unlock()
	params := s.settings.Traced(ctx, o.Params)
	params.SetBool("continuePendingWork", o.ContinuePending)
	if warm {
		// The same call without disableResume: the caller's own, so it leaves its event.
		err := s.participants.WarmResume(ctx, rt, func(p *jsonobj.Object) {
			if !continuing {
				p.Set("disableResume", nil)
			}
			*p = p.Merge(params)
		})
		if err != nil {
			return err
		}
		return s.participants.Attend(ctx, rt)
	}
	s.mu.Lock()
	err := s.settings.State.CredentialsNeeded(s.id)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	rt, err = s.host.Runtime(ctx)
	if err != nil {
		return err
	}
	if err := s.checkUnused(ctx, rt); err != nil {
		return err
	}
	if err := s.reload(ctx, rt, params, o.ContinuePending); err != nil {
		return err
	}
	s.host.Changed(s, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	return nil
}

// checkUnused refuses a session that another process has open: the CLI's lock only
// advises, and two processes would fork its history. Where the CLI's processes are one
// program's own (Config.Shared), that is the program's affair.
func (s *Session) checkUnused(ctx context.Context, rt Runtime) error {
	if s.shared {
		return nil
	}
	result, err := rt.Call(ctx, "sessions.checkInUse", jsonobj.Object{{Key: "sessionIds", Value: quoteList(s.id)}}.JSON())
	if err != nil {
		return Classify(err, "sessions.checkInUse")
	}
	var r struct{ InUse []string }
	if json.Unmarshal(result, &r) == nil && len(r.InUse) > 0 {
		return fault.New(fault.SessionInUse, "session %q is open in another process", s.id).WithField("session_id").With("session_id", s.id)
	}
	return nil
}

func quoteList(items ...string) json.RawMessage {
	b, _ := json.Marshal(items) // strings always encode
	return b
}

// Loaded returns the runtime that has the session, loading it if need be.
func (s *Session) Loaded(ctx context.Context) (Runtime, error) {
	s.mu.Lock()
	rt, state, err := s.runtime, s.state, s.usable()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if state == Loaded {
		return rt, nil
	}
	if err := lock(ctx, s.gate); err != nil {
		return nil, err
	}
	defer unlock(s.gate)
	return s.loaded(ctx)
}

// loaded is Loaded with the gate held.
func (s *Session) loaded(ctx context.Context) (Runtime, error) {
	s.mu.Lock()
	rt, state, err := s.runtime, s.state, s.usable()
	s.intake.Internal = state == Unloaded
	if err == nil && state != Loaded {
		err = s.settings.State.CredentialsNeeded(s.id)
	}
	s.mu.Unlock()
	defer s.setInternal(false)
	if err != nil || state == Loaded {
		return rt, err
	}
	if rt, err = s.host.Runtime(ctx); err != nil {
		return nil, err
	}
	// Whether the CLI has a history of it only the CLI knows: it may have taken a message
	// and ended before it told us.
	var params jsonobj.Object
	// What is pending is worth an event in the history: CLI 1.0.81 continues nothing
	// in a resume that leaves none.
	params.SetBool("disableResume", s.callbacks.Registry().Len() == 0)
	params.SetBool("continuePendingWork", true)
	err = s.reload(ctx, rt, params, true)
	return rt, err
}

func (s *Session) setInternal(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intake.Internal = on
}

// RuntimeLost notes that a runtime has ended, and reports whether somebody waits for the
// session, so that it had better be loaded again at once; else it is when needed.
func (s *Session) RuntimeLost(rt Runtime, cause error) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runtime != rt || s.state != Loaded {
		return false
	}
	s.intake.End()
	s.models.Drop()
	s.participants.CloseSatellites()
	s.participants.Unloaded()
	s.state, s.runtime = Unloaded, nil
	s.sender.RuntimeEnded()
	s.turns.Machine().Heard(time.Now()) // from now on somebody has to load it
	outcome := s.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	s.callbacks.Withdraw(func(p *callback.Pending) bool { return !p.Kind.Survives }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	s.journal.Note(Restarted{Turn: outcome, Cause: cause.Error()})
	return outcome != nil || !s.prompts.Box().Empty() || s.roster.Len() > 0 || s.callbacks.Registry().Len() > 0 || s.journal.Watched()
}

// Disconnect ends the use of the session, and reports whether it did: without force it
// does not while participants are attached.
func (s *Session) Disconnect(ctx context.Context, force bool) (bool, error) {
	return s.disconnect(ctx, func(*roster.Participant) bool { return !force })
}

// DisconnectWith is Disconnect for a participant that is about to leave, and keeps its place
// until the CLI has let go of the session: the CLI may ask it something yet.
func (s *Session) DisconnectWith(ctx context.Context, leaving *roster.Participant) (bool, error) {
	return s.disconnect(ctx, func(p *roster.Participant) bool { return p != leaving })
}

// disconnect ends the use of the session unless a participant is in the way.
func (s *Session) disconnect(ctx context.Context, inTheWay func(*roster.Participant) bool) (bool, error) {
	if err := lock(ctx, s.gate); err != nil {
		return false, err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	state, rt := s.state, s.runtime
	attached := s.roster.Any(inTheWay)
	s.mu.Unlock()
	switch {
	case attached:
		return false, nil
	case state == Disconnected: // by another who left at the same time
		return true, nil
	}
	if state == Loaded {
		s.participants.LeaveSatellites(ctx)
		if _, _, err := s.call(ctx, rt, "session.destroy", nil); err != nil && fault.ReasonOf(err) != fault.SessionNotFound && fault.ReasonOf(err) != fault.RuntimeLost {
			return false, err
		}
	}
	if state != Deleted {
		s.audit.did(ctx, "session.disconnect", nil)
		s.end(Disconnected, bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED)
		s.host.Changed(s, bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED)
	}
	return true, nil
}

// Delete deletes the session for good.
func (s *Session) Delete(ctx context.Context) (err error) {
	defer func() { s.audit.did(ctx, "session.delete", err) }()
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	if err := s.Usable(); err != nil {
		return err
	}
	rt, err := s.host.Runtime(ctx)
	if err != nil {
		return err
	}
	result, _, err := s.call(ctx, rt, "session.delete", nil)
	if err != nil {
		return err
	}
	if err := settings.Refused(result, "session.delete"); err != nil && s.wasUsed() {
		return err
	}
	s.end(Deleted, bridgev1.CloseReason_CLOSE_REASON_DELETED)
	s.host.Changed(s, bridgev1.SessionChange_SESSION_CHANGE_DELETED)
	return nil
}

// Park ends what is in memory of a disconnected session, and reports whether it did: not
// while somebody resumes it. The session is not to be used after.
func (s *Session) Park() bool {
	select {
	case s.gate <- struct{}{}:
	default:
		return false
	}
	defer unlock(s.gate)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Disconnected {
		return false
	}
	s.state = Deleted
	return true
}

func (s *Session) wasUsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intake.Marks.HasHistory
}

// end ends the use of the session for everybody.
func (s *Session) end(state State, reason bridgev1.CloseReason) {
	defer s.prompts.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runtime != nil {
		s.runtime.Unroute(s)
	}
	s.intake.End()
	s.models.Drop()
	s.participants.CloseSatellites()
	s.participants.Unloaded()
	s.state, s.runtime = state, nil
	s.sender.RuntimeEnded()
	s.roster.Clear()
	s.host.Keep(s)
	s.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_ABORTED)
	s.prompts.Clear()
	s.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
	s.journal.Note(Ended{reason})
}
