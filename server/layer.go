package server

import (
	"context"
	"slices"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
	"github.com/copilot-grpc/copilot-grpc/server/h2"
)

// layer is something that is done around every call, unary or not: before it, with the
// context that it is to go on with, and after it. An error refuses the call. Layers do not
// call what is inside them: a stream would have all of them on its stack for as long as it
// lasts, and of idle streams the stack is what counts.
type layer func(ctx context.Context, c *call) (context.Context, ending, error)

// ending is what a layer does after the call. It gets the call's error and returns the one that
// goes on; a nil one does nothing.
type ending func(error) error

// call is a call as layers see it.
type call struct {
	// method is its full name: "/package.Service/Method".
	method string
	// request is its first message, nil before that has come.
	request any
	// caller is who makes it, as soon as that is known.
	caller caller.Caller
	// check refuses requests for what they say; nil takes them all.
	check func(context.Context, proto.Message) error
	// visit checks what the call says by the rules for guests, where it is about a session of
	// another tenant; nil if there are no tenants.
	visit *visit
	// stream is what the call is on, where it comes over TCP; keeps says that the handler has all
	// messages until it ends, and not only the one that came last.
	stream *h2.Stream
	keeps  bool
	// incoming bounds what comes on a stream; nil if nothing does.
	incoming *incoming
	// reply is what a unary call is answered with, failure why it is not, before that
	// became a status.
	reply   any
	failure error
}

// layered returns the options that put the layers, the first outermost, around both
// kinds of calls.
func layered(panicked panicked, layers ...layer) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			c := &call{method: info.FullMethod, request: req}
			p := passage{call: c, layers: layers, panicked: panicked}
			err := p.through(ctx, func(ctx context.Context) (err error) {
				c.reply, err = handler(ctx, req)
				return err
			})
			return c.reply, err
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			// What comes in pieces without answers is put together.
			c := &call{method: info.FullMethod, keeps: info.IsClientStream && !info.IsServerStream}
			p := passage{call: c, layers: layers, panicked: panicked}
			return p.through(stream.Context(), func(ctx context.Context) error {
				w := middleware.WrapServerStream(stream)
				w.WrappedContext = ctx
				return handler(srv, &observed{ServerStream: w, call: c})
			})
		}),
	}
}

// panicked makes an error of what a handler, or a layer before it, panicked with.
type panicked func(ctx context.Context, c *call, p any) error

// passage is a call's way through the layers.
type passage struct {
	call     *call
	layers   []layer
	endings  []ending
	panicked panicked
}

// through calls handler inside the layers.
func (p *passage) through(ctx context.Context, handler func(context.Context) error) error {
	return p.leave(p.enter(ctx, handler))
}

// enter goes through the layers, to the handler if none refuses the call.
func (p *passage) enter(ctx context.Context, handler func(context.Context) error) (err error) {
	defer func() {
		if what := recover(); what != nil { // one call's panic ends no other call
			err = p.panicked(ctx, p.call, what)
		}
	}()
	if ctx, err = p.begin(ctx); err != nil {
		return err
	}
	return handler(ctx)
}

// begin goes through the layers. It is apart so that it is off the stack of the handler.
func (p *passage) begin(ctx context.Context) (_ context.Context, err error) {
	for _, l := range p.layers {
		var end ending
		ctx, end, err = l(ctx, p.call)
		if end != nil {
			p.endings = append(p.endings, end)
		}
		if err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// leave goes back through the layers that were entered.
func (p *passage) leave(err error) error {
	for _, end := range slices.Backward(p.endings) {
		err = end(err)
	}
	return err
}

// message returns the request, nil if it has not come or is none.
func (c *call) message() proto.Message {
	switch m := c.request.(type) {
	case proto.Message:
		return m
	case interface{ Message() proto.Message }: // what came as bytes
		return m.Message()
	}
	return nil
}

// observed is a stream that notes its first message. Sending goes by it untouched: that
// is the hot path.
type observed struct {
	grpc.ServerStream
	call *call
}

// RecvMsg notes the first message. Only the handler's own goroutine receives that one.
func (o *observed) RecvMsg(m any) error {
	err := o.ServerStream.RecvMsg(m)
	if err == nil {
		err = o.call.stream.Taken(o.call.keeps)
	}
	if in := o.call.incoming; in != nil && err == nil {
		err = in.take(o.Context(), m)
	}
	if message, ok := m.(proto.Message); ok && o.call.check != nil && err == nil {
		err = o.call.check(o.Context(), message)
	}
	if message, ok := m.(proto.Message); ok && o.call.visit != nil && o.call.request != nil && err == nil {
		err = o.call.visit.frame(o.Context(), message)
	}
	if err == nil && o.Context().Err() != nil {
		err = context.Cause(o.Context()) // what comes after the call's rights have ended is not looked at
	}
	if err == nil && o.call.request == nil {
		o.call.request = m
	}
	return err
}

// meter counts what the handler has of the call's requests, and tells streams when their
// connection is to be closed.
func (s *Server) meter(ctx context.Context, c *call) (context.Context, ending, error) {
	stream := streamOf(ctx)
	if stream == nil {
		return ctx, nil, nil
	}
	c.stream = stream
	done := func(err error) error {
		stream.Done()
		return err
	}
	if c.request != nil {
		if err := stream.Taken(false); err != nil {
			return ctx, done, err
		}
	}
	if s.limiter.streaming[c.method] {
		if p, ok := peer.FromContext(ctx); ok {
			if on, _ := connectionOf(p); on != nil {
				ctx = leaving.With(ctx, &on.signal)
			}
		}
	}
	return ctx, done, nil
}

// sessionID returns the session that the call is about, "" if there is none or several.
func (c *call) sessionID() string {
	switch m := c.request.(type) {
	case interface{ GetSessionId() string }:
		if id := m.GetSessionId(); id != "" {
			return id
		}
	case *bridgev1.SubscribeRequest:
		if s := m.GetSessions(); len(s) == 1 {
			return s[0].GetSessionId()
		}
	case *bridgev1.SendStreamRequest:
		return m.GetRequest().GetSessionId()
	case *bridgev1.AttachRequest:
		return startedSession(m.GetStart())
	}
	if m, ok := c.reply.(interface{ GetSession() *bridgev1.Session }); ok {
		return m.GetSession().GetSessionId()
	}
	return ""
}

// startedSession returns the session that a participation names.
func startedSession(start *bridgev1.AttachStart) string {
	for _, id := range []string{start.GetJoinSessionId(), start.GetResume().GetSessionId(), start.GetCreate().GetSessionId()} {
		if id != "" {
			return id
		}
	}
	return ""
}
