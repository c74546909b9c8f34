package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Opening has the parameters with which a caller creates or resumes a session.
type Opening struct {
	// Config is the CLI's configuration without the tools. A resume merges it into the session's configuration.
	Config jsonobj.Object
	// Removed are members that a resume removes from the session's configuration before it merges Config.
	Removed []string
	// Tools are the tools of the session itself. A resume with nil does not change them.
	Tools *[]config.Tool
	// Handling selects the callbacks that callers of Resolve answer for the session itself. A resume with
	// nil does not change it.
	Handling *config.Handling
	Lifetime bridgev1.Lifetime
	// Timeout is the time limit of callbacks. Zero does not change it.
	Timeout time.Duration
	// ProviderRef names the configured model provider that Config's provider is a copy of. It is empty for a
	// provider of the caller.
	ProviderRef string
	// Labels are the session's first labels. A resume with nil does not change them.
	Labels map[string]string
	// NodeLabels are the labels of servers that can have a new session.
	NodeLabels map[string]string
	// OnInterruption is what happens when a turn ends with its runtime. Zero does not change it.
	OnInterruption bridgev1.OnInterruption
	// Exact requests the CLI's own behaviour where the bridge's checks are stricter.
	Exact bool
	// Params are members of this call that the session does not remember.
	Params jsonobj.Object
	// Join, if set, makes the caller a participant.
	Join *Joining
	// Found says that another caller has made the session, which may still be opening it. A resume waits for that.
	Found bool
	// Anew discards the earlier configuration when a disconnected session is resumed. The CLI does the same.
	Anew bool
	// ContinuePending makes a resume continue pending tool calls and permissions. Otherwise they are withdrawn.
	ContinuePending bool
}

// AnswersGitHubToken reports whether the caller answers the CLI's requests for GitHub tokens, for the session
// or as a participant.
func (o Opening) AnswersGitHubToken() bool {
	return o.Handling != nil && slices.Contains(o.Handling.Methods, callback.GitHubToken) ||
		o.Join != nil && slices.Contains(o.Join.Handling.Methods, callback.GitHubToken)
}

// Create creates the session in a runtime. After an error no runtime has the session, and it must not be used.
func (l *Loader) Create(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { l.s.audit.did(ctx, "session.create", err) }()
	if err := l.lifecycle.acquire(ctx); err != nil {
		return Joined{}, err
	}
	defer l.lifecycle.release()
	if err := l.checkNames(ctx, o); err != nil {
		return Joined{}, err
	}
	joined, err := l.open(o)
	if err != nil {
		return joined, err
	}
	params := l.s.settings.traced(ctx, o.Params)
	rt, err := l.enter(ctx, func(ctx context.Context, rt Runtime) error { return l.create(ctx, rt, params, func() {}) })
	if err == nil && ctx.Err() != nil {
		err = l.uncreate(ctx, rt)
	}
	if err != nil {
		l.s.mu.Lock()
		l.state = Deleted
		l.s.mu.Unlock()
		return Joined{}, err
	}
	l.s.host.Changed(bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	return joined, nil
}

// uncreate removes a session from its runtime whose caller did not wait for its creation, and returns the caller's error.
func (l *Loader) uncreate(ctx context.Context, rt Runtime) error {
	l.s.mu.Lock()
	l.state = Unloaded
	l.s.mu.Unlock()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), linger)
	defer cancel()
	_ = l.destroy(late, rt) // else it goes with the runtime
	return Classify(ctx.Err(), "session.create")
}

// checkNames refuses tools and commands of an Opening that have the names of the CLI's own.
func (l *Loader) checkNames(ctx context.Context, o Opening) error {
	if o.Exact {
		return nil
	}
	var tools []config.Tool
	if o.Tools != nil {
		tools = *o.Tools
	}
	commands := config.CommandsAsGiven(o.Config.Get("commands"))
	err := l.s.participants.CheckNames(ctx, tools, commands, "config.")
	if err == nil && o.Join != nil {
		err = l.s.participants.CheckNames(ctx, o.Join.Tools, o.Join.Commands, "")
	}
	return err
}

// open applies an Opening to the configuration of a session that does not exist yet, and adds the participant.
func (l *Loader) open(o Opening) (joined Joined, err error) {
	return joined, l.s.settings.try(func() (err error) {
		joined, err = l.apply(o)
		return err
	}, func() error { return nil }) // it is not saved before the CLI has accepted it
}

