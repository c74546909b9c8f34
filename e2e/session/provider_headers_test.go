package session

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// forTurn gives a prompt separate headers.
func forTurn(strategy bridgev1.HeaderStrategy, headers map[string]string) copilot.SendOption {
	return copilot.WithPrompt(func(p *bridgev1.Prompt) { p.RequestHeaders, p.HeaderStrategy = headers, strategy })
}

// headersOf are the values of the test's headers in each request.
func headersOf(requests []offlinemodel.Request) (got [][3]string) {
	for _, q := range requests {
		got = append(got, [3]string{q.Header.Get("X-Own"), q.Header.Get("X-Both"), q.Header.Get("X-Turn")})
	}
	return got
}

var providerHeaders = map[string]string{"X-Own": "own", "X-Both": "own"}

var turnHeaders = map[string]string{"X-Both": "turn", "X-Turn": "turn"}

// A prompt's headers are for its turn, all model requests of it, and no longer.
func TestRequestHeaders(t *testing.T) {
	t.Parallel()
	const script = `
rules:
  - when: {user: "list"}
    reply: [{tool_call: {name: view, arguments: {path: "/nowhere"}}}]
default: {reply: [{text: "ok"}]}`
	own := [3]string{"own", "own", ""}
	for name, test := range map[string]struct {
		strategy bridgev1.HeaderStrategy
		headers  map[string]string
		want     [3]string
	}{
		"merged": {bridgev1.HeaderStrategy_HEADER_STRATEGY_MERGE, turnHeaders,
			[3]string{"own", "turn", "turn"}},
		"overriding": {bridgev1.HeaderStrategy_HEADER_STRATEGY_OVERRIDE, turnHeaders,
			[3]string{"", "turn", "turn"}},
		"by default": {bridgev1.HeaderStrategy_HEADER_STRATEGY_UNSPECIFIED, turnHeaders,
			[3]string{"", "turn", "turn"}},
		"none to be had": {bridgev1.HeaderStrategy_HEADER_STRATEGY_OVERRIDE, nil, own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := harness.NewFixture(t, script)
			s := withHeaders(r, providerHeaders)
			s.Ask("first")
			s.Ask("list", forTurn(test.strategy, test.headers))
			s.Ask("third")
			want := [][3]string{own, test.want, test.want, own}
			if got := headersOf(r.Model.ModelRequests()); !slices.Equal(got, want) {
				t.Errorf("headers are %q, want %q", got, want)
			}
			if slices.Contains(s.RecordedTypes(), "session.resume") {
				t.Error("the change of headers left a trace in the history")
			}
		})
	}
}

// Around a turn whose headers replace the provider's, turns of the session wait for each
// other: none is made with the headers of another.
func TestOverridingTurnsAreSerialised(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - {when: {user: "first"}, wait_for: first, reply: [{text: "one"}]}
  - {when: {user: "second"}, wait_for: second, reply: [{text: "two"}]}
default: {reply: [{text: "ok"}]}`)
	s := withHeaders(r, providerHeaders)
	s.Submit("first")
	outcomes := make(chan error, 2)
	overriding := make(chan struct{})
	go func() {
		_, err := s.Send(r.Ctx, "second", forTurn(bridgev1.HeaderStrategy_HEADER_STRATEGY_OVERRIDE, turnHeaders))
		close(overriding)
		outcomes <- err
	}()
	if _, err := r.Model.WaitRequests(r.Ctx, 1); err != nil {
		t.Fatal(err)
	}
	r.Model.Release("first")
	<-overriding
	if _, err := r.Model.WaitRequests(r.Ctx, 2); err != nil {
		t.Fatal(err)
	}
	// It cannot be steered, since that would be another turn's headers.
	_, err := s.Send(r.Ctx, "steer", copilot.Immediately())
	harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY)
	go func() {
		out, err := s.SendAndWait(r.Ctx, "third")
		if err == nil {
			err = out.Err()
		}
		outcomes <- err
	}()
	r.Model.Release("second")
	for range cap(outcomes) {
		if err := <-outcomes; err != nil {
			t.Fatal(err)
		}
	}
	want := [][3]string{{"own", "own", ""}, {"", "turn", "turn"}, {"own", "own", ""}}
	if got := headersOf(r.Model.ModelRequests()); !slices.Equal(got, want) {
		t.Errorf("headers are %q, want %q", got, want)
	}
}

// An overriding turn that is aborted, or fails, gives the headers back.
func TestOverridingTurnThatEndsBadly(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - {when: {user: "hang"}, reply: [{hang: true}]}
  - {when: {user: "refuse"}, error: {status: 400, message: "no"}}
default: {reply: [{text: "ok"}]}`)
	s := withHeaders(r, providerHeaders)
	override := forTurn(bridgev1.HeaderStrategy_HEADER_STRATEGY_OVERRIDE, turnHeaders)
	s.Submit("hang", override)
	if _, err := r.Model.WaitRequests(r.Ctx, 1); err != nil {
		t.Fatal(err)
	}
	if running, err := s.Abort(r.Ctx); err != nil || !running {
		t.Fatalf("abort: %v, %v", running, err)
	}
	s.Ask("after the abort")
	if got := s.Turn("refuse", override).Status(); got != copilot.TurnFailed {
		t.Errorf("status is %v", got)
	}
	s.Ask("after the failure")
	turn, own := [3]string{"", "turn", "turn"}, [3]string{"own", "own", ""}
	if got := headersOf(r.Model.ModelRequests()); !slices.Equal(got, [][3]string{turn, own, turn, own}) {
		t.Errorf("headers are %q", got)
	}
}
