package surface

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// sampleScript is what the model plays in TestSurfaceSample. A rule holds while the user's
// words are the last.
const sampleScript = `
rules:
  - when: {user: "list what is to do"}
    reply: [{tool_call: {name: sql, arguments: {description: "note it", query: "INSERT INTO todos (id, title, description, status) VALUES ('dig', 'Dig the garden', 'All of it.', 'pending')"}}}]
  - when: {user_regex: "change the file (.*)"}
    reply: [{tool_call: {name: edit, arguments: {path: "{{match.1}}", old_str: "before", new_str: "after"}}}]
  - when: {user: "say it aloud"}
    reply: [{tool_call: {name: bash, arguments: {command: "echo allowed by a rule", description: "say it"}}}]
  - when: {user: "which colour"}
    reply: [{tool_call: {name: ask_user, arguments: {question: "Which colour?", choices: ["red", "blue"], allow_freeform: true}}}]
  - when: {user: "leave the plan"}
    reply: [{tool_call: {name: exit_plan_mode, arguments: {summary: "First this.", actions: ["interactive", "exit_only"], recommendedAction: "interactive"}}}]
default: {reply: [{text: "You said: {{user}}"}]}`

// approveAll lets the agent do what it likes.
func (r *sample) approveAll(s *harness.TestSession) {
	harness.Did(r.Fixture, cliv1.NewSessionPermissionsServiceClient(r.conn).SetApproveAll,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: s.ID(), Enabled: true})
}

// sampleTodos: what the agent notes in its database is read without it.
func sampleTodos(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	r.approveAll(s)
	s.Ask("list what is to do")
	todos := harness.Did(r.Fixture, cliv1.NewSessionPlanServiceClient(r.conn).ReadSqlTodos,
		&cliv1.SessionPlanServiceReadSqlTodosRequest{SessionId: s.ID()}).GetRows()
	check(t,
		len(todos) == 1 && todos[0].GetId() == "dig" && todos[0].GetTitle() == "Dig the garden" &&
			todos[0].GetStatus() == "pending", "todos: %v", todos)
}

// sampleRewind: going back takes a message from the model's messages, and the change that was made because of it from
// the file.
func sampleRewind(t *testing.T, r *sample) {
	path := r.Write("file.txt", "before\n")
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.EnableFileChangeTracking = proto.Bool(true) }))
	r.approveAll(s)
	s.Ask("first words")
	s.Ask("change the file " + path)
	text, err := os.ReadFile(path)
	check(t, err == nil && string(text) == "after\n", "the file is %q, %v", text, err)
	history := cliv1.NewSessionHistoryServiceClient(r.conn)
	var point *cliv1.HistoryRewindPoint
	for _, p := range harness.Did(r.Fixture, history.ListRewindPoints,
		&cliv1.SessionHistoryServiceListRewindPointsRequest{SessionId: s.ID()}).GetPoints() {
		if strings.HasPrefix(p.GetUserMessage(), "change") {
			point = p
		}
	}
	check(t, point.GetCanRestoreFiles() && point.GetFileCount() == 1, "the point is %v", point)
	preview := harness.Did(r.Fixture, history.PreviewRewind,
		&cliv1.SessionHistoryServicePreviewRewindRequest{SessionId: s.ID(), EventId: point.GetEventId()})
	check(t, preview.GetAvailable() && preview.GetFileCount() == 1, "preview: %v", preview)
	back := harness.Did(r.Fixture, history.Rewind, &cliv1.SessionHistoryServiceRewindRequest{
		SessionId: s.ID(), EventId: point.GetEventId(),
		Mode: cliv1.HistoryRewindMode_HISTORY_REWIND_MODE_CONVERSATION_AND_FILES,
	})
	check(t,
		back.GetOutcome() == cliv1.HistoryRewindOutcome_HISTORY_REWIND_OUTCOME_SUCCESS && back.GetEventsRemoved() > 0 &&
			len(back.GetRestoredFiles()) == 1, "rewound: %v", back)
	text, err = os.ReadFile(path)
	check(t, err == nil && string(text) == "before\n", "the file is %q, %v", text, err)
	s.Ask("third words")
	body := string(r.LastModelRequest().Body)
	check(t, strings.Contains(body, "first words") && !strings.Contains(body, "change the file"),
		"the model is told what was gone back from")
}

