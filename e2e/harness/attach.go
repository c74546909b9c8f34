package harness

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
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// NoGrace is a grace time of nothing.
var NoGrace = durationpb.New(0)

// Cable is what a client's connections go over, and can be cut.
type Cable struct {
	mu    sync.Mutex
	conns []net.Conn
}

// Option lets a client's connections go over the cable.
func (c *Cable) Option() copilot.Option {
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

// Cut breaks all connections off. Others can be made.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // it may be closed already
	}
	c.conns = nil
}

// Attached is an Attach stream as it is, for what clients/go hides.
type Attached struct {
	st        *Scripted
	Stream    grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	Started   *bridgev1.AttachStarted
	ID, Token string

	Mu      sync.Mutex
	changed chan struct{}
	Frames  []*bridgev1.AttachResponse
	over    bool
	err     error
}

// JoinOf is the start of a participant that joins a session.
func JoinOf(id string, handlers *bridgev1.Handlers) *bridgev1.AttachStart {
	return &bridgev1.AttachStart{
		Session:  &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id},
		Handlers: handlers, Filter: &bridgev1.EventFilter{ExcludeAll: true},
	}
}

// Attach opens an Attach stream by the fixture's client.
func (st *Scripted) Attach(start *bridgev1.AttachStart) *Attached {
	st.T.Helper()
	return st.AttachBy(st.Client, start)
}

func (st *Scripted) AttachBy(client *copilot.Client, start *bridgev1.AttachStart) *Attached {
	st.T.Helper()
	a, err := st.TryAttach(client, start)
	if err != nil {
		st.T.Fatalf("attach: %v", err)
	}
	return a
}

func (st *Scripted) TryAttach(client *copilot.Client, start *bridgev1.AttachStart) (*Attached, error) {
	st.T.Helper()
	stream, err := client.Callbacks().Attach(st.Ctx)
	if err != nil {
		return nil, err
	}
	a := &Attached{st: st, Stream: stream, changed: make(chan struct{})}
	a.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}})
	first, err := stream.Recv()
	for err == nil && first.GetProgress() != nil {
		first, err = stream.Recv()
	}
	if err != nil {
		return nil, err
	}
	for first.GetStarted() == nil && (first.GetOpening() != nil || a.Frames != nil) {
		a.Frames = append(a.Frames, first) // of a session that is still being opened
		if first, err = stream.Recv(); err != nil {
			return nil, err
		}
	}
	if a.Started = first.GetStarted(); a.Started == nil {
		st.T.Fatalf("the first frame is %v", first)
	}
	a.ID, a.Token = a.Started.GetParticipantId(), a.Started.GetParticipantToken()
	go a.receive()
	return a, nil
}

// Send sends a frame. When that fails, receiving says why.
func (a *Attached) Send(frame *bridgev1.AttachRequest) { _ = a.Stream.Send(frame) }

func (a *Attached) receive() {
	for {
		frame, err := a.Stream.Recv()
		a.Mu.Lock()
		if err == nil {
			a.Frames = append(a.Frames, frame)
		} else {
			a.over = true
			if !errors.Is(err, io.EOF) {
				a.err = err
			}
		}
		close(a.changed)
		a.changed = make(chan struct{})
		a.Mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Await waits for something to hold of the frames that came.
func (a *Attached) Await(what string, holds func() bool) {
	a.st.T.Helper()
	for {
		a.Mu.Lock()
		ok, changed, over := holds(), a.changed, a.over
		a.Mu.Unlock()
		if ok {
			return
		}
		if over {
			a.st.T.Fatalf("the attach stream ended (%v) without %s", a.err, what)
		}
		select {
		case <-changed:
		case <-a.st.Ctx.Done():
			a.st.T.Fatalf("waited in vain for %s", what)
		}
	}
}

// Frame waits for the first frame about the session that pick wants.
func (a *Attached) Frame(what string, pick func(*bridgev1.SubscribeResponse) bool) {
	a.st.T.Helper()
	a.Await(what, func() bool {
		return slices.ContainsFunc(a.Frames, func(f *bridgev1.AttachResponse) bool { return pick(f.GetStream()) })
	})
}

// Requested waits for a callback, be it one that was pending at the start.
func (a *Attached) Requested() (cb *bridgev1.Callback) {
	a.st.T.Helper()
	a.Frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		if pending := f.GetStarted().GetPendingCallbacks(); len(pending) > 0 {
			cb = pending[0]
		}
		if r := f.GetCallbackRequested(); r != nil {
			cb = r.GetCallback()
		}
		return cb != nil
	})
	return cb
}

// Asked waits for a callback of a kind.
func (a *Attached) Asked(kind bridgev1.CallbackKind) (cb *bridgev1.Callback) {
	a.st.T.Helper()
	a.Frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		cb = f.GetCallbackRequested().GetCallback()
		return cb.GetKind() == kind
	})
	return cb
}

// Resolved waits for the end of a callback.
func (a *Attached) Resolved(id string) (over *bridgev1.CallbackResolved) {
	a.st.T.Helper()
	a.Frame("the end of a callback", func(f *bridgev1.SubscribeResponse) bool {
		over = f.GetCallbackResolved()
		return over.GetCallbackId() == id
	})
	return over
}

// Closed is the goodbye of the stream, which is over.
func (a *Attached) Closed() (c *bridgev1.SubscriptionClosed) {
	a.st.T.Helper()
	a.Frame("a goodbye", func(f *bridgev1.SubscribeResponse) bool {
		c = f.GetClosed()
		return c != nil
	})
	return c
}

// Replied is what an answer or a command came to.
type Replied struct {
	Done   *bridgev1.AttachDone
	Failed *bridgev1.Failure
}

// Answer answers a callback and waits for the reply.
func (a *Attached) Answer(id string, answer *bridgev1.Answer) (r Replied) {
	a.st.T.Helper()
	a.Mu.Lock()
	from := len(a.Frames)
	a.Mu.Unlock()
	a.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
		Answer: &bridgev1.CallbackAnswer{CallbackId: id, Answer: answer},
	}})
	a.Await("a reply", func() bool {
		for _, f := range a.Frames[from:] {
			switch {
			case f.GetDone().GetCallbackId() == id:
				r.Done = f.GetDone()
			case f.GetFailed().GetCallbackId() == id:
				r.Failed = f.GetFailed().GetFailure()
			default:
				continue
			}
			return true
		}
		return false
	})
	return r
}

// End waits for the stream to end, and says with which error.
func (a *Attached) End() error {
	a.st.T.Helper()
	for {
		a.Mu.Lock()
		over, changed := a.over, a.changed
		a.Mu.Unlock()
		if over {
			return copilot.FromError(a.err)
		}
		select {
		case <-changed:
		case <-a.st.Ctx.Done():
			a.st.T.Fatal("the attach stream does not end")
		}
	}
}

// Commanding has a participant bring a command.
func Commanding(name string) func(*bridgev1.AttachStart) {
	return func(start *bridgev1.AttachStart) {
		start.Commands = []*cliv1.CommandDeclaration{{Name: name, Description: "Does it."}}
	}
}

// Answering is a tool without arguments that always says the same.
func Answering(name, text string) copilot.Tool {
	return copilot.NewTool(name, "Says "+text, func(context.Context, struct{}) (string, error) { return text, nil },
		copilot.SkipPermission())
}
