package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// noGrace is a grace time of nothing.
var noGrace = durationpb.New(0)

// cable is what a client's connections go over, and can be cut.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
}

// option lets a client's connections go over the cable.
func (c *cable) option() copilot.Option {
	return copilot.WithGRPC(grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix:"))
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conns = append(c.conns, conn)
		}
		return conn, err
	}))
}

// cut breaks all connections off. Others can be made.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // it may be closed already
	}
	c.conns = nil
}

// attached is an Attach stream as it is, for what clients/go hides.
type attached struct {
	st        *stage
	stream    grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	started   *bridgev1.AttachStarted
	id, token string

	mu      sync.Mutex
	changed chan struct{}
	frames  []*bridgev1.AttachResponse
	over    bool
	err     error
}

func joinOf(id string, handlers *bridgev1.Handlers) *bridgev1.AttachStart {
	return &bridgev1.AttachStart{
		Session:  &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id},
		Handlers: handlers, Filter: &bridgev1.EventFilter{None: true},
	}
}

// attach opens an Attach stream by the stage's client.
func (st *stage) attach(start *bridgev1.AttachStart) *attached {
	st.t.Helper()
	return st.attachBy(st.client, start)
}

func (st *stage) attachBy(client *copilot.Client, start *bridgev1.AttachStart) *attached {
	st.t.Helper()
	a, err := st.tryAttach(client, start)
	if err != nil {
		st.t.Fatalf("attach: %v", err)
	}
	return a
}

func (st *stage) tryAttach(client *copilot.Client, start *bridgev1.AttachStart) (*attached, error) {
	st.t.Helper()
	stream, err := client.Callbacks().Attach(st.ctx)
	if err != nil {
		return nil, err
	}
	a := &attached{st: st, stream: stream, changed: make(chan struct{})}
	a.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}})
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	for first.GetStarted() == nil && (first.GetOpening() != nil || a.frames != nil) {
		a.frames = append(a.frames, first) // of a session that is still being opened
		if first, err = stream.Recv(); err != nil {
			return nil, err
		}
	}
	if a.started = first.GetStarted(); a.started == nil {
		st.t.Fatalf("the first frame is %v", first)
	}
	a.id, a.token = a.started.GetParticipantId(), a.started.GetToken()
	go a.receive()
	return a, nil
}

// send sends a frame. When that fails, receiving says why.
func (a *attached) send(frame *bridgev1.AttachRequest) { _ = a.stream.Send(frame) }

func (a *attached) receive() {
	for {
		frame, err := a.stream.Recv()
		a.mu.Lock()
		if err == nil {
			a.frames = append(a.frames, frame)
		} else {
			a.over = true
			if !errors.Is(err, io.EOF) {
				a.err = err
			}
		}
		close(a.changed)
		a.changed = make(chan struct{})
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for something to hold of the frames that came.
func (a *attached) await(what string, holds func() bool) {
	a.st.t.Helper()
	for {
		a.mu.Lock()
		ok, changed, over := holds(), a.changed, a.over
		a.mu.Unlock()
		if ok {
			return
		}
		if over {
			a.st.t.Fatalf("the attach stream ended (%v) without %s", a.err, what)
		}
		select {
		case <-changed:
		case <-a.st.ctx.Done():
			a.st.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// frame waits for the first frame about the session that pick wants.
func (a *attached) frame(what string, pick func(*bridgev1.SubscribeResponse) bool) {
	a.st.t.Helper()
	a.await(what, func() bool {
		return slices.ContainsFunc(a.frames, func(f *bridgev1.AttachResponse) bool { return pick(f.GetStream()) })
	})
}

// requested waits for a callback, be it one that was pending at the start.
func (a *attached) requested() (cb *bridgev1.Callback) {
	a.st.t.Helper()
	a.frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		if pending := f.GetAttached().GetPendingCallbacks(); len(pending) > 0 {
			cb = pending[0]
		}
		if r := f.GetCallbackRequested(); r != nil {
			cb = r.GetCallback()
		}
		return cb != nil
	})
	return cb
}

// asked waits for a callback of a kind.
func (a *attached) asked(kind bridgev1.CallbackKind) (cb *bridgev1.Callback) {
	a.st.t.Helper()
	a.frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		cb = f.GetCallbackRequested().GetCallback()
		return cb.GetKind() == kind
	})
	return cb
}

// resolved waits for the end of a callback.
func (a *attached) resolved(id string) (over *bridgev1.CallbackResolved) {
	a.st.t.Helper()
	a.frame("the end of a callback", func(f *bridgev1.SubscribeResponse) bool {
		over = f.GetCallbackResolved()
		return over.GetCallbackId() == id
	})
	return over
}

// closed is the goodbye of the stream, which is over.
func (a *attached) closed() (c *bridgev1.Closed) {
	a.st.t.Helper()
	a.frame("a goodbye", func(f *bridgev1.SubscribeResponse) bool {
		c = f.GetClosed()
		return c != nil
	})
	return c
}

// replied is what an answer or a command came to.
type replied struct {
	done   *bridgev1.AttachDone
	failed *bridgev1.Failure
}

// answer answers a callback and waits for the reply.
func (a *attached) answer(id string, answer *bridgev1.Answer) (r replied) {
	a.st.t.Helper()
	a.mu.Lock()
	from := len(a.frames)
	a.mu.Unlock()
	a.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
		Answer: &bridgev1.CallbackAnswer{CallbackId: id, Answer: answer},
	}})
	a.await("a reply", func() bool {
		for _, f := range a.frames[from:] {
			switch {
			case f.GetDone().GetCallbackId() == id:
				r.done = f.GetDone()
			case f.GetFailed().GetCallbackId() == id:
				r.failed = f.GetFailed().GetFailure()
			default:
				continue
			}
			return true
		}
		return false
	})
	return r
}

// end waits for the stream to end, and says with which error.
func (a *attached) end() error {
	a.st.t.Helper()
	for {
		a.mu.Lock()
		over, changed := a.over, a.changed
		a.mu.Unlock()
		if over {
			return copilot.FromError(a.err)
		}
		select {
		case <-changed:
		case <-a.st.ctx.Done():
			a.st.t.Fatal("the attach stream does not end")
		}
	}
}
