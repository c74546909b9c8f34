//go:build !nats

package harness

import (
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// serveAtEntry returns an error: this test program has no NATS server.
func (*Host) serveAtEntry(context.Context, app.Config, []app.Option) error {
	return errors.New(EntryEnv + " needs a NATS server in the test program: run the tests with -tags nats,grpcnotrace")
}
