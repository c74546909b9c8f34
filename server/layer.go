package server

import (
	"context"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// layer is something that is done around every call, unary or not. It calls next
// exactly once, unless it refuses the call.
type layer func(ctx context.Context, c *call, next func(context.Context) error) error

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
	// incoming bounds what comes on a stream; nil if nothing does.
	incoming *incoming
	// reply is what a unary call is answered with.
	reply any
}

// layered returns the options that put the layers, the first outermost, around both
// kinds of calls.
func layered(layers ...layer) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			c := &call{method: info.FullMethod, request: req}
			err := through(ctx, layers, c, func(ctx context.Context) (err error) {
				c.reply, err = handler(ctx, req)
				return err
			})
			return c.reply, err
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			c := &call{method: info.FullMethod}
			return through(stream.Context(), layers, c, func(ctx context.Context) error {
				w := middleware.WrapServerStream(stream)
				w.WrappedContext = ctx
				return handler(srv, &observed{ServerStream: w, call: c})
			})
		}),
	}
}

// through calls handler inside the layers.
func through(ctx context.Context, layers []layer, c *call, handler func(context.Context) error) error {
	if len(layers) == 0 {
		return handler(ctx)
	}
	return layers[0](ctx, c, func(ctx context.Context) error {
		return through(ctx, layers[1:], c, handler)
	})
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
	if in := o.call.incoming; in != nil && err == nil {
		err = in.take(o.Context(), m)
	}
	if message, ok := m.(proto.Message); ok && o.call.check != nil && err == nil {
		err = o.call.check(o.Context(), message)
	}
	if err == nil && o.Context().Err() != nil {
		err = context.Cause(o.Context()) // what comes after the call's rights have ended is not looked at
	}
	if err == nil && o.call.request == nil {
		o.call.request = m
	}
	return err
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
