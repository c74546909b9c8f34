package forward_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// watching is the part of a watch at one replica, under the control of a test.
type watching struct {
	node  string
	begun chan struct{}
	send  chan *bridgev1.WatchSessionsResponse
}

// changed is a change of a session.
func changed(what bridgev1.SessionChange, session string) *bridgev1.WatchSessionsResponse {
	return &bridgev1.WatchSessionsResponse{Change: what, Session: &bridgev1.Session{SessionId: session}}
}

const (
	current = bridgev1.SessionChange_SESSION_CHANGE_CURRENT
	created = bridgev1.SessionChange_SESSION_CHANGE_CREATED
	beat    = bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT
	again   = bridgev1.SessionChange_SESSION_CHANGE_RESET
)

// watchable makes a replica report the current session "of-NODE" and then what the test sends.
func (r *replica) watchable() *watching {
	w := &watching{node: r.node, begun: make(chan struct{}, 8), send: make(chan *bridgev1.WatchSessionsResponse)}
	r.backend.watch = func(ctx context.Context, _ *bridgev1.WatchSessionsRequest, open func() error,
		emit func(*bridgev1.WatchSessionsResponse) error,
	) error {
		if err := open(); err != nil {
			return err
		}
		w.begun <- struct{}{}
		if err := emit(changed(current, "of-"+w.node)); err != nil {
			return err
		}
		for {
			select {
			case m, ok := <-w.send:
				if !ok {
					return nil
				}
				if err := emit(m); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return w
}

type watchStream interface {
	Recv() (*bridgev1.WatchSessionsResponse, error)
}

// sessionsIn returns the sessions of the next n changes, which must be of a kind, in order of their names.
func sessionsIn(t *testing.T, s watchStream, n int, what bridgev1.SessionChange) (sessions []string) {
	t.Helper()
	for range n {
		m, err := s.Recv()
		if err != nil || m.GetChange() != what {
			t.Fatalf("%v, %v, want %v", m, err, what)
		}
		sessions = append(sessions, m.GetSession().GetSessionId())
	}
	slices.Sort(sessions)
	return sessions
}

func TestWatchSessions(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	parts := map[string]*watching{}
	for node, r := range c.replicas {
		parts[node] = r.watchable()
	}
	stream, err := c.replicas["a"].events().WatchSessions(t.Context(), &bridgev1.WatchSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	for _, part := range parts { // the header says that all watch
		select {
		case <-part.begun:
		default:
			t.Errorf("%s does not watch after the header", part.node)
		}
	}
	all := []string{"of-a", "of-b", "of-c"}
	if got := sessionsIn(t, stream, 3, current); !slices.Equal(got, all) {
		t.Errorf("current %q", got)
	}
	parts["b"].send <- changed(beat, "") // dropped
	parts["b"].send <- changed(created, "new")
	if got := sessionsIn(t, stream, 1, created); got[0] != "new" {
		t.Errorf("created %q", got)
	}
	parts["a"].send <- changed(beat, "")
	sessionsIn(t, stream, 1, beat)

	parts["c"].send <- changed(again, "") // all start again
	sessionsIn(t, stream, 1, again)
	if got := sessionsIn(t, stream, 3, current); !slices.Equal(got, all) {
		t.Errorf("current after the reset %q", got)
	}

	d := c.join(t, "d", nil)
	d.watchable()
	sessionsIn(t, stream, 1, again)
	if got := sessionsIn(t, stream, 4, current); !slices.Equal(got, append(all, "of-d")) {
		t.Errorf("current with a new replica %q", got)
	}

	_ = d.Server.Close() // it is dead, and then no longer a member
	parts["a"].send <- changed(created, "later")
	sessionsIn(t, stream, 1, created)
	c.mu.Lock()
	delete(c.address, "d")
	c.mu.Unlock()
	sessionsIn(t, stream, 1, again)
	if got := sessionsIn(t, stream, 3, current); !slices.Equal(got, all) {
		t.Errorf("current without the dead replica %q", got)
	}

	close(parts["a"].send) // this replica drains
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestWatchWithADrainingReplica ends the stream of a replica that answers further: the others go on without a reset.
func TestWatchWithADrainingReplica(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	parts := map[string]*watching{}
	for node, r := range c.replicas {
		parts[node] = r.watchable()
	}
	looked := make(chan struct{}, 100)
	c.replicas["a"].locator.looked = looked
	stream, err := c.replicas["a"].events().WatchSessions(t.Context(), &bridgev1.WatchSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sessionsIn(t, stream, 3, current)
	close(parts["b"].send)
	for len(looked) > 0 {
		<-looked
	}
	for range 3 { // the replica is examined each time
		<-looked
	}
	parts["c"].send <- changed(created, "new")
	if got := sessionsIn(t, stream, 1, created); got[0] != "new" {
		t.Errorf("created %q", got)
	}
}

func TestWatchEndsWithTheClient(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	ended := make(chan string, 2)
	for _, r := range c.replicas {
		r.backend.watch = func(ctx context.Context, _ *bridgev1.WatchSessionsRequest, open func() error,
			_ func(*bridgev1.WatchSessionsResponse) error,
		) error {
			defer func() { ended <- r.node }()
			if err := open(); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := c.replicas["a"].events().WatchSessions(ctx, &bridgev1.WatchSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 2 {
		<-ended
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("the stream ends with %v", err)
	}
}

func (b *backend) WatchPending(
	ctx context.Context, _ *bridgev1.WatchPendingRequest, emit func(*bridgev1.WatchPendingResponse) error,
) error {
	for _, m := range []*bridgev1.WatchPendingResponse{
		{Change: &bridgev1.WatchPendingResponse_Requested{Requested: &bridgev1.Callback{CallbackId: b.node}}},
		{Change: &bridgev1.WatchPendingResponse_CaughtUp{CaughtUp: &bridgev1.PendingCaughtUp{}}},
		{Change: &bridgev1.WatchPendingResponse_Heartbeat{Heartbeat: &bridgev1.PendingHeartbeat{}}},
	} {
		if err := emit(m); err != nil {
			return err
		}
	}
	select {
	case <-b.skipped:
		if err := emit(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Reset_{
			Reset_: &bridgev1.PendingReset{}}}); err != nil {
			return err
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// TestWatchPending expects one caught_up for all replicas, after the callbacks of all.
func TestWatchPending(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.replicas["b"].backend.skipped = make(chan struct{}, 1)
	stream, err := bridgev1.NewCallbackServiceClient(c.replicas["a"].Conn).WatchPending(t.Context(),
		&bridgev1.WatchPendingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		var got []string
		beats := 0
		for caughtUp := false; !caughtUp || beats == 0; {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			switch m.GetChange().(type) {
			case *bridgev1.WatchPendingResponse_Requested:
				got = append(got, m.GetRequested().GetCallbackId())
			case *bridgev1.WatchPendingResponse_CaughtUp:
				if slices.Sort(got); caughtUp || !slices.Equal(got, []string{"a", "b", "c"}) {
					t.Errorf("round %d: caught up after %q", round, got)
				}
				caughtUp = true
			case *bridgev1.WatchPendingResponse_Heartbeat:
				beats++
			default:
				t.Errorf("round %d: %v", round, m)
			}
		}
		if beats != 1 {
			t.Errorf("round %d: %d heartbeats", round, beats)
		}
		if round > 0 {
			break
		}
		c.replicas["b"].backend.skipped <- struct{}{}
		if m, err := stream.Recv(); err != nil || m.GetReset_() == nil {
			t.Fatalf("%v, %v, want a reset", m, err)
		}
	}
}

// A watch of telemetry has the events of all replicas, also of those that join later, and the heartbeats of the replica
// that it reached.
func TestWatchTelemetry(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	a, b := c.replicas["a"].backend.telemetry, c.replicas["b"].backend.telemetry
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := bridgev1.NewRuntimeServiceClient(c.replicas["a"].Conn).WatchTelemetry(ctx,
		&bridgev1.WatchTelemetryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetRuntimeId() != "" {
		t.Errorf("the first frame is %v, %v", m, err)
	}
	heartbeats := 0
	next := func() (runtime string, lost int64) {
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetRuntimeId() != "" || m.GetLost() != 0 {
				return m.GetRuntimeId(), m.GetLost()
			}
			heartbeats++
		}
	}
	b <- &bridgev1.WatchTelemetryResponse{} // a heartbeat of another replica
	b <- &bridgev1.WatchTelemetryResponse{RuntimeId: "at b"}
	if id, _ := next(); id != "at b" {
		t.Errorf("the event is of %q", id)
	}
	a <- &bridgev1.WatchTelemetryResponse{Lost: 7}
	if _, lost := next(); lost != 7 {
		t.Errorf("%d events are lost", lost)
	}
	late := c.join(t, "c", nil)
	go func() { late.backend.telemetry <- &bridgev1.WatchTelemetryResponse{RuntimeId: "at c"} }()
	if id, _ := next(); id != "at c" {
		t.Errorf("the event is of %q", id)
	}
	if heartbeats > 1 { // that of the second round
		t.Errorf("%d heartbeats", heartbeats)
	}
}

// A subscription whose session has no name is refused by the replica that it reaches.
func TestSubscribeWithoutAName(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.replicas["a"].locator.draining = "b"
	for _, sessions := range [][]*bridgev1.SessionCursor{{{}}, {{SessionId: "s"}, {}}} {
		c.replicas["a"].backend.subscribe = func(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error {
			return fault.New(fault.InvalidField, "a session needs a name")
		}
		stream, err := c.replicas["a"].events().Subscribe(t.Context(), &bridgev1.SubscribeRequest{Sessions: sessions})
		if err == nil {
			_, err = stream.Recv()
		}
		if grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", sessions, err)
		}
	}
}
