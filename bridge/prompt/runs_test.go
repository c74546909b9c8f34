package prompt

import (
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// The newest turns can be found. A later turn of the same message does not replace the first, and the turns of
// a deleted session are removed.
func TestRuns(t *testing.T) {
	t.Parallel()
	host := struct{ session.Host }{} // which is not called
	var rs runs
	s, other := session.New(session.Config{ID: "s", Host: host}), session.New(session.Config{ID: "other", Host: host})
	start := func(s *session.Session, message string) *startedTurn {
		return &startedTurn{s: s, sent: session.Sent{MessageID: message}}
	}
	first := start(s, "m")
	if rs.put(first) != first || rs.put(start(s, "m")) != first || rs.get(t.Context(), "s", "m") != first {
		t.Error("the first turn of a message does not stay")
	}
	if rs.get(t.Context(), "s", "n") != nil || rs.get(t.Context(), "other", "m") != nil {
		t.Error("a turn is found that was not started")
	}
	rs.put(start(other, "m"))
	rs.forget(s.Key())
	if rs.get(t.Context(), "s", "m") != nil || rs.get(t.Context(), "other", "m") == nil {
		t.Error("forgetting a session forgets another one's turns, or not its own")
	}
	for i := range maxRuns + 1 {
		rs.put(start(s, fmt.Sprint(i)))
	}
	if rs.get(t.Context(), "other", "m") != nil || rs.get(t.Context(), "s", "0") != nil {
		t.Error("the oldest turns are still remembered")
	}
	if rs.get(t.Context(), "s", "1") == nil || rs.get(t.Context(), "s", fmt.Sprint(maxRuns)) == nil || len(rs.turns) != maxRuns {
		t.Errorf("%d turns are remembered, want %d", len(rs.turns), maxRuns)
	}
}
