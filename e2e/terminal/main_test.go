// Package terminal tests the commands for people, in a real terminal.
package terminal

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
