// Package session tests sessions: their life, prompts, turns, tools, settings and providers.
package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
