package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/h2"
)

// layer is work around every call, unary or streaming. Layers do not call the handler. The state between enter and
// leave is in the call.
type layer struct {
	// enter is called before the call, and returns the context to use. An error refuses the call. Nil does nothing.
	enter func(ctx context.Context, c *call) (context.Context, error)
	// leave is called after the call, with its error and the innermost context, and returns the error to use. It is
	// also called if enter has refused the call or panicked. Nil does nothing.
	leave func(ctx context.Context, c *call, err error) error
}

// ending is what some calls need after them. It receives the call's error and returns the error to use.
type ending func(error) error

// call is the state of a call in the layers.
type call struct {
	// method is the full name: "/package.Service/Method".
	method string
	// request is the first message; nil before it was received.
	request any
	// caller is the authenticated caller.
	caller caller.Caller
	// introduction is the caller with its proof; nil before the caller is admitted.
	introduction *introduction
	// stored is the introduction that the connection stores for the call; nil on a unix socket.
	stored *introduction
	// check refuses requests by their content; nil accepts all.
	check func(context.Context, proto.Message) error
	// guest checks the call by the rules for guests if it uses a session of another tenant; nil without tenants.
	guest *guestCheck
	// stream is the call's stream over TCP; keeps reports that the handler uses all messages until it ends, and not
	// only the last one. counted: the metrics of streams include the call.
	stream  *h2.Stream
	keeps   bool
	counted bool
	// memory counts what decoding adds to the messages of a stream; nil if nothing counts it.
	memory *account.Account
	// incoming limits the messages received on a stream; nil sets no limit.
	incoming *incoming
	// reply is the reply of a unary call, failure its error before it was converted to a status.
	reply   any
	failure error
	began   time.Time
	// endings runs what the layers since admit have to undo, the last one first; nil if there is nothing.
	endings ending
}

// atEnd adds an ending, which runs before those that were added earlier.
func (c *call) atEnd(end ending) {
	before := c.endings
	if before == nil {
		c.endings = end
		return
	}
	c.endings = func(err error) error { return before(end(err)) }
}

// undo is the leave function of admit.
func undo(_ context.Context, c *call, err error) error {
	defer c.stored.leave()
	if c.endings == nil {
		return err
	}
	return c.endings(err)
}

// router determines where a call is carried out that the layers have admitted: here, by local, or by another replica.
type router interface {
	Unary(ctx context.Context, method string, request any, local grpc.UnaryHandler) (any, error)
	Stream(stream grpc.ServerStream, info *grpc.StreamServerInfo, local func(grpc.ServerStream) error) error
}

// chain wraps both kinds of calls with layers, the first one outermost.
type chain struct {
	panicked panicked
	layers   []layer
	// router is nil without other replicas.
	router router
}

// routes reports whether the router gets a call.
func (ch *chain) routes(method string) bool {
	return ch.router != nil && !strings.HasPrefix(method, infrastructure)
}

// unary is a grpc.UnaryServerInterceptor.
func (ch *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (
	any, error,
) {
	p := invocation{call: &call{method: info.FullMethod, request: req, began: time.Now()}, chain: ch}
	err := p.leave(p.unary(ctx, handler))
	return p.call.reply, err
}

// unreadable returns the error of a call whose request cannot be read: that of the layer that refuses the call, else
// the reason.
func (ch *chain) unreadable(ctx context.Context, method string, reason error) error {
	p := invocation{call: &call{method: method, began: time.Now()}, chain: ch}
	return p.leave(p.unread(ctx, reason))
}

// stream is a grpc.StreamServerInterceptor.
func (ch *chain) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	// The handler of a client stream without replies collects all pieces.
	c := &call{method: info.FullMethod, keeps: info.IsClientStream && !info.IsServerStream, began: time.Now()}
	p := invocation{call: c, chain: ch}
	return p.leave(p.stream(srv, stream, info, handler))
}

// panicked converts a panic of a handler or a layer to an error.
type panicked func(ctx context.Context, c *call, p any) error

// invocation is a call's way through the layers.
type invocation struct {
	call  *call
	chain *chain
	// entered is the number of layers that were entered, ctx the context of the last one.
	entered int
	ctx     context.Context //nolint:containedctx // of one call
}

// unary goes through the layers, to the handler if none refuses the call.
func (p *invocation) unary(ctx context.Context, handler grpc.UnaryHandler) (err error) {
	defer func() { err = p.rescued(recover(), err) }()
	c := p.call
	if err := p.enter(ctx); err != nil {
		return err
	}
	if p.chain.routes(c.method) {
		c.reply, err = p.chain.router.Unary(p.ctx, c.method, c.request, handler)
	} else {
		c.reply, err = handler(p.ctx, c.request)
	}
	return err
}