// sampleMCPLife: a server's processes are started, ended and started anew; the model has its
// tools while it runs.
func sampleMCPLife(t *testing.T, r *sample) {
	starts := filepath.Join(r.Dir, "starts")
	server := harness.MCPServer(t)
	server.GetStdio().Env[harness.MCPStartsEnv] = starts
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"mine": server}
	}))
	s.Ask("hello") // by then the server is up
	mcp := cliv1.NewSessionMcpServiceClient(r.conn)
	processes := func() []string {
		text, err := os.ReadFile(starts)
		check(t, err == nil, "starts: %v", err)
		return strings.Fields(string(text))
	}
	offered := func(words string) bool {
		s.Ask(words)
		return slices.ContainsFunc(r.LastModelRequest().Tools,
			func(o offlinemodel.Tool) bool { return strings.Contains(o.Name, "shout") })
	}
	check(t, len(processes()) == 1 && offered("one"), "at the beginning: processes %q", processes())
	harness.Did(r.Fixture, mcp.StopServer,
		&cliv1.SessionMcpServiceStopServerRequest{SessionId: s.ID(), ServerName: "mine"})
	check(t, !offered("two"), "the model has the tools of a server that was stopped")
	harness.Did(r.Fixture, mcp.StartServer,
		&cliv1.SessionMcpServiceStartServerRequest{SessionId: s.ID(), ServerName: "mine", Config: server})
	check(t, len(processes()) == 2 && offered("three"), "after a start: processes %q", processes())
	harness.Did(r.Fixture, mcp.RestartServer,
		&cliv1.SessionMcpServiceRestartServerRequest{SessionId: s.ID(), ServerName: "mine", Config: server})
	check(t, len(processes()) == 3 && offered("four"), "after a restart: processes %q", processes())
}

// sampleMCPConfig: a server that is configured for all sessions runs in a new one, unless it
// is disabled.
func sampleMCPConfig(t *testing.T, r *sample) {
	harness.SkipAtEntry(t, "each replica's CLI has MCP servers for all its sessions")
	starts := filepath.Join(r.Dir, "starts")
	server := harness.MCPServer(t)
	server.GetStdio().Env[harness.MCPStartsEnv] = starts
	config := cliv1.NewMcpConfigServiceClient(r.conn)
	harness.Did(r.Fixture, config.Add, &cliv1.McpConfigServiceAddRequest{Name: "everywhere", Config: server})
	harness.Did(r.Fixture, config.Disable, &cliv1.McpConfigServiceDisableRequest{Names: []string{"everywhere"}})
	started := func() bool {
		s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.EnableConfigDiscovery = proto.Bool(true) }))
		s.Ask("hello") // by then a server would be up
		text, err := os.ReadFile(starts)
		return err == nil && len(text) > 0
	}
	check(t, !started(), "the disabled server was started")
	harness.Did(r.Fixture, config.Enable, &cliv1.McpConfigServiceEnableRequest{Names: []string{"everywhere"}})
	check(t, started(), "the server was not started")
}

// sampleRules: a rule allows a command that else would need a permission, or forbids a command that else would be
// allowed.
func sampleRules(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	permissions := cliv1.NewSessionPermissionsServiceClient(r.conn)
	said := func() string {
		s.Ask("say it aloud")
		messages := r.LastModelRequest().Messages
		return messages[len(messages)-1].Text
	}
	rule := []*cliv1.PermissionRule{{Kind: "shell", Argument: proto.String("echo:*")}}
	session := cliv1.PermissionsModifyRulesScope_PERMISSIONS_MODIFY_RULES_SCOPE_SESSION
	harness.Did(r.Fixture, permissions.ModifyRules,
		&cliv1.SessionPermissionsServiceModifyRulesRequest{SessionId: s.ID(), Scope: session, Add: rule})
	text := said()
	check(t, strings.HasPrefix(text, "allowed by a rule"), "with the rule: %q", text)
	harness.Did(r.Fixture, permissions.ModifyRules,
		&cliv1.SessionPermissionsServiceModifyRulesRequest{SessionId: s.ID(), Scope: session, Remove: rule})
	text = said()
	check(t, !strings.HasPrefix(text, "allowed by a rule"), "without the rule: %q", text)
	r.approveAll(s)
	harness.Did(r.Fixture, permissions.Configure, &cliv1.SessionPermissionsServiceConfigureRequest{
		SessionId: s.ID(), Rules: &cliv1.PermissionRulesSet{Denied: rule},
	})
	text = said()
	check(t, strings.Contains(text, "shell(echo:*)"), "with the rule against it: %q", text)
}

// sampleContext: what the CLI says of the size of a conversation, and of making it smaller.
func sampleContext(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	s.Ask("hello " + strings.Repeat("and hello ", 200))
	meta := cliv1.NewSessionMetadataServiceClient(r.conn)
	info := harness.Did(r.Fixture, meta.ContextInfo, &cliv1.SessionMetadataServiceContextInfoRequest{
		SessionId: s.ID(), PromptTokenLimit: 1000, OutputTokenLimit: 1000,
	}).GetContextInfo()
	check(t,
		info.GetModelName() == offlinemodel.DefaultModel && info.GetPromptTokenLimit() == 1000 &&
			info.GetConversationTokens() > 200 &&
			info.GetTotalTokens() >= info.GetConversationTokens()+info.GetSystemTokens(), "context: %v", info)
	compacted := harness.Did(r.Fixture, cliv1.NewSessionHistoryServiceClient(r.conn).Compact,
		&cliv1.SessionHistoryServiceCompactRequest{SessionId: s.ID()})
	check(t,
		compacted.GetSuccess() && compacted.GetMessagesRemoved() > 0 &&
			compacted.GetContextWindow().GetCurrentTokens() > 0, "compacted: %v", compacted)
	s.Ask("and now")
	told := r.LastModelRequest().Messages
	check(t, len(told) == 2 && strings.Contains(told[0].Text, "summarized"), "the model is told %d messages: %v",
		len(told), told)
}

