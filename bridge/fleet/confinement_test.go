package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// policed is a fixture with a tenant, acme, whose policy changes.
type policed struct {
	*bridgetest.Bridge
	policy atomic.Pointer[tenancy.Tenant] // nil: there is no such tenant
}

// newPoliced starts one whose processes run a script, and have a grace when their confinement
// changes.
func newPoliced(t *testing.T, script fakecli.Script, grace time.Duration, change ...bridgetest.Option) *policed {
	t.Helper()
	p := &policed{}
	p.policy.Store(new(baseTenant()))
	p.Bridge = bridgetest.New(t, script, append(change, bridgetest.Restarts, policedBy(&p.policy, grace))...)
	return p
}

// policedBy gives a bridge the tenant acme as a policy has it at the time.
func policedBy(policy *atomic.Pointer[tenancy.Tenant], grace time.Duration) bridgetest.Option {
	return func(c *bridgetest.Options) {
		c.ConfinementGrace = grace
		c.Tenant = func(name string) (tenancy.Tenant, bool) {
			now := policy.Load()
			if name != "acme" || now == nil {
				return tenancy.Tenant{}, false
			}
			return *now, true
		}
	}
}

// baseTenant is acme's policy to begin with.
func baseTenant() tenancy.Tenant {
	return tenancy.Tenant{
		Confined: true, Providers: []string{"paid"}, Limits: quota.Limits{Runtimes: 1},
		Profile: runtime.Profile{
			Tenant: "acme", Home: "/acme/copilot", UserHome: "/acme/home", Dir: "/acme/work",
			Sandbox: []string{"box", "{home}"}, User: &runtime.User{UID: 7, GID: 7}, Env: map[string]string{"A": "1"},
		},
	}
}

// as is the context of a call of acme's owner.
func (p *policed) as(class caller.Class) context.Context {
	return p.asRole(caller.Owner, class)
}

func (p *policed) asRole(role caller.Role, class caller.Class) context.Context {
	return caller.With(p.T.Context(), caller.Caller{Tenant: "acme", Name: role.String(), Role: role, Class: class, Confined: true})
}

// last is the profile of the process that was started last, and how many there were.
func (p *policed) last() (runtime.Profile, int) {
	all := p.Processes()
	return all[len(all)-1].Profile, len(all)
}

// open makes a session of acme's.
func (p *policed) open(id string) {
	p.T.Helper()
	if _, err := p.Sessions.CreateSession(p.as(caller.Own), &bridgev1.CreateSessionRequest{SessionId: id}); err != nil {
		p.T.Fatal(err)
	}
}

// say sends a prompt and waits for the end of the turn.
func (p *policed) say(id string) error {
	_, err := p.Turns.SendAndWait(p.as(caller.Drive), &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "hello"}})
	return err
}

// states counts acme's processes by their state.
func (p *policed) states() map[bridgev1.RuntimeState]int {
	p.T.Helper()
	list, err := p.Runtimes.ListRuntimes(p.as(caller.Read), &bridgev1.ListRuntimesRequest{})
	if err != nil {
		p.T.Fatal(err)
	}
	out := map[bridgev1.RuntimeState]int{}
	for _, rt := range list.GetRuntimes() {
		out[rt.GetState()]++
	}
	return out
}

// confinements are changes of a policy that change what confines a tenant's processes.
var confinements = map[string]func(*tenancy.Tenant){
	"the sandbox has another argument": func(t *tenancy.Tenant) { t.Profile.Sandbox = []string{"box", "{home}", "--tighter"} },
	"the user is another":              func(t *tenancy.Tenant) { t.Profile.User = &runtime.User{UID: 8, GID: 8} },
	"the group is another":             func(t *tenancy.Tenant) { t.Profile.User = &runtime.User{UID: 7, GID: 8} },
	"there is no user":                 func(t *tenancy.Tenant) { t.Profile.User = nil },
	"a variable is another":            func(t *tenancy.Tenant) { t.Profile.Env = map[string]string{"A": "2"} },
	"a variable goes":                  func(t *tenancy.Tenant) { t.Profile.Env = nil },
	"a variable comes":                 func(t *tenancy.Tenant) { t.Profile.Env = map[string]string{"A": "1", "B": "1"} },
	"the home moves":                   func(t *tenancy.Tenant) { t.Profile.Home = "/elsewhere/copilot" },
	"the user's home moves":            func(t *tenancy.Tenant) { t.Profile.UserHome = "/elsewhere/home" },
	"the directory moves":              func(t *tenancy.Tenant) { t.Profile.Dir = "/elsewhere/work" },
	"callers may set less":             func(t *tenancy.Tenant) { t.ProfileFields = []string{"log_level"} },
	"a provider goes":                  func(t *tenancy.Tenant) { t.Providers = nil },
}

