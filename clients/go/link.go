package copilot

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// link is one Attach stream.
type link struct {
	stream grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	ctx    context.Context
	cancel context.CancelCauseFunc
	// down is closed when nothing more is read from the stream; err then says why.
	down chan struct{}
	err  error

	sending sync.Mutex
	beating sync.WaitGroup
}

// dial opens an Attach stream. ctx bounds the opening, p.ctx the stream.
func (p *participant) dial(
	ctx context.Context, start *bridgev1.AttachStart,
) (*link, *bridgev1.AttachStarted, error) {
	lctx, cancel := context.WithCancelCause(p.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	l := &link{ctx: lctx, cancel: cancel, down: make(chan struct{})}
	started, err := l.open(p, start)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		cancel(nil)
		p.unset(l)
		l.err = err
		close(l.down)
		p.calls.lost(l) // answers that were sent while the session was being opened are sent again
		return nil, nil, FromError(err)
	}
	return l, started, nil
}

func (l *link) open(p *participant, start *bridgev1.AttachStart) (*bridgev1.AttachStarted, error) {
	stream, err := p.client.callbacks.Attach(l.ctx)
	if err != nil {
		return nil, err
	}
	l.stream = stream
	// When sending fails, receiving says why.
	_ = l.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}})
	return l.awaitStarted(p)
}

// awaitStarted waits until the session is open. Meanwhile it answers callbacks.
func (l *link) awaitStarted(p *participant) (*bridgev1.AttachStarted, error) {
	for {
		resp, err := l.stream.Recv()
		if err != nil {
			return nil, l.failure(err)
		}
		switch f := resp.GetFrame().(type) {
		case *bridgev1.AttachResponse_Started:
			return f.Started, nil
		case *bridgev1.AttachResponse_Opening:
			p.opening(l, f.Opening)
		case *bridgev1.AttachResponse_Progress:
			p.log.Info("waiting for the server", "detail", f.Progress.GetDetail())
		default:
			if err := p.take(resp); err != nil {
				return nil, err
			}
		}
	}
}

// send sends a frame. It may be called from any goroutine. It blocks no longer than the
// link lives: a peer that does not read falls silent too, which ends the link.
func (l *link) send(req *bridgev1.AttachRequest) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.stream.Send(req)
}

// leave says goodbye. The server ends the stream in reply.
func (l *link) leave(disconnect bool) {
	frame := &bridgev1.AttachLeave{Disconnect: disconnect}
	l.sending.Lock()
	defer l.sending.Unlock()
	// Failures show on the receiving side.
	_ = l.stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: frame}})
	// The server ends the stream. Until then there may be something to answer: the session
	// may end with its last participant.
}

// close drops the stream without a goodbye, and waits for its heartbeat to end. Only the
// goroutine that serves the link may call it.
func (l *link) close() {
	l.cancel(context.Canceled)
	l.beating.Wait()
}

// failure says why receiving failed.
func (l *link) failure(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return unavailable("the server ended the attach stream")
	}
	return FromError(err)
}

// beat gives signs of life until the link is down.
func (l *link) beat(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	frame := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Heartbeat{
		Heartbeat: &bridgev1.AttachHeartbeat{},
	}}
	for {
		select {
		case <-l.down:
			return
		case <-ticker.C:
			if l.send(frame) != nil {
				return
			}
		}
	}
}

// watch ends a link on which nothing was heard for too long. The timer it returns is
// reset whenever something is.
func (l *link) watch(limit time.Duration) *time.Timer {
	return time.AfterFunc(limit, func() { l.cancel(unavailable("the server is silent")) })
}

// unavailable is the error of a connection that broke without a status.
func unavailable(text string) *Error { return &Error{Code: codes.Unavailable, Message: text} }
