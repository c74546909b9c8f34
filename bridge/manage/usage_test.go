package manage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	byDay     = bridgev1.UsageGroup_USAGE_GROUP_DAY
	byModel   = bridgev1.UsageGroup_USAGE_GROUP_MODEL
	bySession = bridgev1.UsageGroup_USAGE_GROUP_SESSION
	byOwner   = bridgev1.UsageGroup_USAGE_GROUP_OWNER
)

// usageOf returns rows as "MODEL SESSION OWNER TURNS REQUESTS INPUT".
func usageOf(ctx context.Context, r *bridgetest.Bridge, q *bridgev1.GetUsageRequest) (rows []string) {
	r.T.Helper()
	out, err := r.Sessions.GetUsage(ctx, q)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, u := range out.GetRows() {
		rows = append(rows, fmt.Sprintf("%s %s %s %d %d %d", u.GetModelId(), u.GetSessionId(), u.GetOwner(),
			u.GetTurns(), u.GetRequests(), u.GetInputTokens()))
	}
	return rows
}

// used emits a request to a model of 7 tokens.
func used(cli *fakecli.CLI, id, model string) {
	cli.Emit(id, fakecli.Event{
		Type: "assistant.usage", Ephemeral: true, Data: json.RawMessage(`{"model":"` + model + `","inputTokens":7}`),
	})
}