// A process whose confinement is not what a new policy says is replaced: its sessions go on in one
// that has it. Until it has ended, calls that touch the host are refused, from the moment of the
// change on.
func TestChangedConfinementMoves(t *testing.T) {
	t.Parallel()
	for name, change := range confinements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t, fakecli.Script{}, time.Minute)
			p.open("s")
			if err := p.say("s"); err != nil {
				t.Fatal(err)
			}
			before, _ := p.last()
			if err := p.Fleet().Confining("acme"); err != nil {
				t.Errorf("before the change: %v", err)
			}
			next := baseTenant()
			change(&next)
			p.policy.Store(&next)
			wantConfining(t, "at once", p.Fleet().Confining("acme"))
			p.Fleet().Reconfine()
			bridgetest.Eventually(t, "the old process's end", func() bool { return p.Fleet().Confining("acme") == nil })
			if err := p.say("s"); err != nil {
				t.Fatalf("in the successor: %v", err)
			}
			after, count := p.last()
			if count != 2 || after.Confinement == before.Confinement {
				t.Fatalf("%d processes were started, the last with the confinement %q after %q", count, after.Confinement, before.Confinement)
			}
			want := next.Profile
			want.Confinement = after.Confinement
			if after.Hash() != want.Hash() {
				t.Errorf("the successor has %+v, want %+v", after, want)
			}
		})
	}
}

// Losing the sandbox ends the processes too, and what was opened in it is not opened outside it.
func TestLostSandboxIsNotLeft(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, fakecli.Script{}, time.Minute)
	p.open("boxed")
	if err := p.say("boxed"); err != nil {
		t.Fatal(err)
	}
	next := baseTenant()
	next.Profile.Sandbox, next.Confined = nil, false
	p.policy.Store(&next)
	p.Fleet().Reconfine()
	bridgetest.Eventually(t, "the old process's end", func() bool { return p.Fleet().Confining("acme") == nil })
	if err := p.say("boxed"); fault.ReasonOf(err) != fault.Forbidden {
		t.Errorf("what was opened in the sandbox goes on outside it: %v", err)
	}
	if _, count := p.last(); count != 1 {
		t.Errorf("%d processes were started", count)
	}
	p.open("free")
	if err := p.say("free"); err != nil {
		t.Errorf("another session: %v", err)
	}
	again := baseTenant()
	p.policy.Store(&again)
	p.Fleet().Reconfine()
	if err := p.say("boxed"); err != nil {
		t.Errorf("with the sandbox back: %v", err)
	}
}

// That a session was opened in a sandbox is not forgotten with the server.
func TestLostSandboxOutlivesTheBridge(t *testing.T) {
	t.Parallel()
	var policy atomic.Pointer[tenancy.Tenant]
	policy.Store(new(baseTenant()))
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored, policedBy(&policy, time.Minute))
	p := &policed{Bridge: k}
	p.open("boxed")
	next := baseTenant()
	next.Profile.Sandbox, next.Confined = nil, false
	policy.Store(&next)
	p = &policed{Bridge: k.Restart()}
	if err := p.say("boxed"); fault.ReasonOf(err) != fault.Forbidden {
		t.Errorf("what was opened in the sandbox goes on outside it: %v", err)
	}
	policy.Store(new(baseTenant()))
	if err := p.say("boxed"); err != nil {
		t.Errorf("with the sandbox back: %v", err)
	}
}

// A session goes on with a provider of the server's own only while its tenant may name it.
func TestLostProviderIsNotLeft(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, fakecli.Script{}, time.Minute, func(c *bridgetest.Options) {
		c.Providers = map[string][]byte{"paid": []byte(`{"type":"openai","baseUrl":"http://127.0.0.1:1","apiKey":"k"}`)}
	})
	if _, err := p.Sessions.CreateSession(p.as(caller.Own), &bridgev1.CreateSessionRequest{SessionId: "s", ProviderRef: "paid"}); err != nil {
		t.Fatal(err)
	}
	next := baseTenant()
	next.Providers = nil
	p.policy.Store(&next)
	p.Fleet().Reconfine()
	bridgetest.Eventually(t, "the old process's end", func() bool { return p.Fleet().Confining("acme") == nil })
	bridgetest.WantFault(t, "a prompt", p.say("s"), fault.Forbidden, "provider_ref")
}

// A tenant that the policy does not have any more has no processes.
func TestLostTenantHasNoProcesses(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, fakecli.Script{}, time.Minute)
	p.open("s")
	p.policy.Store(nil)
	wantConfining(t, "at once", p.Fleet().Confining("acme"))
	p.Fleet().Reconfine()
	bridgetest.Eventually(t, "the process's end", func() bool { return p.Fleet().Confining("acme") == nil })
	if err := p.say("s"); err == nil {
		t.Error("the tenant goes on")
	}
}

