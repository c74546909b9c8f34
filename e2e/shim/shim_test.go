package shim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A program of the CLI hears the same through the shim, with a bridge of the shim's own, as
// from the CLI itself.
func TestShimIsLikeTheCLI(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program() // before the test's time begins
	if err != nil {
		t.Fatal(err)
	}
	cli := os.Getenv(harness.CLIEnv)
	home := "HOME=" + t.TempDir()
	// Each has a different time.
	converse := func(env []string, command ...string) (said []string) {
		t.Run(filepath.Base(command[0]), func(t *testing.T) {
			r := harness.NewFixture(t, harness.ShimScript)
			said = harness.StartSDKProgram(t, r.Ctx, env, command...).Converse(r.Model.OpenAIBaseURL())
		})
		return said
	}
	want := converse([]string{home}, cli)
	got := converse([]string{home, "COPILOT_GRPC_CLI=" + cli}, path, "shim")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("at %d\n got %q\nwant %q", i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}