// unread goes through the layers, and returns the reason if none refuses the call.
func (p *invocation) unread(ctx context.Context, reason error) (err error) {
	defer func() { err = p.rescued(recover(), err) }()
	if err := p.enter(ctx); err != nil {
		return err
	}
	return reason
}

// stream goes through the layers, to the handler if none refuses the stream.
func (p *invocation) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) (err error) {
	defer func() { err = p.rescued(recover(), err) }()
	if err := p.enter(stream.Context()); err != nil {
		return err
	}
	o := &observed{ServerStream: stream, ctx: p.ctx, call: p.call}
	if p.chain.routes(p.call.method) {
		return p.chain.router.Stream(o, info, func(s grpc.ServerStream) error { return handler(srv, s) })
	}
	return handler(srv, o)
}

// rescued returns the error of a call that has returned err or has panicked: a panic ends only its own call.
func (p *invocation) rescued(what any, err error) error {
	if what == nil {
		return err
	}
	return p.chain.panicked(p.ctx, p.call, what)
}

// enter enters the layers until one refuses the call.
func (p *invocation) enter(ctx context.Context) error {
	p.ctx = ctx
	for _, l := range p.chain.layers {
		if p.entered++; l.enter == nil {
			continue
		}
		ctx, err := l.enter(p.ctx, p.call)
		if err != nil {
			return err
		}
		p.ctx = ctx
	}
	return nil
}

// leave leaves the entered layers.
func (p *invocation) leave(err error) error {
	for _, l := range slices.Backward(p.chain.layers[:p.entered]) {
		if l.leave != nil {
			err = l.leave(p.ctx, p.call, err)
		}
	}
	return err
}

// message returns the request; nil if there is none.
func (c *call) message() proto.Message {
	switch m := c.request.(type) {
	case proto.Message:
		return m
	case interface{ Message() proto.Message }: // what came as bytes
		return m.Message()
	}
	return nil
}

// observed is a stream that records its first message. Sending, the hot path, is not wrapped.
type observed struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // of the stream
	call *call
	// incoming is the message that is being received.
	incoming codec.Incoming
}

// Context implements grpc.ServerStream.
func (o *observed) Context() context.Context { return o.ctx }

// RecvMsg records the first message. Only the handler's goroutine receives that one.
func (o *observed) RecvMsg(m any) error {
	err := o.decode(m)
	if err == nil {
		err = o.call.stream.Taken(o.call.keeps)
	}
	if in := o.call.incoming; in != nil && err == nil {
		err = in.take(o.Context(), m)
	}
	if message, ok := m.(proto.Message); ok && o.call.check != nil && err == nil {
		err = o.call.check(o.Context(), message)
	}
	if message, ok := m.(proto.Message); ok && o.call.guest != nil && o.call.request != nil && err == nil {
		err = o.call.guest.frame(o.Context(), message)
	}
	if err == nil && o.Context().Err() != nil {
		err = context.Cause(o.Context()) // messages received after the call lost its rights are ignored
	}
	if err == nil && o.call.request == nil {
		o.call.request = m
	}
	return err
}

// decode receives a message whose bounds are checked before.
func (o *observed) decode(m any) error {
	if !o.call.keeps {
		o.call.memory.Reset()
	}
	o.incoming = codec.Incoming{Value: m, Account: o.call.memory}
	err := o.ServerStream.RecvMsg(&o.incoming)
	if err == nil {
		err = o.incoming.Err
	}
	o.incoming = codec.Incoming{}
	return err
}

// meter counts the messages that the handler uses, and gives streams the notice that their connection will be closed.
func (s *Server) meter(ctx context.Context, c *call) (context.Context, error) {
	if s.limiter.streaming[c.method] {
		if p, ok := peer.FromContext(ctx); ok {
			if on, _ := connectionOf(p); on != nil {
				ctx = leaving.With(ctx, &on.signal)
			}
		}
	}
	stream := streamOf(ctx)
	if stream == nil {
		return ctx, nil
	}
	c.stream = stream
	if c.request != nil {
		return ctx, stream.Taken(false)
	}
	c.memory = accountOf(ctx)
	return ctx, nil
}

// metered ends what meter began.
func metered(_ context.Context, c *call, err error) error {
	if c.stream != nil {
		c.stream.Done()
	}
	c.memory.End()
	return err
}

// sessionID returns the call's session; "" if there is none or several.
func (c *call) sessionID() string {
	if ids := forward.SessionsOf(c.request); len(ids) == 1 && ids[0] != "" {
		return ids[0]
	}
	if m, ok := c.reply.(interface{ GetSession() *bridgev1.Session }); ok {
		return m.GetSession().GetSessionId()
	}
	return ""
}
