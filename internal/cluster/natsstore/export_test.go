package natsstore

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// All returns all requests of the cluster, as OfSession does.
func (r *Requests) All(ctx context.Context) ([]backend.Request, error) { return r.list(ctx, "*") }
