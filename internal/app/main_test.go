package app

import (
	"os"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// fakeCLIEnv makes the test binary play the fake CLI.
const fakeCLIEnv = "APP_TEST_FAKE_CLI"

func TestMain(m *testing.M) {
	if os.Getenv(fakeCLIEnv) != "" {
		os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	leak.Main(m)
}
