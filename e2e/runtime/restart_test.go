package runtime

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// open creates a session that asks for a tool's call, and says something.
func open(d *harness.Daemon, text string, tool *cliv1.ToolDefinition) (id string, at *bridgev1.Position) {
	d.T.Helper()
	config := d.Config()
	config.Provider.ApiKey = proto.String(harness.Planted)
	config.Provider.Headers = map[string]string{"X-Key": harness.Planted}
	if tool != nil {
		config.Tools = []*cliv1.ToolDefinition{tool}
	}
	created, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{
		Config: config, RequestId: "create " + text, Handlers: &bridgev1.Handlers{Permission: true},
	})
	if err != nil {
		d.T.Fatalf("create: %v", err)
	}
	id = created.GetSession().GetSessionId()
	sent, err := d.Client.Sessions().Send(d.Ctx,
		&bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}, RequestId: "send"})
	if err != nil {
		d.T.Fatalf("send: %v", err)
	}
	return id, sent.GetPosition()
}

func toolNamed(name string, skip bool) *cliv1.ToolDefinition {
	return &cliv1.ToolDefinition{Name: name, Description: "A test's tool.", SkipPermission: proto.Bool(skip)}
}

func resolve(d *harness.Daemon, id, callback string, a *bridgev1.Answer) {
	d.T.Helper()
	if _, err := d.Client.Callbacks().Resolve(d.Ctx,
		&bridgev1.ResolveRequest{SessionId: id, CallbackId: callback, Answer: a,
			RequestId: "resolve " + callback}); err != nil {
		d.T.Fatalf("resolve: %v", err)
	}
}

// TestBridgeIsKilled kills a bridge with sessions in the middle of everything, twice.
func TestBridgeIsKilled(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")),
		harness.OnUser("ask", harness.Call("asks", nil)), harness.OnResult("asks", harness.Say("{{tool_result}}")),
		harness.Rule{When: harness.WhenUser("wait"), WaitFor: "middle", Reply: harness.Steps(harness.Say("too late"))},
	)
	if st.Before("1.0.102") {
		t.Skip("an older CLI writes its history too late for all of this")
	}
	d := harness.NewDaemon(st)
	rested, _ := open(d, "hello", nil)
	d.After(rested, nil, "session.idle")
	working, _ := open(d, "work", toolNamed("works", true))
	call := d.Waiting(working)
	asking, _ := open(d, "ask", toolNamed("asks", false))
	permission := d.Waiting(asking)
	running, _ := open(d, "wait", nil)
	st.Gate("middle")
	seen, at := d.Durable(rested)
	runtimes, err := d.Client.Runtimes().ListRuntimes(d.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{rested, working, asking, running} {
		st.Eventually("the CLI's record of "+id, func() bool {
			known := d.Oracle(id)
			ids, _ := d.Durable(id)
			return len(durableOf(ids, known)) > 1 && slices.Contains(known, ids[len(ids)-1])
		})
	}

	d.Crash()
	for _, rt := range runtimes.GetRuntimes() {
		st.Eventually("the end of the killed server's CLI", func() bool { return !harness.Alive(rt.GetPid()) })
	}
	if found := harness.SecretsIn(t, filepath.Join(d.Root, "data"), harness.Planted); found != nil {
		t.Errorf("secrets are in %v", found)
	}
	for _, id := range []string{rested, working, asking, running} {
		lacksCredentials(d, id)
	}
	// A position of the earlier life is good, also while no client can load the session.
	ids, gaps := d.After(rested, at[len(at)-3], "")
	if !slices.Equal(durableOf(ids, seen), seen[len(seen)-2:]) || len(gaps) > 1 {
		t.Errorf("after %v come %v (gaps %v), want the last of %v", at[len(at)-3], ids, gaps, seen)
	}
	for _, id := range []string{rested, working, asking, running} {
		d.Provide(id)
	}
	if again := d.Waiting(working); again.GetCallbackId() != call.GetCallbackId() {
		t.Errorf("the tool's call has id %q, was %q", again.GetCallbackId(), call.GetCallbackId())
	}
	answer, _ := copilot.AnswerTool("by the next life")
	resolve(d, working, call.GetCallbackId(), answer)
	if again := d.Waiting(asking); again.GetCallbackId() != permission.GetCallbackId() {
		t.Errorf("the permission has id %q, was %q", again.GetCallbackId(), permission.GetCallbackId())
	}
	resolve(d, asking, permission.GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{
		Permission: copilot.ApproveOnce(),
	}})
	resolve(d, asking, d.Waiting(asking).GetCallbackId(), answer)
	for _, id := range []string{working, asking} {
		d.After(id, nil, "session.idle")
	}
	for _, id := range []string{rested, running} {
		d.SayTo(id, "and on")
	}
	sameAnswers(d, rested)
	for _, id := range []string{rested, working, asking, running} {
		d.Agrees(id)
	}
	before, beforeAt := d.Durable(rested)
	d.Crash()
	after, afterAt := d.Durable(rested)
	if !slices.Equal(before, after) || !samePositions(beforeAt, afterAt) {
		t.Errorf("events at rest have changed: %v, %v", before, after)
	}
}

