package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// DefaultConfinementGrace is the default of Config.ConfinementGrace.
const DefaultConfinementGrace = 10 * time.Second

const (
	// evacuateEvery is how often the sessions of a fenced runtime are asked to leave.
	evacuateEvery = 100 * time.Millisecond
	// fencedStop bounds the orderly end of a fenced runtime, before the end is forced.
	fencedStop = 5 * time.Second
	// confinementRetry is when callers are told to try again.
	confinementRetry = time.Second
	// placements is how often a session is placed again, when the policy changes meanwhile.
	placements = 3
)

// confinement identifies what the policy says of the processes of a tenant: equal texts for
// equal confinements. It covers what decides what a process may touch, and what its
// environment holds.
func (t Tenant) confinement() string {
	p := t.Profile
	raw, err := json.Marshal(struct {
		Sandbox, Args, Fields, Providers []string
		User                             *runtime.User
		Env, Homes                       map[string]string
		Home, UserHome, Dir, Token       string
		UseLogin                         bool
	}{
		Sandbox: p.Sandbox, Args: p.Args, User: p.User, Env: p.Env, Homes: t.Homes,
		Fields: slices.Sorted(slices.Values(t.fields())), Providers: slices.Sorted(slices.Values(t.Providers)),
		Home: p.Home, UserHome: p.UserHome, Dir: p.Dir, Token: p.Token, UseLogin: p.UseLogin,
	})
	if err != nil {
		panic(err) // texts, numbers and maps of texts always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// confine returns a profile with what the policy says now. base is the tenant's own profile when
// p was made of it: members that are as in base are the policy's, the others the caller's, who
// keeps those that callers may still set.
func (t Tenant) confine(p, base runtime.Profile) (runtime.Profile, error) {
	now := t.Profile
	may := func(field string) bool { return slices.Contains(t.fields(), field) }
	switch {
	case p.SessionFS != nil && !may("session_fs"):
		return p, notAnyMore("session_fs")
	case p.ModelInference != nil && !may("model_inference"):
		return p, notAnyMore("model_inference")
	}
	p.Sandbox, p.User, p.Args, p.Confinement = now.Sandbox, now.User, now.Args, t.confinement()
	named := slices.Contains(slices.Collect(maps.Values(t.Homes)), p.Home)
	for _, text := range []struct {
		to        *string
		base, now string
		may       bool
	}{
		{&p.Home, base.Home, now.Home, may("home") || named},
		{&p.UserHome, base.UserHome, now.UserHome, may("user_home")},
		{&p.Dir, base.Dir, now.Dir, may("working_directory")},
		{&p.Token, base.Token, now.Token, may("github_token")},
		{&p.LogLevel, base.LogLevel, now.LogLevel, may("log_level")},
	} {
		if !text.may || *text.to == text.base {
			*text.to = text.now
		}
	}
	for _, flag := range []struct {
		to        *bool
		base, now bool
		may       bool
	}{
		{&p.UseLogin, base.UseLogin, now.UseLogin, may("use_login")},
		{&p.Telemetry, base.Telemetry, now.Telemetry, may("telemetry")},
		{&p.ExtensionLaunch, base.ExtensionLaunch, now.ExtensionLaunch, may("extension_launch")},
	} {
		if !flag.may || *flag.to == flag.base {
			*flag.to = flag.now
		}
	}
	p.Env = confineEnv(p.Env, base.Env, now.Env, may("env"))
	return p, nil
}

// confineEnv puts the environment that a caller has added, if it still may, over the policy's.
func confineEnv(env, base, now map[string]string, may bool) map[string]string {
	out := maps.Clone(now)
	if !may {
		return out
	}
	for name, value := range env {
		if was, ok := base[name]; ok && was == value {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}

func notAnyMore(field string) error {
	return fault.New(fault.Forbidden, "the session has %s, which the policy does not allow its tenant any more", field).
		WithField(profileMember + "." + field)
}

// stale reports whether a runtime was started with another confinement than the policy's.
func (bind *binding) stale() bool {
	if bind.profile.Tenant == caller.HostTenant {
		return false // no policy confines the host's owner
	}
	t, ok := bind.b.tenant(bind.profile.Tenant)
	return !ok || bind.profile.Confinement != t.confinement()
}

// confinedAsNow reports whether the runtime has the confinement of the policy, and is not fenced.
func (bind *binding) confinedAsNow() bool { return !bind.fenced.Load() && !bind.stale() }

// Confining returns CONFINEMENT_CHANGING while a process of the tenant runs with another
// confinement than the policy in force has for it. It asks the policy itself: there is no moment
// between the change of that and the refusal.
func (b *Bridge) Confining(tenant string) error {
	if tenant == caller.HostTenant {
		return nil
	}
	for _, bind := range b.running(tenant) {
		if bind.stale() {
			return errConfining()
		}
	}
	return nil
}

func errConfining() *fault.Error {
	return fault.New(fault.ConfinementChanging, "the policy has changed what confines the tenant, and a process from before "+
		"that is still running: try again when it has ended").WithRetry(confinementRetry)
}

// running lists the runtimes of a tenant that have not ended.
func (b *Bridge) running(tenant string) []*binding {
	bindings := b.fleet.All()
	return slices.DeleteFunc(bindings, func(bind *binding) bool { return bind.profile.Tenant != tenant || bind.Err() != nil })
}

// Reconfine is told that another policy is in force. It replaces the processes whose confinement
// differs from what that says, in the background: they take nothing new, sessions leave them as
// soon as nothing goes on in them, and after ConfinementGrace they are ended.
func (b *Bridge) Reconfine() {
	bindings := b.fleet.All()
	for _, bind := range bindings {
		bind.fenceStale()
	}
}

// fenceStale fences the runtime if its confinement is not the policy's, and begins its end.
func (bind *binding) fenceStale() {
	b := bind.b
	if bind.Err() != nil || !bind.stale() || !bind.fenced.CompareAndSwap(false, true) {
		return
	}
	b.log.Info("runtime is being replaced, its confinement has changed",
		"runtime_id", bind.id, "tenant", bind.profile.Tenant, "sessions", len(bind.loaded()))
	b.table.Discard(bind.profile)
	if releaser, ok := b.runtimes.(Releaser); ok {
		releaser.Release(bind.runtime())
	}
	b.Go(func(ctx context.Context) { bind.evacuate(ctx) })
}

// evacuate has the sessions of a fenced runtime leave it, for as long as ConfinementGrace lasts,
// and ends it. What still goes on in it then is lost, and its sessions go on in the successor.
func (bind *binding) evacuate(ctx context.Context) {
	grace, cancel := context.WithTimeout(ctx, bind.b.tuned.Load().ConfinementGrace)
	defer cancel()
	tick := time.NewTicker(evacuateEvery)
	defer tick.Stop()
	for {
		for _, s := range bind.loaded() {
			if s.Rests(0) { // else it would keep the others waiting
				bind.b.unloadOne(grace, resting{s, 0})
			}
		}
		if len(bind.loaded()) == 0 || grace.Err() != nil {
			break
		}
		select {
		case <-tick.C:
		case <-grace.Done():
		case <-bind.Ended():
			return
		}
	}
	if ctx.Err() != nil {
		return // the bridge closes, and its supervisor ends the runtimes
	}
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), fencedStop)
	defer cancelStop()
	_ = bind.runtime().Stop(stop) // never fails
}

// passesFence lists the methods that a fenced runtime still takes from callers: what ends
// something there.
var passesFence = map[string]bool{
	"session.abort": true, "session.destroy": true, "session.delete": true, "session.detach": true,
}

// checkFence refuses what a caller would begin in a fenced runtime. Reading, answering and ending
// go on, and so does what the bridge itself has to do there.
func (bind *binding) checkFence(ctx context.Context, method string) error {
	if !bind.fenced.Load() || caller.From(ctx).Class <= caller.Read || passesFence[method] || callback.Answers(method) {
		return nil
	}
	return errConfining()
}

// checkSandbox refuses to load a session outside a sandbox that has been loaded in one: callers of its
// tenant were allowed to give it commands and files of the host then, which only the sandbox
// confined.
func checkSandbox(e *registry.Entry, p runtime.Profile) error {
	if !e.Sandboxed() || len(p.Sandbox) > 0 {
		return nil
	}
	return fault.New(fault.Forbidden, "the session was opened in a sandbox, which the policy of its tenant has not any more: "+
		"disconnect it, or give the tenant its sandbox back").WithField("session_id")
}

// checkProvider refuses to load a session with a provider of the server's own that the policy does
// not let its tenant name any more.
func (b *Bridge) checkProvider(s *session.Session) error {
	if ref := s.ProviderRef(); ref != "" && !b.mayName(s.Tenant(), ref) {
		return fault.New(fault.Forbidden, "the provider %q is not the tenant's any more: resume the session with another", ref).
			WithField("provider_ref")
	}
	return nil
}
