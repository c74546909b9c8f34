package forward_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// perSession serves Subscribe with two frames for each session, the last one after all parts have begun.
func perSession(t *testing.T, c *cluster, begun *sync.WaitGroup) {
	t.Helper()
	for _, r := range c.replicas {
		r.backend.subscribe = func(_ context.Context, q *bridgev1.SubscribeRequest, emit frame.Sink) error {
			if !q.GetCallbacks() || q.GetOptions().GetFidelity() != bridgev1.Fidelity_FIDELITY_EXACT {
				t.Errorf("%s: request %v", r.node, q)
			}
			begun.Done()
			begun.Wait()
			for _, s := range q.GetSessions() {
				for n := range uint64(2) {
					m := heartbeat(r.node+" "+s.GetSessionId(), s.GetAfter().GetSeq()+n)
					if err := emit(encoded(t, m)); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
}

func TestSubscribeToSeveralOwners(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	var begun sync.WaitGroup
	begun.Add(3)
	perSession(t, c, &begun)
	want := map[string]uint64{}
	request := &bridgev1.SubscribeRequest{Callbacks: true,
		Options: &bridgev1.StreamOptions{Fidelity: bridgev1.Fidelity_FIDELITY_EXACT}}
	for i, owner := range []string{"a", "b", "c", "a", "b", "b"} {
		session := "s" + string(rune('0'+i))
		c.set(session, owner)
		request.Sessions = append(request.Sessions, &bridgev1.SessionCursor{SessionId: session,
			After: &bridgev1.Position{Epoch: 1, Seq: uint64(10 * i)}})
		want[owner+" "+session] = uint64(10 * i)
	}
	entry := c.replicas["a"]
	entry.servedBy(t, "s1")
	c.set("s1", "c") // a still believes in b: the refused part is located again
	delete(want, "b s1")
	want["c s1"] = 10
	begun.Add(1)
	stream, err := entry.events().Subscribe(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]uint64{}
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if at := want[m.GetSessionId()] + count[m.GetSessionId()]; m.GetResumeAfter().GetSeq() != at {
			t.Errorf("%s: position %v, want %d", m.GetSessionId(), m.GetResumeAfter(), at)
		}
		count[m.GetSessionId()]++
	}
	for session := range want {
		if count[session] != 2 {
			t.Errorf("%s: %d frames", session, count[session])
		}
	}
	if len(count) != len(want) {
		t.Errorf("frames of %v", count)
	}
}

// TestOnePartEndsTheOthers lets one of several owners die: the stream ends typed, and the other parts end with it.
func TestOnePartEndsTheOthers(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	var begun sync.WaitGroup
	begun.Add(3)
	ended := make(chan string, 3)
	for _, r := range c.replicas {
		r.backend.subscribe = func(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
			defer func() { ended <- r.node }()
			begun.Done()
			if err := emit(frame.Frame{Message: heartbeat(r.node, 1)}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	request := &bridgev1.SubscribeRequest{}
	for node := range c.replicas {
		c.set("of-"+node, node)
		request.Sessions = append(request.Sessions, &bridgev1.SessionCursor{SessionId: "of-" + node})
	}
	stream, err := c.replicas["a"].events().Subscribe(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	begun.Wait()
	_ = c.replicas["b"].Server.Close()
	for err == nil {
		_, err = stream.Recv()
	}
	unavailable(t, err)
	for range 3 {
		<-ended
	}
}

// TestPanicOfAPart ends only its call.
func TestPanicOfAPart(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("of-a", "a")
	c.set("of-b", "b")
	for _, r := range c.replicas {
		r.backend.subscribe = func(ctx context.Context, _ *bridgev1.SubscribeRequest, _ frame.Sink) error {
			if r.node == "a" {
				panic("a part")
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	stream, err := c.replicas["a"].events().Subscribe(t.Context(), &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: "of-a"}, {SessionId: "of-b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Internal {
		t.Errorf("the stream ends with %v", err)
	}
	if got := c.replicas["a"].servedBy(t, "of-a"); got != "a" {
		t.Errorf("the call after is served by %q", got)
	}
}
