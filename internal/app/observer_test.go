package app

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// started reports whether a tenant has ever had a CLI process.
func (ts *tenants) started(tenant string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.clis[tenant] != nil
}

// No call that an observer may make starts a CLI process, with any runtime profile; calls that need one say that none
// runs.
func TestObserversStartNothing(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) { c.Internal, c.Raw = true, true })
	conn, refused := ts.as("acme-observer"), 0
	for _, m := range ts.rpcs() {
		if policy.Class(policy.FullMethod(m)) != caller.Read {
			continue
		}
		for _, request := range append(naming(m.Input(), theirs), profiled(m.Input())...) {
			_, st := call(t.Context(), conn, m, request)
			if ts.started("acme") {
				t.Fatalf("%s has started a process (%v)", m.FullName(), st)
			}
			if status.Reason(st) == "RUNTIME_NOT_RUNNING" {
				refused++
				if st.Code() != codes.FailedPrecondition {
					t.Errorf("%s: %v", m.FullName(), st)
				}
			}
		}
	}
	if refused < 10 {
		t.Errorf("only %d calls said that no process runs", refused)
	}
}

// profiled returns a request that names a runtime profile, if there is room for one.
func profiled(d protoreflect.MessageDescriptor) []proto.Message {
	f := d.Fields().ByName("runtime_profile")
	if f == nil {
		return nil
	}
	m := dynamicpb.NewMessage(d)
	m.Set(f, protoreflect.ValueOfMessage((&bridgev1.RuntimeProfile{LogLevel: "debug"}).ProtoReflect()))
	return []proto.Message{m}
}

// Eight profiles of an observer do not use up what its tenant may have; what runs answers it.
func TestObserverDoesNotLockItsTenantOut(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	observer, owner := bridgev1.NewRuntimeServiceClient(ts.as("acme-observer")), ts.as("acme-owner")
	if _, err := bridgev1.NewSessionServiceClient(ts.as("acme-observer")).ListSessions(t.Context(),
		&bridgev1.ListSessionsRequest{}); err != nil {
		t.Errorf("a list of sessions while no process runs: %v", err)
	}
	if err := makeSessions(t, owner, 1); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"none", "error", "warning", "info", "debug", "all", "default"} {
		_, err := observer.Ping(t.Context(),
			&bridgev1.PingRequest{RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: level}})
		wantCode(t, fmt.Sprint("ping of ", level), err, codes.FailedPrecondition)
	}
	if _, err := observer.Ping(t.Context(), &bridgev1.PingRequest{}); err != nil {
		t.Errorf("ping of what runs: %v", err)
	}
	list, err := bridgev1.NewRuntimeServiceClient(owner).ListRuntimes(t.Context(), &bridgev1.ListRuntimesRequest{})
	if err != nil || len(list.GetRuntimes()) != 1 {
		t.Errorf("the tenant's processes are %v, %v", list, err)
	}
	participant := bridgev1.NewRuntimeServiceClient(ts.as("acme-participant"))
	if _, err := participant.Ping(t.Context(),
		&bridgev1.PingRequest{RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: "debug"}}); err != nil {
		t.Errorf("a participant's ping: %v", err)
	}
}

// Starting processes has a rate where the policy says nothing, but for the host's owner.
func TestRuntimeStartsHaveADefaultRate(t *testing.T) {
	t.Parallel()
	ts := limited(t, "runtime_starts_per_minute: 3")
	tenant := ts.tenants(runtime.Profile{})
	for name, want := range map[string]int{"acme": 3, "rival": DefaultRuntimeStarts, caller.HostTenant: 0} {
		if said, _ := tenant(name); said.Limits.RuntimeStartsPerMinute != want {
			t.Errorf("tenant %q may start %d in a minute, want %d", name, said.Limits.RuntimeStartsPerMinute, want)
		}
	}
}
