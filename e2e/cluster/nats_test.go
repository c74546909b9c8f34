package cluster

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// Three NATS servers are needed one less: turns go on while each of them is away in turn, and a session goes on at
// another replica when its owner is killed.
func TestThreeNATSServers(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	servers := natstest.Cluster(t, 3, natstest.SyncAlways)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	d := replicasAt(st, "", []string{"--cluster", strings.Join(urls, ",")}, 2)
	create(d[0], "s")
	for i, s := range servers {
		s.Stop()
		answer(d[1-i%2], "s", "without "+urls[i])
		s.Start()
		s.AwaitCurrent()
	}
	before := durable(d[0], "s")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], "s")
	answer(d[1], "s", "and on")
	text := conversation(d[1], "and on")
	for _, url := range urls {
		if !strings.Contains(text, "without "+url) {
			t.Errorf("the model was not sent the turn without %s", url)
		}
	}
	if after := durable(d[1], "s"); !slices.Equal(after[:min(len(before), len(after))], before) {
		t.Errorf("the events were\n%v\nand are\n%v", before, after)
	}
}

// A program with a NATS server inside needs no other, and keeps its sessions over a kill.
func TestEmbeddedNATS(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	program := filepath.Join(t.TempDir(), "copilot-grpc")
	build := exec.Command("go", "build", "-tags", "nats,grpcnotrace", "-o", program, "../../cmd/copilot-grpc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := harness.NewDaemonOf(st, program, "--cluster", "embedded", "--node-name", "only",
		"--provider", "ours="+writeProvider(st))
	create(d, "s")
	before := durable(d, "s")
	d.Stop(syscall.SIGKILL)
	d.Start()
	answer(d, "s", "and on")
	if !strings.Contains(conversation(d, "and on"), "first of s") {
		t.Error("the model was not sent the turn before the kill")
	}
	if after := durable(d, "s"); !slices.Equal(after[:min(len(before), len(after))], before) {
		t.Errorf("the events were\n%v\nand are\n%v", before, after)
	}
}
