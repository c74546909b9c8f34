package runtime

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Many sessions share a log for their newest events. A killed server loses none of them, and an orderly end leaves
// nothing in that log.
func TestManySessionsAreKilled(t *testing.T) {
	t.Parallel()
	// More than eight journals are written between two syncs.
	d := harness.NewDaemon(harness.NewScripted(t), "--fsync-interval", "1m")
	var ids []string
	for i := range 14 {
		id, _ := open(d, fmt.Sprint("hello ", i), nil)
		ids = append(ids, id)
	}
	seen, at := map[string][]string{}, map[string][]*bridgev1.Position{}
	for _, id := range ids {
		d.After(id, nil, "session.idle")
		seen[id], at[id] = d.Durable(id)
	}
	if len(joint(t, d)) == 0 {
		t.Fatal("the sessions share no log")
	}
	same := func(when string) {
		for _, id := range ids {
			again, positions := d.Durable(id)
			if len(again) < len(seen[id]) || !slices.Equal(again[:len(seen[id])], seen[id]) {
				t.Errorf("%s session %s has %v, and had %v", when, id, again, seen[id])
				continue
			}
			for i, p := range at[id] {
				if harness.Less(p, positions[i]) || harness.Less(positions[i], p) {
					t.Errorf("%s event %d of session %s is at %v, and was at %v", when, i, id, positions[i], p)
				}
			}
		}
	}
	d.Crash()
	same("after a kill")
	d.Stop(syscall.SIGTERM)
	if left := joint(t, d); len(left) > 0 {
		t.Errorf("after an orderly end %v are left", left)
	}
	d.Start()
	same("after an orderly end")
}

// joint returns the files of the log that sessions share.
func joint(t *testing.T, d *harness.Daemon) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Root, "data", "journals", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