// Usage survives an unload and the bridge, and a repeated event counts once.
func TestUsage(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1", bridgetest.WithLabels(labels{"team": "red"}))
	k.Create("s2")
	for _, model := range []string{"m1", "m1", "m2"} {
		used(k.FakeCLI(), "s1", model)
	}
	used(k.FakeCLI(), "s2", "m1")
	ctx := t.Context()
	want := "[m1 s1  0 2 14 m1 s2  0 1 7 m2 s1  0 1 7]"
	q := &bridgev1.GetUsageRequest{GroupBy: []bridgev1.UsageGroup{byModel, bySession}}
	bridgetest.Eventually(t, "the usage", func() bool { return fmt.Sprint(usageOf(ctx, k, q)) == want })
	k.Store().SaveDirty()
	k = k.Restart()
	if got := fmt.Sprint(usageOf(ctx, k, q)); got != want {
		t.Errorf("after the restart: %s, want %s", got, want)
	}
	k.Ask("s1", "hi")
	now := time.Now()
	at := func(days int) *timestamppb.Timestamp {
		return timestamppb.New(now.Add(time.Duration(days) * 24 * time.Hour))
	}
	blue := &bridgev1.SessionFilter{Labels: labels{"team": "blue"}}
	total := usageOf(ctx, k, &bridgev1.GetUsageRequest{})
	for name, test := range map[string]struct {
		q    *bridgev1.GetUsageRequest
		want string
	}{
		"of a session":   {&bridgev1.GetUsageRequest{SessionId: "s2"}, "[   0 1 7]"},
		"by a label":     {&bridgev1.GetUsageRequest{Filter: blue}, "[]"},
		"these days":     {&bridgev1.GetUsageRequest{StartTime: at(-1), EndTime: at(1)}, fmt.Sprint(total)},
		"from tomorrow":  {&bridgev1.GetUsageRequest{StartTime: at(2)}, "[]"},
		"till yesterday": {&bridgev1.GetUsageRequest{EndTime: at(-2)}, "[]"},
	} {
		if got := fmt.Sprint(usageOf(ctx, k, test.q)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if turns := usageOf(ctx, k, &bridgev1.GetUsageRequest{SessionId: "s1"}); len(turns) != 1 || turns[0][3] != '1' {
		t.Errorf("after a turn: %q", turns)
	}
	bad := timestamppb.New(now)
	bad.Nanos = -1
	for field, q := range map[string]*bridgev1.GetUsageRequest{
		"group_by[1]": {GroupBy: []bridgev1.UsageGroup{byDay, byDay}}, "group_by[0]": {GroupBy: []bridgev1.UsageGroup{0}},
		"start_time": {StartTime: bad}, "end_time": {EndTime: bad},
		"filter.labels": {Filter: &bridgev1.SessionFilter{Labels: labels{"": ""}}},
	} {
		_, err := k.Sessions.GetUsage(ctx, q)
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Callers get the usage of their own sessions, and of sessions that are shared with them, by the owner's name.
func TestUsageOfTenants(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Tenants(quota.Limits{}))
	as := func(tenant string) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: caller.Own})
	}
	for tenant, id := range map[string]string{"a": "own", "b": "given"} {
		if _, err := r.Sessions.CreateSession(as(tenant), &bridgev1.CreateSessionRequest{SessionId: id}); err != nil {
			t.Fatal(err)
		}
		used(r.FakeCLI(), id, "m")
		bridgetest.Eventually(t, "the usage", func() bool {
			return len(usageOf(as(tenant), r, &bridgev1.GetUsageRequest{})) == 1
		})
	}
	q := &bridgev1.GetUsageRequest{GroupBy: []bridgev1.UsageGroup{byOwner, bySession}}
	if got := fmt.Sprint(usageOf(as("a"), r, q)); got != "[ own  0 1 7]" {
		t.Errorf("of the own sessions: %s", got)
	}
	observe := bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE
	share := &bridgev1.ShareSessionRequest{SessionId: "given", Tenant: "a", Access: observe}
	if _, err := r.Shares.ShareSession(as("b"), share); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Shares.AcceptShare(as("a"), &bridgev1.AcceptShareRequest{SessionId: "b/given"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(usageOf(as("a"), r, q)); got != "[ own  0 1 7  b/given b 0 1 7]" {
		t.Errorf("with the shared one: %s", got)
	}
}

// The usage of deleted sessions stays, without their ids and labels, also of one that only the directory has. It
// outlives the bridge.
func TestUsageOfDeletedSessions(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	ctx := t.Context()
	q := &bridgev1.GetUsageRequest{GroupBy: []bridgev1.UsageGroup{byModel, bySession}}
	want := func(what, want string) {
		t.Helper()
		if got := fmt.Sprint(usageOf(ctx, k, q)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	remove := func(id string) {
		t.Helper()
		if _, err := k.Sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"deleted", "evicted", "stays"} {
		k.Create(id, bridgetest.WithLabels(labels{"team": "red"}))
		k.Ask(id, "hi") // a turn, so that the CLI has a history
		used(k.FakeCLI(), id, "m1")
	}
	bridgetest.Eventually(t, "the usage", func() bool { return len(usageOf(ctx, k, q)) == 6 })
	k.Store().SaveDirty()
	remove("deleted")
	k.Disconnect("evicted")
	k.Store().SaveDirty()
	want("with one deleted", "[   1 1 1  stays  1 1 1 m1   0 1 7 m1 stays  0 1 7]")
	k = k.Restart()
	want("after a restart", "[   1 1 1  stays  1 1 1 m1   0 1 7 m1 stays  0 1 7]")
	for i := range sessions.MaxDisconnected {
		id := fmt.Sprint("later", i)
		k.Create(id)
		k.Disconnect(id)
	}
	bridgetest.Eventually(t, "the disconnected session to be out of memory", func() bool { return k.Store().Get("evicted") == nil })
	remove("evicted")
	want("with two deleted", "[   2 2 2  stays  1 1 1 m1   0 2 14 m1 stays  0 1 7]")
	k.Create("deleted")
	remove("deleted")
	want("with an unused one deleted", "[   2 2 2  stays  1 1 1 m1   0 2 14 m1 stays  0 1 7]")
	red := &bridgev1.GetUsageRequest{Filter: &bridgev1.SessionFilter{Labels: labels{"team": "red"}}}
	if got := fmt.Sprint(usageOf(ctx, k, red)); got != "[   1 2 8]" {
		t.Errorf("by a label: %s", got)
	}
	if got := fmt.Sprint(usageOf(ctx, k, &bridgev1.GetUsageRequest{SessionId: "stays"})); got != "[   1 2 8]" {
		t.Errorf("of a session: %s", got)
	}
	k = k.Restart()
	want("after another restart", "[   2 2 2  stays  1 1 1 m1   0 2 14 m1 stays  0 1 7]")
	other := caller.With(ctx, caller.Caller{Tenant: "other", Role: caller.Owner, Class: caller.Own})
	if got := usageOf(other, k, q); len(got) > 0 {
		t.Errorf("another tenant sees %s", got)
	}
}
