package session

import (
	"errors"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// uses are the ways in which a loaded session is in use, so that it must not leave its runtime.
var uses = map[string]func(*testing.T, *Session){
	"a call": func(_ *testing.T, s *Session) { s.loader.Hold() },
	"a turn": func(_ *testing.T, s *Session) { s.play("user.message", user("m1")) },
	"a callback": func(_ *testing.T, s *Session) {
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play(callback.PermissionRequested, permissionAsked)
	},
	"a handler that is missing": func(_ *testing.T, s *Session) { s.settings.RequireHandlers(callback.FSReadFile) },
	"headers of a turn":         func(_ *testing.T, s *Session) { s.sender.replacedIn = s.loader.runtime },
	"a satellite": func(t *testing.T, s *Session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		joined, err := s.participants.add(Joining{Brings: roster.Brings{Grace: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		joined.Participant.Satellite = &satellite{}
	},
}

// TestIdle: a session is idle if nothing uses it, a time after its last use or event.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := onPuppet(t, &puppet{})
	s.loader.usedAt = time.Now().Add(-time.Hour)
	if !s.loader.Idle(0) || !s.loader.Idle(time.Minute) || s.loader.Idle(2*time.Hour) {
		t.Error("a session that was used an hour ago is not idle for a minute, or is for two hours")
	}
	s.loader.Hold()()
	if !s.loader.Idle(0) || s.loader.Idle(time.Minute) {
		t.Error("a session that was used now is not idle at all, or is for a minute")
	}
	s.loader.usedAt = time.Now().Add(-time.Hour)
	s.play("session.info", "")
	if !s.loader.Idle(0) || s.loader.Idle(time.Minute) {
		t.Error("a session with an event is not idle at all, or is for a minute")
	}
	for name, use := range uses {
		s := onPuppet(t, &puppet{})
		use(t, s)
		if s.loader.Idle(0) {
			t.Errorf("a session with %s is idle", name)
		}
	}
	for _, state := range []State{Creating, Unloaded, Disconnected, Deleted} {
		s.loader.state = state
		if s.loader.Idle(0) {
			t.Errorf("a session in state %v is idle", state)
		}
	}
}

// TestUnload: a session leaves its runtime if neither the bridge nor the CLI has work in it, also none that begins while the
// CLI is asked.
func TestUnload(t *testing.T) {
	t.Parallel()
	const active, destroy = "session.metadata.activity", "session.destroy"
	lost := fault.New(fault.RuntimeLost, "killed")
	for name, tc := range map[string]struct {
		result map[string]string // of methods
		fails  map[string]error
		begins func(*testing.T, *Session) // while the CLI is asked
		want   bool
		err    error
		state  State
	}{
		"idle":                       {want: true, state: Unloaded},
		"work":                       {result: map[string]string{active: `{"hasActiveWork":true}`}, state: Loaded},
		"a task":                     {result: map[string]string{"session.tasks.list": `{"tasks":[{"status":"idle"}]}`}, state: Loaded},
		"a schedule":                 {result: map[string]string{"session.schedule.list": `{"entries":[{}]}`}, state: Loaded},
		"the question fails":         {fails: map[string]error{active: lost}, err: lost, state: Loaded},
		"a call meanwhile":           {begins: uses["a call"], state: Loaded},
		"a turn meanwhile":           {begins: uses["a turn"], state: Loaded},
		"another runtime meanwhile":  {begins: func(_ *testing.T, s *Session) { s.loader.runtime = &puppet{} }, state: Loaded},
		"the process ends":           {fails: map[string]error{destroy: lost}, want: true, state: Unloaded},
		"the CLI does not have it":   {fails: map[string]error{destroy: fault.New(fault.SessionNotFound, "none")}, want: true, state: Unloaded},
		"the CLI does not let it go": {fails: map[string]error{destroy: errRefused}, want: true, err: errRefused, state: Unloaded},
	} {
		var s *Session
		p := &puppet{}
		routes := &unrouted{puppet: p}
		p.answer = func(method string) (string, error) {
			if method == "session.schedule.list" && tc.begins != nil {
				tc.begins(t, s)
			}
			if text := tc.result[method]; text != "" {
				return text, nil
			}
			return `{}`, tc.fails[method]
		}
		s = onPuppet(t, p)
		s.loader.runtime = routes
		s.loader.usedAt = time.Now().Add(-time.Hour)
		got, err := s.loader.Unload(t.Context(), time.Minute)
		if got != tc.want || !errors.Is(err, tc.err) || s.loader.State() != tc.state {
			t.Errorf("%s: %v, %v, the session is %v", name, got, err, s.loader.State())
		}
		if p.called(destroy) != tc.want || routes.times > 0 != tc.want {
			t.Errorf("%s: the calls are %v", name, p.calls)
		}
		if tc.state == Unloaded && (s.loader.runtime != nil || s.loader.Internal()) {
			t.Errorf("%s: the session still has its runtime", name)
		}
		if asks := len(p.calls); tc.result != nil {
			if again, err := s.loader.Unload(t.Context(), time.Minute); again || err != nil || len(p.calls) != asks {
				t.Errorf("%s: the CLI is asked again at once: %v, %v", name, again, err)
			}
		}
	}
	for name, use := range uses {
		p := &puppet{}
		s := onPuppet(t, p)
		use(t, s)
		if got, err := s.loader.Unload(t.Context(), 0); got || err != nil || len(p.calls) > 0 {
			t.Errorf("with %s: %v, %v, the calls are %v", name, got, err, p.calls)
		}
		wantReason(t, s.loader.unloadNow(t.Context()), fault.SessionBusy)
	}
}

var errRefused = errors.New("refused")

// unrouted is a puppet that counts how often a session has left it.
type unrouted struct {
	*puppet
	times int
}

func (u *unrouted) Unroute(*Session) { u.times++ }

// TestDropEndsQuestions: a session that leaves its runtime at once has no questions of that runtime any more.
func TestDropEndsQuestions(t *testing.T) {
	t.Parallel()
	p := &puppet{}
	s := onStock(t, &stock{rt: p})
	s.loader.runtime, s.loader.state = p, Loaded
	for _, k := range []*callback.Kind{callback.ForRequest("userInput.request"), callback.ForEvent(callback.PermissionRequested)} {
		s.update(func() { s.callbacks.register(&callback.Pending{ID: k.Method, Kind: k}, true) })
	}
	if err := s.loader.drop(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	left := s.callbacks.Registry().List()
	if len(left) != 1 || left[0].ID != callback.PermissionRequested {
		t.Errorf("the callbacks %v are left", left)
	}
}
