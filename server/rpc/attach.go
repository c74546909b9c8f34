package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// attachStream is the gRPC side of a participation.
type attachStream = grpc.BidiStreamingServer[bridgev1.AttachRequest, bridgev1.AttachResponse]

// Attach implements bridgev1.CallbackServiceServer.
func (s *callbackService[A]) Attach(stream attachStream) error {
	start, err := receiveStart(stream)
	if err != nil {
		return err
	}
	attachment, err := s.CallbackBackend.Attach(stream.Context(), start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	p := &participation{stream: stream, attachment: attachment, ctx: ctx, cancel: cancel}
	return p.serve()
}

// receiveStart returns the start of a participation, which must be the first frame.
func receiveStart(stream attachStream) (*bridgev1.AttachStart, error) {
	first, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.FrameUnexpected, "the stream ended before its start")
	case err != nil:
		return nil, err
	case first.GetStart() == nil:
		return nil, fault.New(fault.FrameUnexpected, "the first frame must be start").WithField("start")
	}
	return first.GetStart(), nil
}

// participation hands a participant's frames to its attachment while that streams, and
// tells it how they ended.
type participation struct {
	stream     attachStream
	attachment Attachment
	ctx        context.Context
	cancel     context.CancelCauseFunc

	// over says that Stream ended the participation: there is nothing left to lose.
	over atomic.Bool
	// mu is held while the attachment is called, so that end waits for the call.
	mu sync.Mutex
	// ended says that the attachment is not to be called any more.
	ended bool
	// told says that Leave or Lost was called.
	told bool
	// failure is what ended the frames, unless the caller did.
	failure error
	// panicked is what the attachment panicked with, for the handler's goroutine,
	// where it is dealt with.
	panicked any
}

// errPanicked ends a participation whose attachment panicked.
var errPanicked = errors.New("the attachment panicked")

// serve runs the participation.
//
// grpc-go has no way to interrupt Recv but to return from the handler, and that is what
// ends the receiving goroutine when the caller sends nothing more. After end it calls
// nobody, and that is what has to be joined here.
func (p *participation) serve() (err error) {
	go p.receive()
	err = errPanicked // unless Stream returns
	defer func() { err = p.end(err) }()
	return p.attachment.Stream(p.ctx, codec.AttachSink(p.stream))
}

// receive takes frames until there are no more, or nobody wants them.
func (p *participation) receive() {
	for {
		req, err := p.stream.Recv()
		if !p.take(req, err) {
			return
		}
	}
}

// take passes on what was received. It returns false when that was the last.
func (p *participation) take(req *bridgev1.AttachRequest, err error) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			p.rescue(v)
		}
	}()
	if errors.Is(err, io.EOF) {
		p.ended, p.told = true, true
		p.attachment.Leave()
		return false
	}
	if err == nil {
		err = p.handle(req)
	}
	if err == nil {
		return true
	}
	p.ended, p.failure = true, err
	p.cancel(err)
	p.lose()
	return false
}

// handle passes on a frame.
func (p *participation) handle(req *bridgev1.AttachRequest) error {
	switch req.GetFrame().(type) {
	case nil:
		return fault.New(fault.FrameUnexpected, "a frame is empty, or of a kind that this server does not know")
	case *bridgev1.AttachRequest_Start:
		return fault.New(fault.FrameUnexpected, "start may only be the first frame").WithField("start")
	}
	return p.attachment.Handle(p.ctx, req)
}

// lose tells the attachment, once, that its stream broke. Whoever has lost the right to it
// may not come back, and keeps no place.
func (p *participation) lose() {
	if p.told || p.over.Load() {
		return
	}
	p.told = true
	if errors.Is(context.Cause(p.stream.Context()), caller.ErrWithdrawn) {
		p.attachment.Leave()
		return
	}
	p.attachment.Lost()
}

// rescue keeps what the attachment panicked with for the handler's goroutine: in this
// one it would end the process.
func (p *participation) rescue(v any) {
	p.ended, p.failure = true, errPanicked
	p.panicked = fmt.Sprintf("%v\n\n%s", v, debug.Stack())
	p.cancel(errPanicked)
}

// end stops the calls of the attachment once Stream has returned err, and waits for
// one that is under way. It returns what the caller is told.
func (p *participation) end(err error) error {
	over := err == nil && p.ctx.Err() == nil
	if err == nil && !over {
		err = context.Cause(p.ctx)
	}
	p.over.Store(over)
	p.cancel(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if !over {
		p.lose()
	}
	switch {
	case p.panicked != nil:
		panic(p.panicked)
	case over:
		return nil
	case p.failure != nil:
		return p.failure
	}
	return err
}
