package e2e

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// conn is a connection to the host's server, for the clients generated from copilot.cli.v1.
func (r *rig) conn() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.host.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exactly asks for the CLI's own behaviour.
func exactly(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpc.MetadataFidelity, rpc.FidelityExact)
}

// did calls a method that must succeed.
func did[Q, R proto.Message](r *rig, f func(context.Context, Q, ...grpc.CallOption) (R, error), q Q, opts ...grpc.CallOption) R {
	r.t.Helper()
	reply, err := f(r.ctx, q, opts...)
	if err != nil {
		r.t.Fatalf("%T: %v", q, err)
	}
	return reply
}

// check fails the test unless ok.
func check(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}
