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
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// attachStream is the gRPC side of a participation.
type attachStream = grpc.BidiStreamingServer[bridgev1.AttachRequest, bridgev1.AttachResponse]

func (s *callbackService[A]) Attach(stream attachStream) error {
	start, err := receiveStart(stream)
	if err != nil {
		return err
	}
	attachment, err := s.attach(stream, start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	p := &participation{stream: stream, attachment: attachment, ctx: ctx, cancel: cancel}
	return p.serve()
}

// attach makes the caller a participant. It tells a caller that has to wait for the CLI what happens; with an exact
// start the first frame must be opening.
func (s *callbackService[A]) attach(stream attachStream, start *bridgev1.AttachStart) (Attachment, error) {
	ctx := stream.Context()
	if !start.GetExact() {
		var stop func()
		ctx, stop = progress.Watch(ctx, func(stage progress.Stage) {
			_ = stream.Send(&bridgev1.AttachResponse{ // if it fails, the next frame fails too
				Frame: &bridgev1.AttachResponse_Progress{Progress: stage.Proto()},
			})
		})
		defer stop()
	}
	return s.participants.Attach(ctx, start)
}

// receiveStart returns the participation's start, which must be the first frame.
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

// participation passes a participant's frames to its attachment while Stream runs, and tells it how they ended.
type participation struct {
	stream     attachStream
	attachment Attachment
	ctx        context.Context
	cancel     context.CancelCauseFunc

	// over reports that Stream has ended the participation.
	over atomic.Bool
	// mu is held during calls of the attachment, so that end waits for them.
	mu sync.Mutex
	// ended reports that the attachment must not be called any more.
	ended bool
	// told reports that Leave or Lost was called.
	told bool
	// failure is the error that ended the frames; nil if the caller ended them.
	failure error
	// panicked is the value of the attachment's panic, which the handler's goroutine handles.
	panicked any
}

// errPanicked ends a participation whose attachment panicked.
var errPanicked = errors.New("the attachment panicked")

// serve runs the participation.
//
// In grpc-go only the return of the handler interrupts Recv and so ends the receiving goroutine if the client sends
// nothing more. After end that goroutine calls nothing, so waiting for its calls is sufficient.
func (p *participation) serve() (err error) {
	go p.receive()
	err = errPanicked // unless Stream returns
	defer func() { err = p.end(err) }()
	return p.attachment.Stream(p.ctx, codec.AttachSink(p.stream))
}

// receive receives frames until there are no more or the participation has ended.
func (p *participation) receive() {
	for {
		req, err := p.stream.Recv()
		if !p.take(req, err) {
			return
		}
	}
}

// take passes on a received frame. It returns false if that was the last one.
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
		return fault.New(fault.FrameUnexpected, "the frame is empty, or its kind is unknown to this server")
	case *bridgev1.AttachRequest_Start:
		return fault.New(fault.FrameUnexpected, "start may only be the first frame").WithField("start")
	}
	return p.attachment.Handle(p.ctx, req)
}

// lose calls Lost, or Leave, once, after the stream broke. A caller that lost its right may not return, so its place
// is not kept.
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

// rescue stores the value of the attachment's panic for the handler's goroutine: a panic in this goroutine would end
// the process.
func (p *participation) rescue(v any) {
	p.ended, p.failure = true, errPanicked
	p.panicked = fmt.Sprintf("%v\n\n%s", v, debug.Stack())
	p.cancel(errPanicked)
}

// end stops calls of the attachment after Stream has returned err, and waits for a call in progress. It returns the
// error for the caller.
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
