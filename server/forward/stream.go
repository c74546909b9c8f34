package forward

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// leaveTimeout is how long the owner may take to end a stream whose caller lost its rights.
const leaveTimeout = time.Second

// Stream serves a streaming call here, by local, or relays it. stream receives and sends for the client.
func (f *Forwarder) Stream(stream grpc.ServerStream, info *grpc.StreamServerInfo,
	local func(grpc.ServerStream) error,
) error {
	again := receiveFirst(stream, info.FullMethod)
	if all := watchables[info.FullMethod]; all != nil && again.err == nil {
		w := &watch{all, f, stream, info, again.first, local}
		return w.run()
	}
	to, ok := targetOf(stream.Context(), again.first)
	if again.err != nil || !ok {
		f.name(stream.Context(), "")
		return local(again)
	}
	if r, ok := again.first.(*bridgev1.SubscribeRequest); ok && len(r.GetSessions()) > 1 {
		return f.subscribe(again, info, r, local)
	}
	here := func(session string) (bool, error) {
		f.name(stream.Context(), session)
		err := local(again)
		if left(stream.Context(), f.locator, session, err) {
			err = notOwner(f.node, session) // its first message is gone, so it cannot be relayed
		}
		return true, err
	}
	return f.place(stream.Context(), to, here, func(owner Owner, session string) (bool, error) {
		return f.relay(stream, info, again.first, owner, session)
	})
}

// relay relays a stream whose first message is first. began reports that the session may have received it.
func (f *Forwarder) relay(stream grpc.ServerStream, info *grpc.StreamServerInfo, first proto.Message, owner Owner,
	session string,
) (began bool, err error) {
	ctx := stream.Context()
	conn, err := f.peers.get(owner.Address)
	if err != nil {
		return false, unreachable(session, "%v", err)
	}
	defer conn.done()
	if f.draining.Err() != nil {
		return true, errorDraining()
	}
	l := newLink(ctx)
	defer l.close()
	stopDraining := context.AfterFunc(f.draining, func() { l.cancel(errorDraining()) })
	defer stopDraining()
	desc := &grpc.StreamDesc{ClientStreams: info.IsClientStream, ServerStreams: info.IsServerStream}
	l.out, err = conn.NewStream(metadata.NewOutgoingContext(l.ctx, outgoing(ctx)), desc, info.FullMethod)
	if err != nil {
		return false, l.failed(ctx, owner, session, err)
	}
	stopFollowing := l.follow(ctx)
	defer stopFollowing()
	if err := l.out.SendMsg(first); err != nil && !errors.Is(err, io.EOF) {
		return true, l.failed(ctx, owner, session, err)
	}
	if err := l.open(stream, info, owner); err != nil {
		return true, err
	}
	err = l.receive(stream)
	trailer := l.out.Trailer()
	if refused(trailer, err) {
		return false, grpcstatus.Convert(err).Err()
	}
	stream.SetTrailer(passed(trailer))
	switch {
	case err == nil:
		return true, ctx.Err() // the owner also ends the stream of a participant that has to leave
	case errors.Is(err, errClient):
		return true, err
	}
	return true, l.failed(ctx, owner, session, err)
}

// link is the connection of a relayed stream with its owner.
type link struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	expire context.CancelFunc
	out    grpc.ClientStream
	// ended is closed when the owner has ended the stream.
	ended chan struct{}

	// mu guards the sending side of out.
	mu sync.Mutex
}

// newLink returns a link with a context that has the values and the deadline of ctx, but not its end: see follow.
func newLink(ctx context.Context) *link {
	l := &link{ended: make(chan struct{}), expire: func() {}}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if at, ok := ctx.Deadline(); ok {
		l.ctx, l.expire = context.WithDeadline(l.ctx, at)
	}
	return l
}

// close ends what is left of the stream at the owner.
func (l *link) close() {
	close(l.ended)
	l.cancel(nil)
	l.expire()
}

// follow ends the stream at the owner when ctx ends. A participant whose caller lost its rights leaves, because it may
// not come back.
func (l *link) follow(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), caller.ErrWithdrawn) && l.mu.TryLock() {
			_ = l.out.CloseSend() // it never fails
			l.mu.Unlock()
			timer := time.NewTimer(leaveTimeout)
			defer timer.Stop()
			select {
			case <-l.ended:
			case <-timer.C:
			}
		}
		l.cancel(context.Cause(ctx))
	})
}

// open passes the header, and starts to pass the client's further messages if there are any.
func (l *link) open(stream grpc.ServerStream, info *grpc.StreamServerInfo, owner Owner) error {
	header, err := l.out.Header() // the receiver sends that of a client stream at once
	if err != nil || header == nil {
		return nil //nolint:nilerr // receive gets the error
	}
	if info.IsClientStream {
		go l.send(stream)
		return stream.SetHeader(named(header, owner))
	}
	return stream.SendHeader(named(header, owner))
}

// send passes the client's messages to the owner until there are no more. It ends at the latest when the handler of the
// stream has returned.
func (l *link) send(stream grpc.ServerStream) {
	var message codec.Raw
	for {
		err := stream.RecvMsg(&message)
		if err != nil && !errors.Is(err, io.EOF) {
			message.Free()
			l.cancel(err)
			return
		}
		l.mu.Lock()
		if err != nil {
			_ = l.out.CloseSend() // it never fails
		} else {
			err = l.out.SendMsg(&message)
		}
		l.mu.Unlock()
		if err != nil {
			return // the end of the stream, or its error, which receive gets
		}
	}
}

// errClient is for errors of the client's side.
var errClient = errors.New("the client's stream ended")

// clientError is an error of the client's side.
type clientError struct{ error }

// Is makes it match errClient.
func (clientError) Is(target error) bool { return target == errClient }

// Unwrap returns the stream's error.
func (e clientError) Unwrap() error { return e.error }

// receive passes the owner's messages to the client, until the owner ends the stream.
func (l *link) receive(stream grpc.ServerStream) error {
	var message codec.Raw
	for {
		switch err := l.out.RecvMsg(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return clientError{err}
		}
	}
}

// failed returns the error of the stream.
func (l *link) failed(ctx context.Context, owner Owner, session string, err error) error {
	if ctx.Err() == nil {
		if cause := context.Cause(l.ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
	}
	return failed(ctx, owner, session, err)
}

// errorDraining returns the error for streams of a replica that stops.
func errorDraining() error {
	return fault.New(fault.Draining, "the server is draining: connect again").WithRetry(firstPause)
}
