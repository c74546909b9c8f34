// Package surface tests copilot.cli.v1, RawService and the CLI's schemas.
package surface

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
