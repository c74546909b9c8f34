// Package cluster tests servers that are replicas of one service, with NATS JetStream and the real CLI.
package cluster

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
