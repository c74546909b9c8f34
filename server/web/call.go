package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// call is a call between connect's stream and a gRPC handler, which uses it as its grpc.ServerStream.
type call struct {
	method *method
	ctx    context.Context
	stream connect.ServerStream
	info   *connect.CallInfo
	memory *account.Account // nil: not counted
	stats  stats.Handler    // nil: not measured
	// unread is why the request of a unary call cannot be read.
	unread error

	// mu guards the response metadata until it is sent.
	mu              sync.Mutex
	header, trailer metadata.MD
	begun           bool
}

// handle returns connect's handler of a method.
func (h *Handler) handle(m *method) connect.ServerFunc {
	return func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
		info, _ := connect.CallInfoForServerContext(ctx)
		return h.problem(h.serve(ctx, m, stream, info))
	}
}

// serve carries out a call and returns the handler's error.
func (h *Handler) serve(ctx context.Context, m *method, stream connect.ServerStream, info *connect.CallInfo) error {
	c := &call{method: m, ctx: ctx, stream: stream, info: info, memory: accountOf(ctx), stats: h.config.Stats}
	c.ctx = grpc.NewContextWithServerTransportStream(c.ctx, transport{c})
	end := c.measure()
	err := c.run(&h.config)
	end(err)
	c.begin() // unless a message was sent
	c.mu.Lock()
	defer c.mu.Unlock()
	put(info.ResponseTrailer(), c.trailer)
	c.trailer = nil
	return err
}

// run calls the handler of the method.
func (c *call) run(config *Config) error {
	if c.method.unary == nil {
		info := c.method.info
		if config.Stream == nil {
			return c.method.stream(c.method.impl, c)
		}
		return config.Stream(c.method.impl, c, &info, c.method.stream)
	}
	reply, err := c.method.unary(c.method.impl, c.ctx, c.request, config.Unary)
	if c.unread != nil {
		return config.Unreadable(c.ctx, c.method.spec.Procedure, c.unread)
	}
	if err != nil {
		return err
	}
	c.mu.Lock() // connect sends the trailers of a unary call with the reply
	put(c.info.ResponseTrailer(), c.trailer)
	c.trailer = nil
	c.mu.Unlock()
	return c.SendMsg(reply)
}

// measure reports the begin of a call, and returns what reports its end.
func (c *call) measure() (end func(error)) {
	if c.stats == nil {
		return func(error) {}
	}
	begin := time.Now()
	c.ctx = c.stats.TagRPC(c.ctx, &stats.RPCTagInfo{FullMethodName: c.method.spec.Procedure})
	c.stats.HandleRPC(c.ctx, &stats.Begin{BeginTime: begin, IsClientStream: c.method.info.IsClientStream,
		IsServerStream: c.method.info.IsServerStream})
	ctx := c.ctx
	return func(err error) {
		c.stats.HandleRPC(ctx, &stats.End{BeginTime: begin, EndTime: time.Now(), Error: err})
	}
}

// request receives the request of a unary call.
func (c *call) request(m any) error {
	c.unread = c.RecvMsg(m)
	return c.unread
}

// RecvMsg receives a message. It returns io.EOF after the last one.
func (c *call) RecvMsg(m any) error {
	if c.method.info.IsServerStream { // the handler of a client stream collects all messages
		c.memory.Reset()
	}
	if in, ok := m.(*codec.Incoming); ok {
		m = in.Value // bounds are checked here too, with an account and errors of their own
	}
	err := c.stream.Receive(&item{value: m, kind: c.method.schema.Input(), memory: c.memory})
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return received(err)
	}
	if c.stats != nil {
		c.stats.HandleRPC(c.ctx, &stats.InPayload{Payload: m, Length: c.info.ReceiveStats.Size,
			CompressedLength: c.info.ReceiveStats.CompressedSize, RecvTime: time.Now()})
	}
	return nil
}

// SendMsg sends a message, after the header if it is the first one.
func (c *call) SendMsg(m any) error {
	c.begin()
	if err := c.stream.Send(&item{value: m, kind: c.method.schema.Output()}); err != nil {
		if c.ctx.Err() != nil {
			return grpcstatus.FromContextError(c.ctx.Err()).Err()
		}
		return received(err)
	}
	if c.stats != nil {
		c.stats.HandleRPC(c.ctx, &stats.OutPayload{Payload: m, Length: c.info.SendStats.Size,
			CompressedLength: c.info.SendStats.CompressedSize, SentTime: time.Now()})
	}
	return nil
}

// begin hands the header to connect, which sends it with the first message or the end of the call.
func (c *call) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.begun = true
		put(c.info.ResponseHeader(), c.header)
	}
}

// SetHeader adds metadata to the header.
func (c *call) SetHeader(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return errors.New("web: the header was already sent")
	}
	c.header = metadata.Join(c.header, md)
	return nil
}

// SendHeader sends the header.
func (c *call) SendHeader(md metadata.MD) error {
	if err := c.SetHeader(md); err != nil {
		return err
	}
	c.begin()
	return c.stream.SendHeaders()
}

// SetTrailer adds metadata to the trailer.
func (c *call) SetTrailer(md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailer = metadata.Join(c.trailer, md)
}

// Context implements grpc.ServerStream.
func (c *call) Context() context.Context { return c.ctx }

// transport is the grpc.ServerTransportStream of a call, by which handlers set metadata with the context only.
type transport struct{ *call }

// Method implements grpc.ServerTransportStream.
func (t transport) Method() string { return t.method.spec.Procedure }

// SetTrailer implements grpc.ServerTransportStream.
func (t transport) SetTrailer(md metadata.MD) error {
	t.call.SetTrailer(md)
	return nil
}

// received converts an error of connect's stream to one for gRPC handlers.
func received(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok { // from a codec
		return f
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return grpcstatus.Error(codes.ResourceExhausted, "the request is too large")
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return grpcstatus.Error(codes.Code(e.Code()), e.Message())
	}
	return err
}
