package app

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// readyRuntimes waits until the caller's tenant has runtimes that satisfy a condition: their ids by index.
func readyRuntimes(t *testing.T, conn *grpc.ClientConn, enough func(map[int32]string) bool) map[int32]string {
	t.Helper()
	client := bridgev1.NewRuntimeServiceClient(conn)
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) { // a pause between looks
		list, err := client.ListRuntimes(t.Context(), &bridgev1.ListRuntimesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ready := map[int32]string{}
		for _, rt := range list.GetRuntimes() {
			if rt.GetState() == bridgev1.RuntimeState_RUNTIME_STATE_READY {
				ready[rt.GetIndex()] = rt.GetRuntimeId()
			}
		}
		if enough(ready) {
			return ready
		} else if time.Now().After(deadline) {
			t.Fatalf("the runtimes are %v", ready)
		}
	}
}

// A tenant with warm_runtimes has a CLI process before its first call, another one when that is full, and a new one
// after its end.
func TestWarmRuntimes(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) {
		c.MaxSessionsPerRuntime, c.StallTimeout = 1, time.Second // the sweeps depend on the shortest time limit
		c.Policy = writePolicy(t, `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: acme, role: owner}], warm_runtimes: 1}
  rival: {members: [{token: rival, role: owner}]}
`, "acme", "rival")
	}, WithProbe())
	has := func(n int) func(map[int32]string) bool {
		return func(ready map[int32]string) bool { return len(ready) == n }
	}
	acme := ts.as("acme")
	first := readyRuntimes(t, acme, has(1))
	client := bridgev1.NewSessionServiceClient(acme)
	_, err := client.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{})
	wantCode(t, "CreateSession", err, codes.OK)
	both := readyRuntimes(t, acme, has(2))
	if both[0] != first[0] {
		t.Errorf("the session is not in the runtime that was ready: %v, then %v", first, both)
	}
	ts.mu.Lock()
	cli := ts.clis["acme"]
	delete(ts.clis, "acme") // the next processes are of another CLI
	ts.mu.Unlock()
	cli.Close()
	readyRuntimes(t, acme, func(ready map[int32]string) bool {
		return ready[0] != "" && ready[0] != both[0] && ready[1] != both[1]
	})
	readyRuntimes(t, ts.as("rival"), has(0))
}
