// Package runtime tests CLI processes and the server's own: sharing, loss, restart, recovery.
package runtime

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
