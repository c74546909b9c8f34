package harness

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// Conn is a connection to the host's server, for the clients generated from copilot.cli.v1.
func (r *Fixture) Conn() *grpc.ClientConn {
	r.T.Helper()
	conn, err := grpc.NewClient(r.Host.Target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Did calls a method that must succeed.
func Did[Q, R proto.Message](
	r *Fixture, f func(context.Context, Q, ...grpc.CallOption) (R, error), q Q, opts ...grpc.CallOption,
) R {
	r.T.Helper()
	reply, err := f(r.Ctx, q, opts...)
	if err != nil {
		r.T.Fatalf("%T: %v", q, err)
	}
	return reply
}