// apply is open with mu held.
func (l *Loader) apply(o Opening) (Joined, error) {
	if o.Anew && l.state == Disconnected {
		l.s.settings.State.Forget()
	}
	if err := l.s.settings.State.Remove(o.Removed); err != nil {
		return Joined{}, err
	}
	l.s.settings.State.Object = l.s.settings.State.Object.Merge(o.Config)
	has := func(member string) bool { return l.s.settings.State.Object.Get(member) != nil }
	if o.AnswersGitHubToken() && !has("provider") && !has(config.GitHubToken) && !has(config.TokenProvider) {
		l.s.settings.State.Object = l.s.settings.State.Object.Clone()
		l.s.settings.State.Object.SetString(config.TokenProvider, l.s.id)
	}
	for _, m := range o.Config {
		l.s.settings.State.Regained(m.Key)
	}
	l.s.settings.State.Regained(o.Removed...)
	if o.Tools != nil {
		l.s.settings.State.Tools = *o.Tools
		for p := range l.s.roster.All() {
			if err := l.s.roster.CheckTools(p.Tools, l.s.settings.State.Tools, p, "config.tools"); err != nil {
				return Joined{}, err
			}
		}
	}
	if o.Handling != nil {
		l.s.settings.State.Handling = *o.Handling
	}
	if o.Labels != nil {
		l.s.settings.State.Labels = o.Labels
	}
	if o.NodeLabels != nil {
		l.s.settings.State.NodeLabels = o.NodeLabels
	}
	if o.Lifetime != bridgev1.Lifetime_LIFETIME_UNSPECIFIED {
		l.lifetime = o.Lifetime
	}
	if o.OnInterruption != bridgev1.OnInterruption_ON_INTERRUPTION_UNSPECIFIED {
		l.s.settings.State.Continues = o.OnInterruption == bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE
	}
	if o.Timeout > 0 {
		l.timeout = o.Timeout
	}
	if o.ProviderRef != "" || o.Config.Get("provider") != nil || slices.Contains(o.Removed, "provider") {
		// A caller's provider has no name.
		l.s.settings.State.ProviderRef = o.ProviderRef
	}
	if o.Join == nil {
		return Joined{}, nil
	}
	return l.s.participants.add(*o.Join)
}

// create calls session.create and applies the result. It calls created before others can use the session: prompts that the
// session owes the CLI precede theirs. The caller holds the lifecycle lock.
func (l *Loader) create(ctx context.Context, rt Runtime, extra jsonobj.Object, created func()) error {
	l.s.mu.Lock()
	if err := l.s.settings.checkProviders(); err != nil {
		l.s.mu.Unlock()
		return err
	}
	plan := l.s.participants.plan()
	l.s.mu.Unlock()
	if err := rt.Route(l.s); err != nil {
		return err
	}
	result, at, err := l.s.call(ctx, rt, "session.create", plan.Params.Merge(extra))
	if err != nil {
		rt.Unroute(l.s)
		return err
	}
	l.s.participants.Received(plan, result, at)
	created()
	l.loadedIn(rt)
	if err := l.s.participants.attend(ctx, rt); err != nil {
		return err
	}
	return l.s.settings.repeat(ctx, rt)
}

// loadedIn records that a runtime has the session. If the runtime has ended since its reply, loadedIn handles
// the end: the runtime reports its end only to the sessions that were loaded at that time.
func (l *Loader) loadedIn(rt Runtime) {
	l.s.mu.Lock()
	l.s.participants.loaded()
	opened := l.state == Disconnected || l.shut
	l.runtime, l.state, l.usedAt, l.awaited = rt, Loaded, time.Now(), nil
	l.shut, l.s.prompts.leavesUnseen = false, false
	l.s.markDirty()
	l.s.participants.followUp()
	if opened { // also if what follows fails
		l.s.host.Changed(bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	}
	l.s.mu.Unlock()
	if cause := rt.Err(); cause != nil {
		l.RuntimeLost(rt, cause)
	}
}

// ErrGone is in the error of a Resume whose session was removed before the Resume could begin: another caller deleted the
// session, or made it to look for it in the CLI's history and did not find it. The id may have another session since.
var ErrGone = errors.New("the session was removed meanwhile")

// gone is the error of a Resume of a session that is Deleted.
func (l *Loader) gone() error {
	err := l.Usable()
	if fault.ReasonOf(err) != fault.SessionNotFound { // it moves to another server
		return err
	}
	f := fault.Wrap(ErrGone, fault.SessionNotFound, "").WithField("session_id").With("session_id", l.s.id)
	f.Message = err.Error()
	return f
}

// Search notes that the caller that made the session looks for it in the CLI's history: until Opened, it is not known
// whether the session exists.
func (l *Loader) Search() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.search = true
}

// Opened notes that the caller that made the session has created or resumed it, or failed to. Others wait for that.
func (l *Loader) Opened() { close(l.opening) }

