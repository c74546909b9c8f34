// Package deploy tests the commands and configurations that the documentation gives.
package deploy

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
