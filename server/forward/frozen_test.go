package forward_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// frozenLimit is how long a call may wait for a replica that does not answer, as cluster.md has it, and a second for a
// busy machine.
const frozenLimit = 5*time.Second + time.Second

// link is a listener that passes connections on to a replica. While it is frozen it accepts and reads, as the kernel
// does for a process that is stopped by a signal, and passes nothing.
type link struct {
	net.Listener
	to     string
	mu     sync.Mutex
	frozen chan struct{} // nil unless frozen; closed by thaw
}

// linked has the other replicas reach a replica by a link.
func linked(tb testing.TB, c *cluster, node string) *link {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	out := &link{Listener: l, to: c.address[node]}
	c.address[node] = l.Addr().String()
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	conns.Go(func() { out.accept(ctx, &conns) })
	tb.Cleanup(func() {
		cancel()
		_ = l.Close()
		out.thaw()
		conns.Wait()
	})
	return out
}

func (l *link) accept(ctx context.Context, conns *sync.WaitGroup) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			var d net.Dialer
			out, err := d.DialContext(ctx, "tcp", l.to)
			if err != nil {
				_ = in.Close()
				return
			}
			stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
			defer stop()
			var both sync.WaitGroup
			both.Go(func() { l.pass(out, in) })
			both.Go(func() { l.pass(in, out) })
			both.Wait()
		})
	}
}

func (l *link) pass(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		frozen := l.frozen
		l.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = make(chan struct{})
}

func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// TestFrozenOwner: each kind of call to an owner that does not answer fails as unavailable within the limit, whether it
// was connected before, and in whatever call. When the owner continues, it has a prompt once at most, and calls succeed.
func TestFrozenOwner(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, r *replica) error{
		"GetSession": func(ctx context.Context, r *replica) error {
			_, err := r.sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
			return err
		},
		"Send": func(ctx context.Context, r *replica) error {
			_, err := r.sessions().Send(ctx, &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hi"}})
			return err
		},
		"ListSessions": func(ctx context.Context, r *replica) error {
			_, err := r.sessions().ListSessions(ctx, &bridgev1.ListSessionsRequest{})
			return err
		},
		"Subscribe": func(ctx context.Context, r *replica) error {
			return subscribed(ctx, r, "s")
		},
		"Subscribe of two": func(ctx context.Context, r *replica) error {
			return subscribed(ctx, r, "s", "own")
		},
	} {
		for state, connected := range map[string]bool{"connected": true, "not connected": false} {
			t.Run(name+"/"+state, func(t *testing.T) {
				t.Parallel()
				testFrozenOwner(t, connected, call)
			})
		}
	}
}

func testFrozenOwner(t *testing.T, connected bool, call func(ctx context.Context, r *replica) error) {
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	c.set("own", "a")
	var prompts atomic.Int64
	for _, r := range c.replicas {
		r.backend.list = func(
			context.Context, *bridgev1.ListSessionsRequest,
		) (*bridgev1.ListSessionsResponse, error) {
			return &bridgev1.ListSessionsResponse{}, nil
		}
		r.backend.subscribe = func(ctx context.Context, _ *bridgev1.SubscribeRequest, _ frame.Sink) error {
			<-ctx.Done()
			return ctx.Err()
		}
		r.backend.send = func(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
			prompts.Add(1)
			return &bridgev1.SendResponse{}, nil
		}
	}
	entry, owner := c.replicas["a"], linked(t, c, "b")
	if connected {
		entry.servedBy(t, "s")
	}
	owner.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	unavailable(t, call(ctx, entry))
	if took := time.Since(began); took > frozenLimit {
		t.Errorf("the call took %v", took)
	}
	owner.thaw()
	for {
		reply, err := entry.sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		if err == nil && reply.GetSession().GetName() == "b" {
			break
		}
		if unavailable(t, err); ctx.Err() != nil {
			return
		}
	}
	if n := prompts.Load(); n > 1 {
		t.Errorf("the owner has received the prompt %d times", n)
	}
}

// A call that the owner takes long for is not ended while the owner answers.
func TestSlowCallIsNotEnded(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	c.replicas["b"].backend.get = func(
		ctx context.Context, r *bridgev1.GetSessionRequest,
	) (*bridgev1.GetSessionResponse, error) {
		timer := time.NewTimer(frozenLimit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{Name: r.GetSessionId()}}, ctx.Err()
	}
	if got := c.replicas["a"].servedBy(t, "s"); got != "s" {
		t.Errorf("the reply is %q", got)
	}
}

// subscribed reads a stream until it fails.
func subscribed(ctx context.Context, r *replica, sessions ...string) error {
	request := &bridgev1.SubscribeRequest{}
	for _, id := range sessions {
		request.Sessions = append(request.Sessions, &bridgev1.SessionCursor{SessionId: id})
	}
	stream, err := r.events().Subscribe(ctx, request)
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}
