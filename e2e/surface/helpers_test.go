package surface

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// exactly asks for the CLI's own behaviour.
func exactly(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpc.MetadataFidelity, rpc.FidelityExact)
}

// check fails the test unless ok.
func check(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}
