package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// planted is a secret that may not be found on disk.
const planted = "planted-5ecret"

// open creates a session that asks for a tool's call, and says something.
func (d *daemon) open(text string, tool *cliv1.ToolDefinition) (id string, at *bridgev1.Position) {
	d.t.Helper()
	config := d.config()
	config.Provider.ApiKey = proto.String(planted)
	config.Provider.Headers = map[string]string{"X-Key": planted}
	if tool != nil {
		config.Tools = []*cliv1.ToolDefinition{tool}
	}
	created, err := d.client.Sessions().CreateSession(d.ctx, &bridgev1.CreateSessionRequest{
		Config: config, RequestId: "create " + text, Handlers: &bridgev1.Handlers{Permission: true},
	})
	if err != nil {
		d.t.Fatalf("create: %v", err)
	}
	id = created.GetSession().GetSessionId()
	sent, err := d.client.Sessions().Send(d.ctx, &bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}, RequestId: "send"})
	if err != nil {
		d.t.Fatalf("send: %v", err)
	}
	return id, sent.GetPosition()
}

func toolNamed(name string, skip bool) *cliv1.ToolDefinition {
	return &cliv1.ToolDefinition{Name: name, Description: "A test's tool.", SkipPermission: proto.Bool(skip)}
}

// provide gives a session's secrets back.
func (d *daemon) provide(id string) {
	d.t.Helper()
	_, err := d.client.Sessions().ProvideCredentials(d.ctx, &bridgev1.ProvideCredentialsRequest{
		SessionId: id, Provider: &cliv1.ProviderConfig{ApiKey: proto.String(planted), Headers: map[string]string{"X-Key": planted}},
	})
	if err != nil {
		d.t.Fatalf("credentials of %s: %v", id, err)
	}
}

func (d *daemon) resolve(id, callback string, a *bridgev1.Answer) {
	d.t.Helper()
	if _, err := d.client.Callbacks().Resolve(d.ctx, &bridgev1.ResolveRequest{SessionId: id, CallbackId: callback, Answer: a, RequestId: "resolve " + callback}); err != nil {
		d.t.Fatalf("resolve: %v", err)
	}
}

// TestBridgeIsKilled kills a bridge with sessions in the middle of everything, twice.
func TestBridgeIsKilled(t *testing.T) {
	t.Parallel()
	st := newStage(t,
		onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")),
		onUser("ask", call("asks", nil)), onResult("asks", say("{{tool_result}}")),
		rule{When: whenUser("wait"), WaitFor: "middle", Reply: steps(say("too late"))},
	)
	if st.before("1.0.102") {
		t.Skip("an older CLI writes its history too late for all of this")
	}
	d := newDaemon(st)
	rested, _ := d.open("hello", nil)
	d.after(rested, nil, "session.idle")
	working, _ := d.open("work", toolNamed("works", true))
	call := d.waiting(working)
	asking, _ := d.open("ask", toolNamed("asks", false))
	permission := d.waiting(asking)
	running, _ := d.open("wait", nil)
	st.gate("middle")
	seen, at := d.durable(rested)
	runtimes, err := d.client.Runtimes().ListRuntimes(d.ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{rested, working, asking, running} {
		st.eventually("the CLI's record of "+id, func() bool {
			known := d.oracle(id)
			ids, _ := d.durable(id)
			return len(durableOf(ids, known)) > 1 && slices.Contains(known, ids[len(ids)-1])
		})
	}

	d.crash()
	for _, rt := range runtimes.GetRuntimes() {
		if alive(rt.GetPid()) {
			t.Errorf("runtime %d is left over", rt.GetPid())
		}
	}
	if found := secretsIn(t, filepath.Join(d.root, "data"), planted); found != nil {
		t.Errorf("secrets are in %v", found)
	}
	for _, id := range []string{rested, working, asking, running} {
		d.lacksCredentials(id)
	}
	// A position of the earlier life is good, also while nobody can load the session.
	ids, gaps := d.after(rested, at[len(at)-3], "")
	if !slices.Equal(durableOf(ids, seen), seen[len(seen)-2:]) || len(gaps) > 1 {
		t.Errorf("after %v come %v (gaps %v), want the last of %v", at[len(at)-3], ids, gaps, seen)
	}
	for _, id := range []string{rested, working, asking, running} {
		d.provide(id)
	}
	if again := d.waiting(working); again.GetCallbackId() != call.GetCallbackId() {
		t.Errorf("the tool's call has id %q, was %q", again.GetCallbackId(), call.GetCallbackId())
	}
	answer, _ := copilot.AnswerTool("by the next life")
	d.resolve(working, call.GetCallbackId(), answer)
	if again := d.waiting(asking); again.GetCallbackId() != permission.GetCallbackId() {
		t.Errorf("the permission has id %q, was %q", again.GetCallbackId(), permission.GetCallbackId())
	}
	d.resolve(asking, permission.GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{
		Permission: copilot.ApproveOnce(),
	}})
	d.resolve(asking, d.waiting(asking).GetCallbackId(), answer)
	for _, id := range []string{working, asking} {
		d.after(id, nil, "session.idle")
	}
	for _, id := range []string{rested, running} {
		d.sayTo(id, "and on")
	}
	d.sameAnswers(rested)
	for _, id := range []string{rested, working, asking, running} {
		d.agrees(id)
	}
	before, beforeAt := d.durable(rested)
	d.crash()
	after, afterAt := d.durable(rested)
	if !slices.Equal(before, after) || !samePositions(beforeAt, afterAt) {
		t.Errorf("events at rest have changed: %v, %v", before, after)
	}
}

// lacksCredentials checks that a session says what it needs.
func (d *daemon) lacksCredentials(id string) {
	d.t.Helper()
	got, err := d.client.Sessions().GetSession(d.ctx, &bridgev1.GetSessionRequest{SessionId: id})
	if err != nil || got.GetSession().GetState() != bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED {
		d.t.Errorf("session %s is %v, %v", id, got.GetSession().GetState(), err)
	}
	_, err = d.client.Session(id).SendAndWait(d.ctx, "nothing")
	wantReason(d.t, err, bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED)
}

// sayTo has a turn in a session.
func (d *daemon) sayTo(id, text string) {
	d.t.Helper()
	out, err := d.client.Session(id).SendAndWait(d.ctx, text)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		d.t.Errorf("the turn of %q in %s: %v", text, id, err)
	}
}

// sameAnswers repeats requests of the earlier life.
func (d *daemon) sameAnswers(id string) {
	d.t.Helper()
	before, _ := d.durable(id)
	again, at := d.open("hello", nil)
	if again != id {
		d.t.Errorf("the same request created session %s, not %s", again, id)
	}
	if after, _ := d.durable(id); !slices.Equal(before, after) || at == nil {
		d.t.Errorf("the same request sent again: %v", after[len(before):])
	}
}

// durableOf are the ids that are among others.
func durableOf(ids, among []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(among, id) })
}

func samePositions(a, b []*bridgev1.Position) bool {
	return slices.EqualFunc(a, b, func(a, b *bridgev1.Position) bool { return proto.Equal(a, b) })
}

// TestDataDirectoryIsTaken: a second bridge is refused while the first one lives.
func TestDataDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	d := newDaemon(newStage(t))
	path, _ := program()
	out, err := exec.Command(path, "serve", "--listen", "unix:"+filepath.Join(d.root, "other"), "--data-dir", filepath.Join(d.root, "data")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another bridge uses the data directory") {
		t.Errorf("a second bridge: %v, %s", err, out)
	}
}
