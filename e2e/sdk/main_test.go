package sdk

import (
	"flag"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// control compares the CLI with itself.
var control = flag.Bool("control", false,
	"play each scenario twice on the CLI itself: finds what is not the same twice")

func TestMain(m *testing.M) {
	if serveMCP() {
		return
	}
	leak.Main(m)
}