// awaitOpened waits for Opened.
func (l *Loader) awaitOpened(ctx context.Context) error {
	select {
	case <-l.opening:
		return nil
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

// Exists reports whether the session exists, or is being created. While a resume looks for it, Exists waits for the end of
// that.
func (l *Loader) Exists(ctx context.Context) (bool, error) {
	l.s.mu.Lock()
	state, searched := l.state, l.search && l.state == Creating
	l.s.mu.Unlock()
	if !searched {
		return state != Deleted, nil
	}
	if err := l.awaitOpened(ctx); err != nil {
		return false, err
	}
	state = l.State()
	return state != Deleted && state != Creating, nil
}

// Resume opens a disconnected session again. If the session is open, Resume sends the CLI the changed
// configuration.
func (l *Loader) Resume(ctx context.Context, o Opening) (_ Joined, err error) {
	defer func() { l.s.audit.did(ctx, "session.resume", err) }()
	if o.Found && l.State() == Creating {
		if err := l.awaitOpened(ctx); err != nil {
			return Joined{}, err
		}
	}
	if err := l.lifecycle.acquire(ctx); err != nil {
		return Joined{}, err
	}
	defer l.lifecycle.release()
	if state := l.State(); state == Deleted || o.Found && state == Creating {
		return Joined{}, l.gone()
	}
	if err := l.checkNames(ctx, o); err != nil {
		return Joined{}, err
	}
	var joined Joined
	var before jsonobj.Object
	var undo func()
	err = l.s.settings.try(func() (err error) {
		before = l.s.settings.State.Object
		lifetime, timeout := l.lifetime, l.timeout
		undo = func() { l.lifetime, l.timeout = lifetime, timeout }
		if joined, err = l.apply(o); err != nil {
			undo()
		}
		return err
	}, func() error {
		err := l.resume(ctx, o, before)
		if err != nil {
			l.s.update(undo)
		}
		return err
	})
	if err != nil {
		if joined.Participant != nil {
			l.s.participants.withdraw(joined)
		}
		return Joined{}, err
	}
	return joined, nil
}

// resume calls session.resume with the changed configuration. before is the configuration before the change. The
// caller holds the lifecycle lock.
func (l *Loader) resume(ctx context.Context, o Opening, before jsonobj.Object) error {
	l.s.mu.Lock()
	needsLoad := l.state == Loaded && !o.Exact && config.NeedsLoad(before, l.s.settings.State.Object)
	l.s.mu.Unlock()
	if needsLoad {
		if err := l.unloadNow(ctx); err != nil {
			return err
		}
	}
	l.s.mu.Lock()
	open := l.state == Unloaded && !l.shut
	l.s.mu.Unlock()
	if open {
		// For callers an unloaded session is open. The bridge loads it first, and then makes the caller's resume.
		if _, err := l.load(ctx); err != nil {
			return err
		}
	}
	l.s.mu.Lock()
	rt, warm, continuing := l.runtime, l.state == Loaded, l.s.turns.machine.Continuing()
	l.s.mu.Unlock()
	params := l.s.settings.traced(ctx, o.Params)
	if o.ContinuePending { // false is the default, and would be in the session.resume event
		params.SetBool("continuePendingWork", true)
	}
	if warm {
		// Without disableResume the CLI writes a resume event, as for any caller's resume.
		err := l.s.participants.warmResume(ctx, rt, func(p *jsonobj.Object) {
			if !continuing {
				p.Set("disableResume", nil)
			}
			*p = p.Merge(params)
		})
		if err != nil {
			return err
		}
		return l.s.participants.attend(ctx, rt)
	}
	l.s.mu.Lock()
	err := l.s.settings.State.CredentialsNeeded(l.s.id)
	l.s.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = l.enter(ctx, func(ctx context.Context, rt Runtime) error {
		if err := l.checkUnused(ctx, rt); err != nil {
			return err
		}
		return l.reload(ctx, rt, params, o.ContinuePending)
	})
	return err
}

// checkUnused fails with SESSION_IN_USE if another process has the session open. The CLI's own lock is only
// advisory, and two processes would fork the history. If Config.Shared is set, checkUnused does nothing: one
// program then owns all CLI processes and coordinates them.
func (l *Loader) checkUnused(ctx context.Context, rt Runtime) error {
	if l.s.shared {
		return nil
	}
	id := l.s.id
	ids, _ := json.Marshal([]string{id}) // strings always encode
	result, err := rt.Call(ctx, "sessions.checkInUse", jsonobj.Object{{Key: "sessionIds", Value: ids}}.JSON())
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
