// Package commandline types the commands of copilot-grpc, in a shell, against a server with the real CLI.
package commandline

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
