// Package tenant tests tenants: their separation, limits, sandboxes and telemetry.
package tenant

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
