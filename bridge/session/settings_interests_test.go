package session

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// TestInterests: the CLI sees one interest of a type, each caller has a handle of its own, and there are not too many.
func TestInterests(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	f.saved = 0
	first, err := f.of.settings.Register(f.ctx, "model.call_start")
	second, again := f.of.settings.Register(f.ctx, "model.call_start")
	if err != nil || again != nil || first == second || f.saved != 2 {
		t.Errorf("registered as %q and %q, %v, %v, saved %d times", first, second, err, again, f.saved)
	}
	calls := slices.DeleteFunc(f.methods(), func(m string) bool { return m != "session.eventLog.registerInterest" })
	if len(calls) != 1 {
		t.Errorf("the CLI is told of %d interests", len(calls))
	}
	f.of.settings.Unregister(first)
	if left := f.of.settings.State.Registered; len(left) != 1 || left[second] == "" || f.saved != 3 {
		t.Errorf("behind a release there are %v, saved %d times", left, f.saved)
	}
	f.refuse = errors.New("refused")
	if _, err := f.of.settings.Register(f.ctx, "another"); !errors.Is(err, f.refuse) || len(f.of.settings.State.Registered) != 1 {
		t.Errorf("refused: %v, there are %v", err, f.of.settings.State.Registered)
	}
	f.refuse = nil
	for len(f.of.settings.State.Registered) < maxInterests {
		if _, err := f.of.settings.addInterest("model.call_start"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.of.settings.Register(f.ctx, "model.call_start")
	wantReason(t, err, fault.LimitExceeded)
}

// TestInterestsAreNamed: the CLI is told which events the session wants.
func TestInterestsAreNamed(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Replies: map[string]json.RawMessage{"session.eventLog.registerInterest": json.RawMessage(`{}`)}})
	r.open(Opening{Handling: &config.Handling{Methods: []string{"sampling.requested"}}})
	has(t, r.last("session.eventLog.registerInterest"), `"eventType":"sampling.requested"`)
}
