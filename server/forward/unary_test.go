package forward_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

func TestCallsReachTheOwner(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.set("one", "a")
	c.set("two", "b")
	c.set("three", "c")
	for session, owner := range map[string]string{"one": "a", "two": "b", "three": "c"} {
		for _, entry := range c.replicas {
			var header metadata.MD
			if got := entry.servedBy(t, session, grpc.Header(&header)); got != owner {
				t.Errorf("%s through %s is served by %q, want %q", session, entry.node, got, owner)
			}
			if got := header.Get(forward.HeaderOwner); len(got) != 1 || got[0] != owner {
				t.Errorf("%s through %s: header %q, want %q", session, entry.node, got, owner)
			}
		}
	}
}

func TestSessionsWithoutOwner(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.stored["kept"] = true
	if got := c.replicas["a"].servedBy(t, "kept"); got != "a" {
		t.Errorf("a stored session is served by %q, want the entry", got)
	}
	if got := c.replicas["b"].servedBy(t, "kept"); got != "a" {
		t.Errorf("the session that a has claimed is served by %q", got)
	}
	if got := c.replicas["b"].servedBy(t, "new"); got != "b" {
		t.Errorf("an unknown session is served by %q, want the replica that was asked", got)
	}
}

func TestCreateGoesToTheOwnerOfTheID(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("taken", "b")
	for _, r := range c.replicas {
		r.backend.create = func(
			context.Context, *bridgev1.CreateSessionRequest,
		) (*bridgev1.CreateSessionResponse, error) {
			return &bridgev1.CreateSessionResponse{Session: &bridgev1.Session{Name: r.node}}, nil
		}
	}
	for id, want := range map[string]string{"": "a", "free": "a", "taken": "b"} {
		reply, err := c.replicas["a"].sessions().CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{SessionId: id})
		if err != nil || reply.GetSession().GetName() != want {
			t.Errorf("%q: %v, %v, want %q", id, reply, err, want)
		}
	}
}

// TestNothingIsLostOnTheWay compares what a call brings to the owner, and back, with the same call to the owner itself.
func TestNothingIsLostOnTheWay(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	type seen struct {
		md       metadata.MD
		who      caller.Caller
		deadline time.Time
	}
	calls := make(chan seen, 1)
	c.replicas["b"].backend.get = func(
		ctx context.Context, _ *bridgev1.GetSessionRequest,
	) (*bridgev1.GetSessionResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		at, _ := ctx.Deadline()
		calls <- seen{md, caller.From(ctx), at}
		position.Record(ctx, position.Position{Epoch: 3, Seq: 17})
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "h"))
		return nil, fault.New(fault.SessionBusy, "busy").WithField("prompt.mode").With("session_id", "s").
			WithRetry(time.Minute)
	}
	type told struct {
		seen
		header, trailer metadata.MD
		st              *grpcstatus.Status
	}
	ask := func(r *replica) (out told) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "copilot-request-id", "r1", "x-two", "1", "x-two", "2",
			"x-bytes-bin", "\x00\xff", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"authorization", "Bearer secret", "x-forwarded-client-cert", "Hash=1")
		_, err := r.sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"}, grpc.Header(&out.header),
			grpc.Trailer(&out.trailer))
		out.st = grpcstatus.Convert(err)
		out.seen = <-calls
		return out
	}
	direct, relayed := ask(c.replicas["b"]), ask(c.replicas["a"])
	for _, key := range []string{"copilot-request-id", "x-two", "x-bytes-bin", "traceparent"} {
		if got, want := relayed.md.Get(key), direct.md.Get(key); strings.Join(got, "|") != strings.Join(want, "|") ||
			len(want) == 0 {
			t.Errorf("metadata %s: %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{"authorization", "x-forwarded-client-cert"} {
		if got := relayed.md.Get(key); len(got) > 0 {
			t.Errorf("the owner received the caller's credentials: %s", key)
		}
	}
	if relayed.who != direct.who {
		t.Errorf("caller %+v, want %+v", relayed.who, direct.who)
	}
	if d := relayed.deadline.Sub(direct.deadline).Abs(); relayed.deadline.IsZero() || d > time.Minute {
		t.Errorf("deadline %v, want about %v", relayed.deadline, direct.deadline)
	}
	if got, want := relayed.st.Proto().String(), direct.st.Proto().String(); got != want ||
		status.Reason(relayed.st) != "SESSION_BUSY" {
		t.Errorf("status %s, want %s", got, want)
	}
	for _, key := range []string{position.Trailer, status.TrailerReason, status.TrailerField} {
		if got, want := relayed.trailer.Get(key), direct.trailer.Get(key); strings.Join(got, "|") !=
			strings.Join(want, "|") || len(want) != 1 {
			t.Errorf("trailer %s: %q, want %q", key, got, want)
		}
	}
	if len(relayed.trailer) != len(direct.trailer) || len(relayed.header) != len(direct.header) {
		t.Errorf("metadata %v %v, want %v %v", relayed.header, relayed.trailer, direct.header, direct.trailer)
	}
}

func TestMovedSession(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.set("s", "b")
	entry := c.replicas["a"]
	if got := entry.servedBy(t, "s"); got != "b" {
		t.Fatalf("served by %q", got)
	}
	c.set("s", "c") // entry still remembers b
	if got := entry.servedBy(t, "s"); got != "c" {
		t.Errorf("after the move served by %q", got)
	}
	c.set("s", "a")
	if got := entry.servedBy(t, "s"); got != "a" {
		t.Errorf("after the move to the replica itself served by %q", got)
	}
}

// TestLoop lets each of two replicas believe that the other one has the session: the call ends, typed, after a bounded
// number of attempts, and no backend is called.
func TestLoop(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "elsewhere")
	c.address["elsewhere"] = c.address["b"]
	c.replicas["b"].backend.get = func(
		context.Context, *bridgev1.GetSessionRequest,
	) (*bridgev1.GetSessionResponse, error) {
		t.Error("the session was used at a replica that does not have it")
		return nil, nil
	}
	_, err := c.replicas["a"].sessions().GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	unavailable(t, err)
	if n := c.replicas["a"].locator.verified; n != 3 {
		t.Errorf("the owner was verified %d times, want 3", n)
	}
	if n := c.replicas["b"].locator.verified; n != 0 {
		t.Errorf("the receiver looked for the owner %d times", n)
	}
}

