package cluster

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// previousEnv is the path of an earlier build of the program: make upgrade.
const previousEnv = "PREVIOUS_SERVER"

// Replicas of an earlier build are replaced one after the other. Sessions move between the builds in both directions
// and continue, and each durable event stays.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	previous := os.Getenv(previousEnv)
	if previous == "" {
		t.Skip(previousEnv + " names no earlier build: make upgrade")
	}
	d, _ := replicasOf(harness.NewScripted(t), previous, 2)
	ids := []string{"s1", "s2"}
	create(d[0], "s1")
	create(d[1], "s2")
	events := map[string][]string{}
	works := func(stage string) {
		t.Helper()
		for _, id := range ids {
			for i, replica := range d {
				prompt := stage + " through " + string(rune('a'+i))
				if got := answer(replica, id, prompt); got != "You said: "+prompt {
					t.Errorf("%s: the answer of %s is %q", prompt, id, got)
				}
			}
			got := durable(d[0], id)
			if before := events[id]; len(got) < len(before) || !slices.Equal(got[:len(before)], before) {
				t.Errorf("%s: the events of %s begin with\n%v\nwere\n%v", stage, id, got, before)
			}
			if other := durable(d[1], id); !slices.Equal(got, other) {
				t.Errorf("%s: the replicas list\n%v\nand\n%v", stage, got, other)
			}
			events[id] = got
		}
	}
	move := func(id, node string) {
		t.Helper()
		_, err := d[0].Client.Runtimes().MoveSession(d[0].Ctx, &bridgev1.MoveSessionRequest{SessionId: id, Node: node})
		if err != nil {
			t.Errorf("moving %s to %s: %v", id, node, err)
		}
	}
	works("both old")
	upgrade := func(replica *harness.Daemon) {
		t.Helper()
		replica.Stop(syscall.SIGTERM)
		replica.Path = ""
		replica.Start()
	}
	upgrade(d[0])
	works("one new")
	for _, id := range ids {
		move(id, "n1")
	}
	works("both sessions at the new one")
	for _, id := range ids {
		move(id, "n2")
	}
	works("both sessions at the old one")
	upgrade(d[1])
	works("both new")
}
