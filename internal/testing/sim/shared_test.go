package sim

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
)

// The storage of the runs keeps logs as every storage of a cluster must.
func TestSharedLogs(t *testing.T) {
	t.Parallel()
	backendtest.Logs(t, func(testing.TB) backend.Logs { return newSharedLogs(func() {}, func() {}) })
}