// unavailable checks the error for a session that is between owners: clients try again.
func unavailable(t *testing.T, err error) {
	t.Helper()
	st := grpcstatus.Convert(err)
	retry := false
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.RetryInfo)
		retry = retry || ok && info.GetRetryDelay().AsDuration() > 0
	}
	if st.Code() != codes.Unavailable || status.Reason(st) != "SESSION_UNAVAILABLE" || !retry {
		t.Errorf("status %v, reason %q, retry %v", st, status.Reason(st), retry)
	}
}

func TestDeadOwner(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	entry := c.replicas["a"]
	entry.servedBy(t, "s")
	if err := c.replicas["b"].Stop(); err != nil {
		t.Fatal(err)
	}
	_, err := entry.sessions().GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	unavailable(t, err)
	c.set("s", "a")
	if got := entry.servedBy(t, "s"); got != "a" {
		t.Errorf("after the takeover served by %q", got)
	}
}

// TestOwnerDiesDuringACall checks that a call that the session may have received is not made again.
func TestOwnerDiesDuringACall(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.set("s", "b")
	dying := c.replicas["b"]
	calls := make(chan struct{}, 2)
	dying.backend.get = func(ctx context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		calls <- struct{}{}
		c.set("s", "c")
		<-ctx.Done() // the server is stopped by force
		return nil, ctx.Err()
	}
	c.replicas["c"].backend.get = func(
		context.Context, *bridgev1.GetSessionRequest,
	) (*bridgev1.GetSessionResponse, error) {
		t.Error("the call was made again")
		return nil, nil
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.replicas["a"].sessions().GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
		failed <- err
	}()
	<-calls
	_ = dying.Server.Close()
	unavailable(t, <-failed)
}

func TestCancellationReachesTheOwner(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	called, cancelled := make(chan struct{}), make(chan error, 1)
	c.replicas["b"].backend.get = func(
		ctx context.Context, _ *bridgev1.GetSessionRequest,
	) (*bridgev1.GetSessionResponse, error) {
		close(called)
		<-ctx.Done()
		cancelled <- ctx.Err()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	_, err := c.replicas["a"].sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
	if grpcstatus.Code(err) != codes.Canceled || <-cancelled == nil {
		t.Errorf("error %v", err)
	}
}

// TestSessionLeavesDuringACall lets a session go to another replica after its call was let in: the call is carried out
// there, and a stream ends so that its client tries again, whichever replica it entered.
func TestSessionLeavesDuringACall(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"a", "b"} {
		c := start(t, nil, "a", "b", "c")
		c.set("s", "b")
		c.replicas["b"].backend.get = func(
			context.Context, *bridgev1.GetSessionRequest,
		) (*bridgev1.GetSessionResponse, error) {
			c.set("s", "c")
			return nil, fault.New(fault.SessionNotFound, "gone")
		}
		var header metadata.MD
		if got := c.replicas[entry].servedBy(t, "s", grpc.Header(&header)); got != "c" {
			t.Errorf("through %s: served by %q", entry, got)
		}
		if got := header.Get(forward.HeaderOwner); len(got) != 1 || got[0] != "c" {
			t.Errorf("through %s: the header names %q", entry, got)
		}
		c.set("s", "b")
		c.replicas["b"].backend.subscribe = func(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error {
			c.set("s", "c")
			return fault.New(fault.SessionNotFound, "gone")
		}
		stream, err := c.replicas[entry].events().Subscribe(t.Context(),
			&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
		if err == nil {
			_, err = stream.Recv()
		}
		if got := status.Reason(grpcstatus.Convert(err)); got != "SESSION_UNAVAILABLE" {
			t.Errorf("through %s: the stream ended with %v", entry, err)
		}
	}
}
