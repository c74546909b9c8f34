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
func (l *Loader) Create(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { l.cfg.audit.did(ctx, "session.create", err) }()
	if err := l.acquire(ctx); err != nil {
		return Joined{}, err
	}
	defer l.release()
	joined, _, err := l.open(o)
	if err != nil {
		return joined, err
	}
	rt, err := l.cfg.newRuntime(ctx)
	if err == nil {
		err = l.create(ctx, rt, l.cfg.settings.Traced(ctx, o.Params))
	}
	if err != nil {
		l.mu.Lock()
		l.state = Deleted
		l.mu.Unlock()
		return Joined{}, err
	}
	l.cfg.changed(bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	return joined, nil
}

// open takes over what an Opening says. undo puts back what was before, but for the
// participant.
func (l *Loader) open(o Opening) (_ Joined, undo func(), _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, lifetime, timeout := l.cfg.settings.State, l.lifetime, l.timeout
	undo = func() { l.cfg.settings.State, l.lifetime, l.timeout = own, lifetime, timeout }
	if o.Anew && l.state == Disconnected {
		l.cfg.settings.State.Forget()
	}
	l.cfg.settings.State.Object = l.cfg.settings.State.Object.Merge(o.Config)
	has := func(member string) bool { return l.cfg.settings.State.Object.Get(member) != nil }
	if o.AnswersGitHubToken() && !has("provider") && !has(config.GitHubToken) && !has(config.TokenProvider) {
		l.cfg.settings.State.Object = l.cfg.settings.State.Object.Clone()
		l.cfg.settings.State.Object.SetString(config.TokenProvider, l.cfg.calls.id)
	}
	for _, m := range o.Config {
		l.cfg.settings.State.Regained(m.Key)
	}
	if o.Tools != nil {
		l.cfg.settings.State.Tools = *o.Tools
		for p := range l.cfg.roster.All() {
			if err := l.cfg.roster.CheckTools(p.Tools, l.cfg.settings.State.Tools, p, "config.tools"); err != nil {
				undo()
				return Joined{}, nil, err
			}
		}
	}
	if o.Handling != nil {
		l.cfg.settings.State.Handling = *o.Handling
	}
	if o.Lifetime != bridgev1.Lifetime_LIFETIME_UNSPECIFIED {
		l.lifetime = o.Lifetime
	}
	if o.Timeout > 0 {
		l.timeout = o.Timeout
	}
	if o.ProviderRef != "" || o.Config.Get("provider") != nil { // which is its own without a name
		l.cfg.settings.State.ProviderRef = o.ProviderRef
	}
	if o.Join == nil {
		return Joined{}, undo, nil
	}
	joined, err := l.cfg.place(o.Join)
	if err != nil {
		undo()
		return Joined{}, nil, err
	}
	return joined, undo, nil
}

// create is session.create, with the lifecycle lock held.
func (l *Loader) create(ctx context.Context, rt Runtime, extra jsonobj.Object) error {
	l.mu.Lock()
	if err := l.cfg.settings.CheckProviders(); err != nil {
		l.mu.Unlock()
		return err
	}
	plan := l.cfg.participants.Plan()
	l.mu.Unlock()
	l.cfg.route(rt)
	result, at, err := l.cfg.calls.call(ctx, rt, "session.create", plan.Params.Merge(extra))
	if err != nil {
		l.cfg.unroute(rt)
		return err
	}
	l.cfg.participants.Told(plan, result, at)
	l.loadedIn(rt)
	if err := l.cfg.participants.Attend(ctx, rt); err != nil {
		return err
	}
	return l.cfg.settings.Repeat(ctx, rt)
}

// loadedIn notes which runtime has the session. If that ended since it answered, nobody
// else will tell: a session that was not loaded in it had nothing to lose.
func (l *Loader) loadedIn(rt Runtime) {
	l.mu.Lock()
	l.cfg.participants.Loaded()
	l.runtime, l.state, l.usedAt = rt, Loaded, time.Now()
	l.cfg.tx.Keep()
	l.mu.Unlock()
	if cause := rt.Err(); cause != nil {
		l.RuntimeLost(rt, cause)
	}
}

// Resume opens the session again, or tells the CLI anew about one that is open.
func (l *Loader) Resume(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { l.cfg.audit.did(ctx, "session.resume", err) }()
	if err := l.acquire(ctx); err != nil {
		return Joined{}, err
	}
	defer l.release()
	if l.State() == Deleted {
		return Joined{}, NotFound(l.cfg.calls.id)
	}
	joined, undo, err := l.open(o)
	if err != nil {
		return joined, err
	}
	if err := l.resume(ctx, o); err != nil {
		// What the CLI refused must not be in the way of every later load.
		l.mu.Lock()
		undo()
		l.mu.Unlock()
		if joined.Participant != nil && !joined.Returned {
			l.cfg.participants.Leave(joined.Participant)
		}
		return Joined{}, err
	}
	return joined, nil
}

func (l *Loader) resume(ctx context.Context, o Opening) error {
	if l.State() == Unloaded {
		// That no runtime has it is the bridge's own affair: to its callers it is open.
		if _, err := l.load(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	rt, warm, continuing := l.runtime, l.state == Loaded, l.cfg.turns.Machine().Continuing()
	l.mu.Unlock()
	params := l.cfg.settings.Traced(ctx, o.Params)
	params.SetBool("continuePendingWork", o.ContinuePending)
	if warm {
		// The same call without disableResume: the caller's own, so it leaves its event.
		err := l.cfg.participants.WarmResume(ctx, rt, func(p *jsonobj.Object) {
			if !continuing {
				p.Set("disableResume", nil)
			}
			*p = p.Merge(params)
		})
		if err != nil {
			return err
		}
		return l.cfg.participants.Attend(ctx, rt)
	}
	l.mu.Lock()
	err := l.cfg.settings.State.CredentialsNeeded(l.cfg.calls.id)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	rt, err = l.cfg.newRuntime(ctx)
	if err != nil {
		return err
	}
	if err := l.checkUnused(ctx, rt); err != nil {
		return err
	}
	if err := l.reload(ctx, rt, params, o.ContinuePending); err != nil {
		return err
	}
	l.cfg.changed(bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	return nil
}

// checkUnused refuses a session that another process has open: the CLI's lock only
// advises, and two processes would fork its history. Where the CLI's processes are one
// program's own (Config.Shared), that is the program's affair.
func (l *Loader) checkUnused(ctx context.Context, rt Runtime) error {
	if l.cfg.shared {
		return nil
	}
	id := l.cfg.calls.id
	result, err := rt.Call(ctx, "sessions.checkInUse", jsonobj.Object{{Key: "sessionIds", Value: quoteList(id)}}.JSON())
	if err != nil {
		return Classify(err, "sessions.checkInUse")
	}
	var r struct{ InUse []string }
	if json.Unmarshal(result, &r) == nil && len(r.InUse) > 0 {
		return fault.New(fault.SessionInUse, "session %q is open in another process", id).
			WithField("session_id").With("session_id", id)
	}
	return nil
}

func quoteList(items ...string) json.RawMessage {
	b, _ := json.Marshal(items) // strings always encode
	return b
}
