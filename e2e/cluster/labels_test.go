package cluster

import (
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A session that needs labels is created at a replica that has them, and only such replicas take it after the end of
// its owner. While there is none, its calls fail.
func TestNodeLabels(t *testing.T) {
	t.Parallel()
	zones := []string{"x", "y", "y"}
	d, _ := replicas(harness.NewScripted(t), 3, func(i int) []string {
		return []string{"--node-label", "zone=" + zones[i]}
	})
	config := d[0].Config()
	config.Provider = nil
	at := func(zone, id string) error {
		_, err := d[0].Client.Sessions().CreateSession(d[0].Ctx, &bridgev1.CreateSessionRequest{
			SessionId: id, Config: config, ProviderRef: "ours", NodeLabels: map[string]string{"zone": zone},
		})
		return err
	}
	harness.WantReason(t, at("z", "s"), bridgev1.ErrorReason_ERROR_REASON_NODE_LABELS_UNMET)
	if err := at("y", "s"); err != nil {
		t.Fatal(err)
	}
	if got := answer(d[0], "s", "hello"); got != "You said: hello" {
		t.Errorf("the answer is %q", got)
	}
	first, second := d[1], d[2]
	if owner(d[0], "s") == "n3" {
		first, second = d[2], d[1]
	}
	_, err := d[0].Client.Runtimes().MoveSession(d[0].Ctx, &bridgev1.MoveSessionRequest{SessionId: "s", Node: "n1"})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_NODE_LABELS_UNMET)
	first.Stop(syscall.SIGKILL)
	has(d[0], "s")
	if got := owner(d[0], "s"); got == "n1" {
		t.Errorf("after the end of its owner the session is at %s", got)
	}
	session, err := d[0].Client.GetSession(d[0].Ctx, "s")
	if err != nil || session.Proto.GetNodeLabels()["zone"] != "y" {
		t.Errorf("the session is %v, %v", session, err)
	}
	second.Stop(syscall.SIGKILL)
	d[0].Eventually("no replica can have the session", func() bool {
		_, err := d[0].Client.GetSession(d[0].Ctx, "s")
		return copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_NODE_LABELS_UNMET)
	})
	first.Start()
	has(d[0], "s")
	if got := answer(d[0], "s", "and on"); got != "You said: and on" {
		t.Errorf("the answer of the replica that is back is %q", got)
	}
}
