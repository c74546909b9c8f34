package commandline

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A second server says which process has the socket, the port or the data directory, and what to do.
func TestInUse(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	port := harness.FreeAddress(t)
	p := newPerson(t, "--web-listen", port)
	first := fmt.Sprintf("process %d (copilot-grpc)", p.Cmd.Process.Pid)
	for line, want := range map[string]string{
		"copilot-grpc serve --offline-model default": "; " + first +
			" listens there: use that server, stop it, or choose another socket with --listen\n",
		"copilot-grpc serve --listen unix:other --web-listen " + port: "; " + first +
			" has the port: stop it, or choose another one with --web-listen\n",
		"copilot-grpc serve --listen unix:other --data-dir " + filepath.Join(p.Root, "data"): "; stop " + first +
			", or choose another directory with --data-dir\n",
	} {
		if stdout, stderr, code := p.types(line); code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, printed\n%s%swant %q", line, code, stdout, stderr, want)
		}
	}
}
