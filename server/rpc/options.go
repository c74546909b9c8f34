package rpc

import (
	"context"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// Options returns the options that a grpc.Server of another program needs to serve Services: the
// codec that sends encoded frames, and interceptors that turn errors into statuses and send the
// trailers. Package server has its own. The program's own interceptors go behind these, by
// grpc.ChainUnaryInterceptor and grpc.ChainStreamInterceptor: their errors may be statuses or
// errors of package fault.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec.New()),
		grpc.ChainUnaryInterceptor(unary),
		grpc.ChainStreamInterceptor(stream),
	}
}

func unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, _ = position.WithRecorder(ctx)
	reply, err := handler(ctx, req)
	SendPosition(ctx)
	return reply, ended(ctx, err)
}

func stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	w := middleware.WrapServerStream(s)
	ctx, _ := position.WithRecorder(s.Context())
	w.WrappedContext = ctx
	err := handler(srv, w)
	SendPosition(ctx)
	return ended(ctx, err)
}

// ended turns the error of a call into its status.
func ended(ctx context.Context, err error) error {
	st, _ := status.Of(err)
	status.SetTrailer(ctx, st)
	return st.Err()
}

// SendPosition sends the position at which the reply of ctx's call stands as a trailer, if the bridge recorded one.
func SendPosition(ctx context.Context) {
	if p, ok := position.Recorded(ctx); ok {
		// It fails only after the end of the call.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(position.Trailer, p.String()))
	}
}
