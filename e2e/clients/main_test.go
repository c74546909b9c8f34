// Package clients tests the examples and READMEs of client libraries as their users have them.
package clients

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