// sampleAnswers: what the CLI asks by a request is answered by its own methods, and the
// bridge tells that it is.
func sampleAnswers(t *testing.T, r *sample) {
	session, ui := cliv1.NewSessionServiceClient(r.conn), cliv1.NewSessionUiServiceClient(r.conn)
	config := r.Options().Config
	id := harness.Did(r.Fixture, session.Create, &cliv1.SessionServiceCreateRequest{
		Model: config.Model, Provider: config.Provider, WorkingDirectory: config.WorkingDirectory,
		RequestUserInput: proto.Bool(true), RequestExitPlanMode: proto.Bool(true),
	}).GetSessionId()
	r.Own(id)
	s := &harness.TestSession{Session: r.Client.Session(id), Fixture: r.Fixture}
	st := &harness.Scripted{Fixture: r.Fixture}
	frames := st.Callbacks(id)

	s.Submit("which colour")
	asked := s.WaitFor("user_input.requested").GetEvent().GetUserInputRequested().GetRequestId()
	callback := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT).GetCallbackId()
	green := &cliv1.SessionUiServiceHandlePendingUserInputRequest{
		SessionId: id, RequestId: asked, Response: &cliv1.UIUserInputResponse{Answer: "green", WasFreeform: true},
	}
	check(t, harness.Did(r.Fixture, ui.HandlePendingUserInput, green).GetSuccess(), "the answer was not taken")
	over := frames.Resolved(callback)
	check(t, over.GetOutcome() == bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, "the question ended as %v", over)
	s.WaitFor("session.idle")
	check(t, strings.Contains(string(r.LastModelRequest().Body), "green"), "the model is not told the answer")
	check(t, !harness.Did(r.Fixture, ui.HandlePendingUserInput, green).GetSuccess(), "a second answer was taken")

	harness.Did(r.Fixture, session.Send,
		&cliv1.SessionServiceSendRequest{SessionId: id, Prompt: "leave the plan",
			AgentMode: cliv1.SendAgentMode_SEND_AGENT_MODE_PLAN})
	asked = s.WaitFor("exit_plan_mode.requested").GetEvent().GetExitPlanModeRequested().GetRequestId()
	callback = frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_EXIT_PLAN_MODE).GetCallbackId()
	check(t,
		harness.Did(r.Fixture, ui.HandlePendingExitPlanMode, &cliv1.SessionUiServiceHandlePendingExitPlanModeRequest{
			SessionId: id, RequestId: asked,
			Response: &cliv1.UIExitPlanModeResponse{Feedback: proto.String("first that")},
		}).GetSuccess(), "the answer was not taken")
	frames.Resolved(callback)
	done := s.WaitFor("exit_plan_mode.completed").GetEvent().GetExitPlanModeCompleted()
	check(t, !done.GetApproved() && done.GetFeedback() == "first that", "the question ended as %v", done)
}

// sampleLarge: a result is whole, however large; how much a caller takes is the caller's
// matter.
func sampleLarge(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	ws := cliv1.NewSessionWorkspacesServiceClient(r.conn)
	content := strings.Repeat("0123456789abcde\n", 5<<20/16)
	harness.Did(r.Fixture, ws.CreateFile,
		&cliv1.SessionWorkspacesServiceCreateFileRequest{SessionId: s.ID(), Path: "large.txt", Content: content})
	q := &cliv1.SessionWorkspacesServiceReadFileRequest{SessionId: s.ID(), Path: "large.txt"}
	_, err := ws.ReadFile(r.Ctx, q)
	check(t, status.Code(err) == codes.ResourceExhausted, "with gRPC's own limit of 4 MiB: %v", err)
	for name, fidelity := range map[string]context.Context{"tidy": r.Ctx, "exact": exactly(r.Ctx)} {
		read, err := ws.ReadFile(fidelity, q, grpc.MaxCallRecvMsgSize(16<<20))
		check(t, err == nil && read.GetContent() == content, "%s: %d bytes, %v", name, len(read.GetContent()), err)
	}
	read, err := cliv1.NewSessionWorkspacesServiceClient(r.Client.Conn()).ReadFile(r.Ctx, q)
	check(t, err == nil && read.GetContent() == content, "by the Go client: %d bytes, %v", len(read.GetContent()), err)
}
