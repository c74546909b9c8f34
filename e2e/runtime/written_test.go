package runtime

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestWrittenBeforeIdle: the CLI has written a turn by the time that it sends session.idle. The bridge takes a message for deleted that
// the CLI's history lacks, and behind which it has sent that event.
func TestWrittenBeforeIdle(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"one", "two", "three"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			d := harness.NewDaemon(harness.NewScripted(t))
			id, _ := open(d, text, nil)
			list, err := d.Client.Runtimes().ListRuntimes(d.Ctx, &bridgev1.ListRuntimesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			has := slices.IndexFunc(list.GetRuntimes(), func(rt *bridgev1.RuntimeInfo) bool { return rt.GetLoadedSessions() > 0 })
			if has < 0 {
				t.Fatalf("no process has the session: %v", list)
			}
			d.After(id, nil, "session.idle")
			if err := syscall.Kill(int(list.GetRuntimes()[has].GetPid()), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_, line := message(d, id, text)
			if rest := strings.Join(lines(d, id)[line:], ""); !strings.Contains(rest, `"type":"assistant.turn_end"`) {
				t.Errorf("the turn of %q has no end: %s", text, rest)
			}
		})
	}
}
