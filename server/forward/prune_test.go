package forward_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// PruneSessions asks all replicas, for no more sessions than the caller permits, and reports those that do not answer.
func TestPruneSessions(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	for node, r := range c.replicas {
		r.backend.prune = func(
			_ context.Context, q *bridgev1.PruneSessionsRequest,
		) (*bridgev1.PruneSessionsResponse, error) {
			ids := []string{node + "1", node + "2"}
			return &bridgev1.PruneSessionsResponse{SessionIds: ids[:min(2, q.GetMaxSessions())]}, nil
		}
	}
	prune := func(limit int32) *bridgev1.PruneSessionsResponse {
		t.Helper()
		reply, err := c.replicas["a"].sessions().PruneSessions(t.Context(),
			&bridgev1.PruneSessionsRequest{IdleFor: durationpb.New(3600e9), MaxSessions: limit})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	for limit, want := range map[int32][]string{
		1: {"a1"}, 2: {"a1", "a2"}, 3: {"a1", "a2", "b1"}, 100: {"a1", "a2", "b1", "b2"},
	} {
		if got := prune(limit); !slices.Equal(got.GetSessionIds(), want) || len(got.GetFailures()) > 0 {
			t.Errorf("at most %d: %v, want %q", limit, got, want)
		}
	}
	if err := c.replicas["b"].Stop(); err != nil {
		t.Fatal(err)
	}
	got := prune(100)
	if len(got.GetFailures()) != 1 || !slices.Equal(got.GetSessionIds(), []string{"a1", "a2"}) {
		t.Fatalf("while replica b does not answer: %v", got)
	}
	f := got.GetFailures()[0]
	if f.GetSessionId() != "" || f.GetFailure().GetReason() != bridgev1.ErrorReason_ERROR_REASON_SESSION_UNAVAILABLE {
		t.Errorf("the failure is %v", f)
	}
}