// lacksCredentials checks that a session says what it needs.
func lacksCredentials(d *harness.Daemon, id string) {
	d.T.Helper()
	got, err := d.Client.Sessions().GetSession(d.Ctx, &bridgev1.GetSessionRequest{SessionId: id})
	if err != nil || got.GetSession().GetState() != bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED {
		d.T.Errorf("session %s is %v, %v", id, got.GetSession().GetState(), err)
	}
	_, err = d.Client.Session(id).SendAndWait(d.Ctx, "nothing")
	harness.WantReason(d.T, err, bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED)
}

// sameAnswers repeats requests of the earlier life.
func sameAnswers(d *harness.Daemon, id string) {
	d.T.Helper()
	before, _ := d.Durable(id)
	again, at := open(d, "hello", nil)
	if again != id {
		d.T.Errorf("the same request created session %s, not %s", again, id)
	}
	if after, _ := d.Durable(id); !slices.Equal(before, after) || at == nil {
		d.T.Errorf("the same request sent again: %v", after[len(before):])
	}
}

// durableOf are the ids that are among others.
func durableOf(ids, among []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(among, id) })
}

func samePositions(a, b []*bridgev1.Position) bool {
	return slices.EqualFunc(a, b, func(a, b *bridgev1.Position) bool { return proto.Equal(a, b) })
}

// TestDataDirectoryIsTaken: a second server is refused while the first one lives, and says which process that is.
func TestDataDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	path, _ := harness.Program()
	dir := filepath.Join(d.Root, "data")
	out, err := exec.Command(path, "serve", "--listen", "unix:"+filepath.Join(d.Root, "other"), "--data-dir",
		dir).CombinedOutput()
	want := fmt.Sprintf("another server uses the data directory %q; stop process %d (copilot-grpc), or choose another "+
		"directory with --data-dir\n", dir, d.Cmd.Process.Pid)
	if err == nil || !strings.HasSuffix(string(out), want) {
		t.Errorf("a second server: %v, %s, want %s", err, out, want)
	}
}

// Fields that a caller cleared stay empty when the server starts again.
func TestClearedFieldsOutliveTheServer(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	d := harness.NewDaemon(st)
	config := d.Config()
	config.Provider.ApiKey = proto.String(harness.Planted)
	config.Tools = []*cliv1.ToolDefinition{toolNamed("probe", true)}
	config.McpServers = map[string]*cliv1.McpSerializableServerConfig{"loud": harness.MCPServer(t)}
	config.SystemMessage = &cliv1.SystemMessageConfig{Content: proto.String("Probe gently.")}
	created, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetSession().GetSessionId()
	d.SayTo(id, "hello")
	if q := st.LastModelRequest(); !slices.Contains(q.ToolNames(), "probe") || !strings.Contains(string(q.Body), "Probe gently.") {
		t.Errorf("at first the model has %q", q.ToolNames())
	}
	_, err = d.Client.Sessions().ResumeSession(d.Ctx, &bridgev1.ResumeSessionRequest{
		SessionId: id, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"mcp_servers", "tools", "system_message"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Stop(syscall.SIGTERM)
	d.Start()
	// The MCP server's environment was a secret too: without the server, it is not missing.
	d.Provide(id)
	d.SayTo(id, "hello again")
	q := st.LastModelRequest()
	for _, name := range q.ToolNames() {
		if name == "probe" || name == "loud-shout" {
			t.Errorf("the model has the tool %s", name)
		}
	}
	if strings.Contains(string(q.Body), "Probe gently.") {
		t.Error("the model has the system message")
	}
}
