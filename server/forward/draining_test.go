package forward_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// A new session is created at a replica with the labels that it needs, whichever call creates it. If there is none, the
// call fails.
func TestLabelsPlaceElsewhere(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	for _, r := range c.replicas {
		r.backend.create = func(
			context.Context, *bridgev1.CreateSessionRequest,
		) (*bridgev1.CreateSessionResponse, error) {
			return &bridgev1.CreateSessionResponse{Session: &bridgev1.Session{Name: r.node}}, nil
		}
		r.backend.run = func(_ context.Context, _ *bridgev1.RunRequest, emit frame.Sink) error {
			return emit(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Started{
				Started: &bridgev1.RunStarted{SessionId: r.node}}}})
		}
	}
	entry := c.replicas["a"]
	at := func(node, id string) *bridgev1.CreateSessionRequest {
		return &bridgev1.CreateSessionRequest{SessionId: id, NodeLabels: map[string]string{"node": node}}
	}
	for _, id := range []string{"", "new"} {
		reply, err := entry.sessions().CreateSession(t.Context(), at("b", id))
		if err != nil || reply.GetSession().GetName() != "b" {
			t.Errorf("%q is created by %v, %v", id, reply.GetSession().GetName(), err)
		}
		_, err = entry.sessions().CreateSession(t.Context(), at("c", id))
		if grpcstatus.Code(err) != codes.FailedPrecondition {
			t.Errorf("without a replica that has the labels: %v", err)
		}
	}
	run, err := entry.sessions().Run(t.Context(),
		&bridgev1.RunRequest{Session: &bridgev1.RunRequest_Create{Create: at("b", "")}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run.Recv(); err != nil || got.GetStarted().GetSessionId() != "b" {
		t.Errorf("Run is served by %v, %v", got, err)
	}
}

// A replica that drains leaves new sessions, and stored ones that no replica has, to another one; its own stay.
func TestDrainingReplicaPlacesElsewhere(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	for _, r := range c.replicas {
		r.backend.create = func(
			context.Context, *bridgev1.CreateSessionRequest,
		) (*bridgev1.CreateSessionResponse, error) {
			return &bridgev1.CreateSessionResponse{Session: &bridgev1.Session{Name: r.node}}, nil
		}
		r.backend.run = func(_ context.Context, _ *bridgev1.RunRequest, emit frame.Sink) error {
			return emit(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Started{
				Started: &bridgev1.RunStarted{SessionId: r.node}}}})
		}
	}
	c.stored["kept"] = true
	c.set("own", "a")
	entry := c.replicas["a"]
	entry.locator.draining = "b"
	for _, id := range []string{"", "new"} {
		var header metadata.MD
		reply, err := entry.sessions().CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{SessionId: id}, grpc.Header(&header))
		if err != nil || reply.GetSession().GetName() != "b" {
			t.Errorf("%q is created by %v, %v", id, reply.GetSession().GetName(), err)
		}
		if got := header.Get(forward.HeaderOwner); len(got) != 1 || got[0] != "b" {
			t.Errorf("%q: the header names %q", id, got)
		}
	}
	run, err := entry.sessions().Run(t.Context(), &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run.Recv(); err != nil || got.GetStarted().GetSessionId() != "b" {
		t.Errorf("Run is served by %v, %v", got, err)
	}
	if got := entry.servedBy(t, "kept"); got != "b" {
		t.Errorf("a stored session is served by %q", got)
	}
	if got := entry.servedBy(t, "own"); got != "a" {
		t.Errorf("the session that the replica still has is served by %q", got)
	}
	if owner := c.owners["kept"]; owner != "b" {
		t.Errorf("the stored session is of %q", owner)
	}
}

// DrainNode goes to the replica that it names; a name that no replica has is for the entry replica to refuse.
func TestCallsOfANode(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	for _, name := range []string{"a", "b", "none"} {
		want := name
		if name == "none" {
			want = "a"
		}
		reply, err := bridgev1.NewRuntimeServiceClient(c.replicas["a"].Conn).DrainNode(t.Context(),
			&bridgev1.DrainNodeRequest{Node: name})
		if err != nil || reply.GetMovedSessions() != int64(want[0]) {
			t.Errorf("%q is served by %v, %v", name, reply, err)
		}
	}
}
