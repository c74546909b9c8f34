package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A limit counts the sessions of all replicas: when they have reached it together, no replica creates another one until
// one is deleted.
func TestLimitsOverReplicas(t *testing.T) {
	t.Parallel()
	dir := harness.RealDir(t)
	sum := sha256.Sum256([]byte("a-token-of-this-test"))
	harness.WriteFiles(t, dir, map[string]string{
		"tokens": "op " + hex.EncodeToString(sum[:]) + "\n",
		"policy.yaml": "version: 1\nidentity: {tokens: tokens}\nlimits: {sessions: 3}\n" +
			"tenants: {host: {members: [{token: op, role: admin}]}}\n",
	})
	d, _ := replicas(harness.NewScripted(t), 2, func(int) []string {
		return []string{"--policy", filepath.Join(dir, "policy.yaml")}
	})
	try := func(d *harness.Daemon, id string) error {
		config := d.Config()
		config.Provider = nil
		_, err := d.Client.Sessions().CreateSession(d.Ctx,
			&bridgev1.CreateSessionRequest{SessionId: id, Config: config, ProviderRef: "ours"})
		return err
	}
	full := func(d *harness.Daemon) {
		t.Helper()
		d.Eventually("the limit is reached", func() bool {
			err := try(d, "more")
			if err == nil { // the other replica has not told yet
				err = d.Client.DeleteSession(d.Ctx, "more")
				if err != nil {
					t.Fatal(err)
				}
				return false
			}
			return copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED)
		})
	}
	create(d[0], "s1")
	create(d[0], "s2")
	create(d[1], "s3")
	full(d[0])
	full(d[1])
	if err := d[1].Client.DeleteSession(d[1].Ctx, "s1"); err != nil {
		t.Fatal(err)
	}
	d[1].Eventually("there is room again", func() bool { return try(d[1], "s4") == nil })
	full(d[0])
	// What a dead replica used counts no more where its sessions are.
	d[1].Stop(syscall.SIGKILL)
	has(d[0], "s3")
	has(d[0], "s4")
	full(d[0])
	if err := d[0].Client.DeleteSession(d[0].Ctx, "s3"); err != nil {
		t.Fatal(err)
	}
	d[0].Eventually("there is room for one", func() bool { return try(d[0], "s5") == nil })
}