// A change that does not concern confinement replaces no runtime.
func TestOtherChangesMoveNothing(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, fakecli.Script{}, time.Minute)
	p.open("s")
	next := baseTenant()
	next.Limits.Turns, next.Ambient, next.Profile.Env = 5, true, map[string]string{"A": "1"}
	p.policy.Store(&next)
	p.Fleet().Reconfine()
	if err := p.Fleet().Confining("acme"); err != nil {
		t.Error(err)
	}
	if err := p.say("s"); err != nil {
		t.Error(err)
	}
	if states := p.states(); len(states) != 1 || states[bridgev1.RuntimeState_RUNTIME_STATE_READY] != 1 {
		t.Errorf("the processes are %v", states)
	}
}

// endless is a CLI whose turns do not end.
var endless = fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Hang: true}}}}}

// While a turn goes on in a process with an old confinement, nothing begins there; what reads,
// answers or ends goes on.
func TestNothingBeginsBehindTheFence(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, endless, time.Minute)
	p.open("busy")
	send := func() error {
		_, err := p.Turns.Send(p.as(caller.Drive), &bridgev1.SendRequest{SessionId: "busy", Prompt: &bridgev1.Prompt{Text: "hello"}})
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	next := baseTenant()
	next.Profile.Env = nil
	p.policy.Store(&next)
	p.Fleet().Reconfine()
	wantConfining(t, "another prompt", send())
	_, err := p.harmless(p.as(caller.Host), "busy")
	wantConfining(t, "a call of the class host", err)
	if _, err := p.harmless(p.as(caller.Read), "busy"); err != nil {
		t.Errorf("reading: %v", err)
	}
	p.open("new") // has a process of the new confinement: the old one does not count any more
	if profile, count := p.last(); count != 2 || profile.Env != nil {
		t.Errorf("after %d starts the last has %v", count, profile.Env)
	}
	if states := p.states(); states[bridgev1.RuntimeState_RUNTIME_STATE_STOPPING] != 1 || states[bridgev1.RuntimeState_RUNTIME_STATE_READY] != 1 {
		t.Errorf("the processes are %v", states)
	}
	if _, err := p.Sessions.Abort(p.as(caller.Drive), &bridgev1.AbortRequest{SessionId: "busy"}); err != nil {
		t.Errorf("abort: %v", err)
	}
	bridgetest.Eventually(t, "the old process's end", func() bool { return p.Fleet().Confining("acme") == nil })
}

// harmless asks the session's process for something harmless.
func (p *policed) harmless(ctx context.Context, id string) (string, error) {
	s, err := p.Store().Open(ctx, id)
	if err != nil {
		return "", err
	}
	result, _, err := s.Loader().Do(ctx, "session.metadata.activity", nil)
	return string(result), err
}

// A turn that does not end in time ends with its process.
func TestFenceHasADeadline(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, endless, 50*time.Millisecond)
	p.open("busy")
	ended := make(chan *bridgev1.TurnOutcome, 1)
	go func() {
		out, err := p.Turns.SendAndWait(p.as(caller.Drive), &bridgev1.SendAndWaitRequest{SessionId: "busy", Prompt: &bridgev1.Prompt{Text: "hello"}})
		if err != nil {
			t.Error(err)
		}
		ended <- out.GetOutcome()
	}()
	s, err := p.Store().Open(p.as(caller.Read), "busy")
	if err != nil {
		t.Fatal(err)
	}
	bridgetest.Eventually(t, "the turn", s.Turns().Running)
	next := baseTenant()
	next.Profile.Sandbox = []string{"box", "--tighter"}
	p.policy.Store(&next)
	p.Fleet().Reconfine()
	select {
	case out := <-ended:
		if out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
			t.Errorf("the turn ended as %v", out)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the turn goes on")
	}
	bridgetest.Eventually(t, "the old process's end", func() bool { return p.Fleet().Confining("acme") == nil })
	bridgetest.Eventually(t, "the successor", func() bool {
		profile, _ := p.last()
		return len(profile.Sandbox) == 2 && profile.Sandbox[1] == "--tighter"
	})
}

// A process that was being started when the policy changed is replaced before anything is in it.
func TestPolicyChangesDuringAStart(t *testing.T) {
	t.Parallel()
	var p *policed
	next := baseTenant()
	next.Profile.Env = nil
	first := true
	p = newPoliced(t, fakecli.Script{}, time.Minute, bridgetest.Scripts(func(int) fakecli.Script { // called while the process starts
		if first {
			first = false
			p.policy.Store(&next)
			p.Fleet().Reconfine()
		}
		return fakecli.Script{}
	}))
	p.open("s")
	if profile, count := p.last(); count != 2 || profile.Env != nil {
		t.Errorf("after %d starts the session is in a process with %v", count, profile.Env)
	}
	bridgetest.Eventually(t, "the first process's end", func() bool { return p.Fleet().Confining("acme") == nil })
}

func wantConfining(t *testing.T, what string, err error) {
	t.Helper()
	f, ok := fields.AsFault(err)
	if !ok || f.Reason != fault.ConfinementChanging || f.RetryAfter <= 0 {
		t.Errorf("%s: error is %v, want CONFINEMENT_CHANGING and when to try again", what, err)
	}
}
