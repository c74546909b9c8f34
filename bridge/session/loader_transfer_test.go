package session

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestAtRest: f is called for a session in no runtime, and for one that leaves its runtime first. A session that is in use is
// busy, at once or after a time in which it may come to rest.
func TestAtRest(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		state  State
		use    func(*testing.T, *Session)
		fails  error
		called bool
		want   fault.Reason
	}{
		"loaded":           {state: Loaded, called: true},
		"unloaded":         {state: Unloaded, called: true},
		"disconnected":     {state: Disconnected, called: true},
		"it fails":         {state: Unloaded, fails: failed, called: true},
		"being created":    {state: Creating, want: fault.SessionNotFound},
		"deleted":          {state: Deleted, want: fault.SessionNotFound},
		"with a turn":      {state: Loaded, use: uses["a turn"], want: fault.SessionBusy},
		"with a callback":  {state: Loaded, use: uses["a callback"], want: fault.SessionBusy},
		"with a call":      {state: Loaded, use: uses["a call"], want: fault.SessionBusy},
		"unloaded, a turn": {state: Unloaded, use: uses["a turn"], want: fault.SessionBusy},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &puppet{}
			s := onPuppet(t, p)
			if tc.use != nil {
				tc.use(t, s)
			}
			if s.loader.state = tc.state; tc.state != Loaded {
				s.loader.runtime = nil
			}
			called := 0
			err := s.AtRest(t.Context(), func() error { called++; return tc.fails })
			if called > 0 != tc.called || called > 1 || tc.want != fault.None && fault.ReasonOf(err) != tc.want ||
				tc.want == fault.None && !errors.Is(err, tc.fails) {
				t.Errorf("%s: called %d times, %v", name, called, err)
			}
			if p.called("session.destroy") != (tc.state == Loaded && tc.called) {
				t.Errorf("%s: the calls are %v", name, p.calls)
			}
		})
	}
}

// TestFinishing: a session that is about to come to rest is waited for.
func TestFinishing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := &puppet{answer: func(method string) (string, error) {
			if method == "session.metadata.activity" {
				if asked++; asked == 1 {
					return `{"hasActiveWork":true}`, nil
				}
			}
			return `{}`, nil
		}}
		s := onPuppet(t, p)
		called := false
		if err := s.AtRest(t.Context(), func() error { called = true; return nil }); err != nil || !called || asked != 2 {
			t.Errorf("called %v, the CLI was asked %d times, %v", called, asked, err)
		}
	})
}

// TestImport: an imported session is disconnected, with the state that it had. If its files cannot be placed, there is none.
func TestImport(t *testing.T) {
	t.Parallel()
	failed := errors.New("no space")
	in := Imported{
		Opening: Opening{Config: object(t, `{"model":"m"}`), Lifetime: bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT},
		Missing: []string{"gitHubToken"}, HasHistory: true, Info: info.Info{},
	}
	for _, fails := range []error{nil, failed} {
		s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7})
		placed := 0
		place := func() error { placed++; return fails }
		if err := s.Import(t.Context(), in, place); !errors.Is(err, fails) || placed != 1 {
			t.Fatalf("imported: %v, placed %d times", err, placed)
		}
		want := Disconnected
		if fails != nil {
			want = Deleted
		}
		if s.loader.State() != want {
			t.Errorf("after %v the session is %v", fails, s.loader.State())
		}
		wantReason(t, s.Import(t.Context(), in, place), fault.SessionExists)
		if fails == nil && (!s.ingester.Known.HasHistory || !s.ingester.Known.CompletedTurn || s.settings.State.Missing == nil ||
			s.settings.State.Object.String("model") != "m" || s.loader.lifetime < bridgev1.Lifetime_LIFETIME_KEEP) {
			t.Errorf("the session has %+v, %+v, lifetime %v", s.ingester.Known, s.settings.State, s.loader.lifetime)
		}
	}
}
