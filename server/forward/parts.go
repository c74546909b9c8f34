package forward

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// partStream is a client's stream as one of its parts uses it. The call sends the header itself, and has received the only
// message.
type partStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // of one call
}

// Context implements grpc.ServerStream.
func (p partStream) Context() context.Context { return p.ctx }

// SetHeader implements grpc.ServerStream.
func (partStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (partStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (partStream) SetTrailer(metadata.MD) {}

// RecvMsg implements grpc.ServerStream.
func (partStream) RecvMsg(any) error { return errors.New("forward: the stream has no more messages") }

// errOver ends the parts of a call whose result no longer matters.
var errOver = errors.New("the call is over")

// parts are the parts of one call at several replicas, which run in parallel. The first error ends the others.
type parts struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	group  sync.WaitGroup

	mu       sync.Mutex
	err      error
	panicked any
}

func newParts(ctx context.Context) *parts {
	p := &parts{}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// run starts a part. A part may start others.
func (p *parts) run(part func(context.Context) error) {
	p.group.Go(func() {
		defer func() {
			if v := recover(); v != nil { // in this goroutine it would end the process
				p.end(nil, fmt.Sprintf("%v\n\n%s", v, debug.Stack()))
			}
		}()
		if err := part(p.ctx); err != nil {
			p.end(err, nil)
		}
	})
}

// end records the first error, or a panic, and ends the other parts.
func (p *parts) end(err error, panicked any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	if p.panicked == nil {
		p.panicked = panicked
	}
	p.cancel(errOver)
}

// wait waits for all parts. It returns the first error, and continues the panic of a part.
func (p *parts) wait() error {
	p.group.Wait()
	p.cancel(errOver)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.panicked != nil {
		panic(p.panicked)
	}
	return p.err
}
