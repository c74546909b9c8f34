package session

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// lastCall is a puppet that keeps the parameters of its last call.
type lastCall struct {
	puppet
	params string
}

func (r *lastCall) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	r.params = string(params)
	return r.puppet.Call(ctx, method, params, opts...)
}

// TestAgentNames: a version that needs names of custom agents gets them when a session is created or resumed. Other calls
// are not changed.
func TestAgentNames(t *testing.T) {
	t.Parallel()
	const given = `[{"name":"a"}]`
	for method, opens := range map[string]bool{"session.create": true, "session.resume": true, "session.agent.select": false} {
		for version, needs := range map[string]bool{"1.0.81": true, "1.0.102": false} {
			p := &lastCall{puppet: puppet{version: version}}
			s := onPuppet(t, &p.puppet)
			if _, _, err := s.call(t.Context(), p, method, object(t, `{"customAgents":`+given+`}`)); err != nil {
				t.Fatal(err)
			}
			if got := string(object(t, p.params).Get("customAgents")); (got != given) != (opens && needs) {
				t.Errorf("%s of CLI %s: the agents are %s", method, version, got)
			}
		}
	}
}

// TestCallDuringALoad: a caller's call and a resume that wait for the same load both end.
func TestCallDuringALoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &dawdler{method: "session.resume", reply: make(chan struct{})}
		s := onStock(t, &stock{rt: p})
		s.loader.state = Unloaded
		ended := make(chan error, 2)
		go func() { _, err := s.loader.Resume(t.Context(), Opening{Exact: true}); ended <- err }()
		synctest.Wait()
		go func() { _, _, err := s.loader.Invoke(t.Context(), "session.metadata.activity", nil); ended <- err }()
		synctest.Wait()
		close(p.reply)
		synctest.Wait()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Fatal("the call and the resume wait for each other")
			}
		}
	})
}

// TestPositionOfAReply: a call returns the journal's position when its reply was read.
func TestPositionOfAReply(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{})
	r.awaitEvent("session.start")
	_, at, err := r.s.loader.Do(t.Context(), "session.metadata.activity", nil)
	if err != nil || at != r.s.journal.Last() || at.Seq == 0 {
		t.Errorf("the reply is at %v, the journal's end is %v, %v", at, r.s.journal.Last(), err)
	}
}

// TestCallbackTimeout: the time for an answer is that of the caller, else of the bridge's configuration, else the default.
func TestCallbackTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ configured, given, want time.Duration }{
		{want: callback.DefaultTimeout}, {configured: time.Hour, want: time.Hour}, {configured: -1, want: callback.DefaultTimeout},
		{configured: time.Hour, given: time.Minute, want: time.Minute},
	} {
		s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, CallbackTimeout: tc.configured})
		if _, err := s.loader.open(Opening{Timeout: tc.given}); err != nil || s.loader.timeout != tc.want {
			t.Errorf("%v and %v: %v, %v", tc.configured, tc.given, s.loader.timeout, err)
		}
	}
}
