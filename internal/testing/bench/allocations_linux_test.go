package bench

import (
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// TestSendAllocations bounds the allocations of the server's process for a prompt on a participant's stream, from its
// arrival to the end of its turn. On a busy machine the server also saves a session more often for each prompt, so the best
// of several series counts.
func TestSendAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the detector does not see the server's process, and the unit tests have counted")
	}
	const bound, sends, most = 100, 500, 30
	r := &run{cfg: Config{
		Server: filepath.Join(t.TempDir(), "copilot-grpc"), LoadCLI: filepath.Join(t.TempDir(), "loadcli"), Log: t.Output(),
	}}
	for path, pkg := range map[string]string{r.cfg.Server: "../../../cmd/copilot-grpc", r.cfg.LoadCLI: "./cmd/loadcli"} {
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b, err := r.startBridge(t.Context(), r.cfg.LoadCLI)
	if err != nil {
		t.Fatal(err)
	}
	defer r.end("server", b.stop)
	a, err := newAttached(t.Context(), b, false, &cliv1.SessionConfig{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.end("participant", a.close)
	// count returns the allocations of n prompts, and of one look at the server's memory.
	count := func(n int) float64 {
		before, err := b.memory(t.Context())
		if err == nil {
			_, err = talking{talker: a}.sends(t.Context(), n)
		}
		after, failed := b.memory(t.Context())
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		return after["Mallocs"] - before["Mallocs"]
	}
	least := math.Inf(1)
	for range most {
		if least = min(least, (count(sends)-count(0))/sends); least <= bound {
			return
		}
	}
	t.Errorf("%.1f allocations for each prompt, want at most %d", least, bound)
}
