package harness

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

const (
	// CLIEnv names the executable of the Copilot CLI that the tests run.
	CLIEnv = "COPILOT_CLI_PATH"
	// notRun is what tests say that need a CLI where none is named.
	notRun = "NOT RUN: " + CLIEnv + " is not set"
	// parallel is how many tests run at once: they wait for the CLI more than they
	// work, but its process is one and the machine of a CI job is small.
	parallel = 4
)

// Main runs a package's tests and ends the process with their result. Every package of end-to-end tests calls it in
// its TestMain. It ends the server that the tests share, and then looks for leaked goroutines.
func Main(m *testing.M) {
	if serveMCP() {
		return
	}
	leak.Main(suite{m})
}

// suite is all tests with the host that most of them share.
type suite struct{ *testing.M }

// Run runs the tests and ends the shared host, so that the search for leaks does not find it.
func (s suite) Run() int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set(fmt.Sprint(parallel))
	}
	if os.Getenv(CLIEnv) == "" {
		fmt.Println(notRun)
		if os.Getenv("CI") != "" {
			fmt.Println("in CI that is a failure")
			return 1
		}
	}
	code := s.M.Run()
	_ = os.RemoveAll(programDir) // "" is nothing
	if err := shared.close(); err != nil {
		fmt.Println("end of the shared host:", err)
		return max(code, 1)
	}
	return code
}

// background is for what must still run when a test's own context has ended.
func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Patience)
}
