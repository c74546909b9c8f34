package surface

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// lookedAt are the namespaces in which a method's effect must have been seen.
var lookedAt = strings.Fields(`session.mode session.name session.model session.plan session.workspaces session.skills
	session.mcp mcp.config session.agent session.tasks session.history session.queue session.usage session.metadata
	session.permissions session.permissions.paths session.shell session.commands session.eventLog session.ui
	plugins plugins.marketplaces user.settings sessions session skills agents instructions tools`)

// merelyCalled are methods that the sample calls and whose effect it does not look at:
// they do not count.
var merelyCalled = strings.Fields(`session.model.list session.workspaces.listCheckpoints session.workspaces.saveLargePaste
	session.mcp.list session.tools.getCurrentMetadata session.instructions.getSources session.schedule.list sessions.save
	sessions.checkInUse session.permissions.resetSessionApprovals session.queue.setDrainPaused session.abort
	session.tasks.cancel session.tasks.waitForPending session.eventLog.tail session.skills.reload`)

// sample is a fixture whose calls of copilot.cli.v1 are counted.
type sample struct {
	*harness.Fixture
	conn *grpc.ClientConn
	seen *sync.Map
}

// TestSurfaceSample calls methods of all namespaces and looks elsewhere for their effects: in files, in the model's
// requests, in events, in the results of other methods.
func TestSurfaceSample(t *testing.T) {
	t.Parallel()
	seen := &sync.Map{}
	// These look at, or change, what all sessions of a CLI share.
	alone := []string{"sessions", "settings", "plugins", "mcp", "mcp configuration"}
	t.Run("all", func(t *testing.T) {
		for name, f := range map[string]func(*testing.T, *sample){
			"mode and name": sampleModeAndName, "models": sampleModels, "plan and todos": samplePlan,
			"workspaces": sampleWorkspaces,
			"skills":     sampleSkills, "mcp": sampleMCP, "agents": sampleAgents, "tasks": sampleTasks,
			"history": sampleHistory,
			"queue":   sampleQueue, "usage and metadata": sampleUsage, "permissions": samplePermissions,
			"commands":  sampleCommands,
			"event log": sampleEventLog, "settings": sampleSettings, "plugins": samplePlugins,
			"sessions": sampleSessions, "server": sampleServer,
			"errors": sampleErrors, "life": sampleLife, "todos": sampleTodos, "rewind": sampleRewind,
			"mcp life":          sampleMCPLife,
			"mcp configuration": sampleMCPConfig, "rules": sampleRules, "context": sampleContext,
			"answers": sampleAnswers,
			"large":   sampleLarge, "waiting for a form": waitingCalls["elicitation"].test,
			"waiting for a command": waitingCalls["command"].test,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var r *harness.Fixture
				if slices.Contains(alone, name) {
					r = harness.NewOwnFixture(t, sampleScript, harness.HostConfig{})
				} else {
					r = harness.NewFixture(t, sampleScript)
				}
				conn, err := grpc.NewClient(r.Host.Target, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
						cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						err := invoker(ctx, method, req, reply, cc, opts...)
						if err == nil {
							seen.Store(method, true)
						}
						return err
					}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				f(t, &sample{r, conn, seen})
			})
		}
	})
	checkSampled(t, seen)
}

// checkSampled: of enough methods, and in all the namespaces, the effect was seen.
func checkSampled(t *testing.T, seen *sync.Map) {
	harness.SkipAtEntry(t, "some samples are left out")
	t.Helper()
	names := map[string]string{}
	for _, service := range rpc.SurfaceServices(false) {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			names[fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())] = rpc.MethodRules(m).GetMethod()
		}
	}
	var methods []string
	spaces, mere := map[string]bool{}, map[string]bool{}
	seen.Range(func(k, _ any) bool {
		name := names[k.(string)]
		if slices.Contains(merelyCalled, name) {
			mere[name] = true
			return true
		}
		methods = append(methods, name)
		spaces[name[:max(0, strings.LastIndex(name, "."))]] = true
		return true
	})
	slices.Sort(methods)
	check(t, len(methods) >= 90, "the effects of only %d methods: %q", len(methods), methods)
	for _, space := range lookedAt {
		check(t, spaces[space], "nothing of %s", space)
	}
	for _, name := range merelyCalled {
		check(t, mere[name], "%s is not called any more", name)
	}
	t.Logf("%d methods, and %d merely called: %q", len(methods), len(mere), methods)
}

func sampleModeAndName(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	mode, name := cliv1.NewSessionModeServiceClient(r.conn), cliv1.NewSessionNameServiceClient(r.conn)
	var trailer metadata.MD
	harness.Did(r.Fixture, mode.Set,
		&cliv1.SessionModeServiceSetRequest{SessionId: s.ID(), Mode: cliv1.SessionMode_SESSION_MODE_PLAN},
		grpc.Trailer(&trailer))
	check(t, len(trailer.Get("copilot-position")) == 1, "trailer is %v", trailer)
	s.WaitFor("session.mode_changed")
	got := harness.Did(r.Fixture, mode.Get, &cliv1.SessionModeServiceGetRequest{SessionId: s.ID()})
	check(t, got.GetValue() == cliv1.SessionMode_SESSION_MODE_PLAN, "mode is %v", got)
	harness.Did(r.Fixture, name.Set, &cliv1.SessionNameServiceSetRequest{SessionId: s.ID(), Name: "my own name"})
	check(t,
		harness.Did(r.Fixture, name.Get,
			&cliv1.SessionNameServiceGetRequest{SessionId: s.ID()}).GetName() == "my own name", "the name is another")
	text, err := os.ReadFile(filepath.Join(r.Host.Home, "session-state", s.ID(), "workspace.yaml"))
	check(t, err == nil && strings.Contains(string(text), "my own name"), "workspace.yaml is %s, %v", text, err)
	auto := harness.Did(r.Fixture, name.SetAuto,
		&cliv1.SessionNameServiceSetAutoRequest{SessionId: s.ID(), Summary: "a guess"})
	check(t, !auto.GetApplied(), "a guess took the place of a name")
}

func sampleModels(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	model := cliv1.NewSessionModelServiceClient(r.conn)
	harness.Did(r.Fixture, model.SwitchTo,
		&cliv1.SessionModelServiceSwitchToRequest{SessionId: s.ID(), ModelId: "another-model"})
	check(t,
		harness.Did(r.Fixture, model.GetCurrent,
			&cliv1.SessionModelServiceGetCurrentRequest{SessionId: s.ID()}).GetModelId() == "another-model",
		"the model is another")
	harness.Did(r.Fixture, model.List, &cliv1.SessionModelServiceListRequest{SessionId: s.ID()})
	s.Ask("hello")
	check(t, r.LastModelRequest().Model == "another-model", "the model asked is %q", r.LastModelRequest().Model)
}

func samplePlan(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	plan := cliv1.NewSessionPlanServiceClient(r.conn)
	harness.Did(r.Fixture, plan.Update, &cliv1.SessionPlanServiceUpdateRequest{SessionId: s.ID(), Content: "# Do it\n"})
	read := harness.Did(r.Fixture, plan.Read, &cliv1.SessionPlanServiceReadRequest{SessionId: s.ID()})
	text, err := os.ReadFile(read.GetPath())
	check(t, err == nil && string(text) == "# Do it\n" && read.GetContent() == string(text),
		"the plan is %q in the file, %v", text, read)
	todos := harness.Did(r.Fixture, plan.ReadSqlTodos, &cliv1.SessionPlanServiceReadSqlTodosRequest{SessionId: s.ID()})
	check(t, len(todos.GetRows()) == 0, "todos: %v", todos)
	harness.Did(r.Fixture, plan.Delete, &cliv1.SessionPlanServiceDeleteRequest{SessionId: s.ID()})
	_, err = os.Stat(read.GetPath())
	check(t, os.IsNotExist(err), "the deleted plan is there: %v", err)
}

func sampleWorkspaces(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	ws := cliv1.NewSessionWorkspacesServiceClient(r.conn)
	harness.Did(r.Fixture, ws.CreateFile,
		&cliv1.SessionWorkspacesServiceCreateFileRequest{SessionId: s.ID(), Path: "notes.txt", Content: "remember"})
	got := harness.Did(r.Fixture, ws.GetWorkspace,
		&cliv1.SessionWorkspacesServiceGetWorkspaceRequest{SessionId: s.ID()})
	check(t, strings.HasSuffix(got.GetPath(), s.ID()), "the workspace is at %q", got.GetPath())
	text, err := os.ReadFile(filepath.Join(got.GetPath(), "files", "notes.txt"))
	check(t, err == nil && string(text) == "remember", "the file is %q, %v", text, err)
	files := harness.Did(r.Fixture, ws.ListFiles, &cliv1.SessionWorkspacesServiceListFilesRequest{SessionId: s.ID()})
	check(t, slices.Contains(files.GetFiles(), "notes.txt"), "files: %v", files)
	read := harness.Did(r.Fixture, ws.ReadFile,
		&cliv1.SessionWorkspacesServiceReadFileRequest{SessionId: s.ID(), Path: "notes.txt"})
	check(t, read.GetContent() == "remember", "read: %v", read)
	paste := harness.Did(r.Fixture, ws.SaveLargePaste,
		&cliv1.SessionWorkspacesServiceSaveLargePasteRequest{SessionId: s.ID(), Content: strings.Repeat("long ", 1000)})
	check(t, paste.GetSaved() != nil, "paste: %v", paste)
	harness.Did(r.Fixture, ws.ListCheckpoints, &cliv1.SessionWorkspacesServiceListCheckpointsRequest{SessionId: s.ID()})
}

func sampleSkills(t *testing.T, r *sample) {
	r.Write(".github/skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets people.\n---\nSay hello.\n")
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.SkillDirectories = []string{filepath.Join(r.Dir,
			".github", "skills")}
	}))
	skills := cliv1.NewSessionSkillsServiceClient(r.conn)
	enabled := func() (there, on bool) {
		for _, one := range harness.Did(r.Fixture, skills.List,
			&cliv1.SessionSkillsServiceListRequest{SessionId: s.ID()}).GetSkills() {
			if one.GetName() == "greet" {
				return true, one.GetEnabled()
			}
		}
		return false, false
	}
	harness.Did(r.Fixture, skills.Reload, &cliv1.SessionSkillsServiceReloadRequest{SessionId: s.ID()})
	there, on := enabled()
	check(t, there && on, "the skill is there %t, on %t", there, on)
	harness.Did(r.Fixture, skills.Disable, &cliv1.SessionSkillsServiceDisableRequest{SessionId: s.ID(), Name: "greet"})
	_, on = enabled()
	check(t, !on, "the skill is on")
	harness.Did(r.Fixture, skills.Enable, &cliv1.SessionSkillsServiceEnableRequest{SessionId: s.ID(), Name: "greet"})
	_, on = enabled()
	check(t, on, "the skill is off")
	found := harness.Did(r.Fixture, cliv1.NewSkillsServiceClient(r.conn).Discover,
		&cliv1.SkillsServiceDiscoverRequest{ProjectPaths: []string{r.Dir}})
	check(t, slices.ContainsFunc(found.GetSkills(), func(k *cliv1.ServerSkill) bool { return k.GetName() == "greet" }),
		"discovered: %v", found)
}

func sampleMCP(t *testing.T, r *sample) {
	config := cliv1.NewMcpConfigServiceClient(r.conn)
	harness.Did(r.Fixture, config.Add, &cliv1.McpConfigServiceAddRequest{Name: "mine", Config: harness.MCPServer(t)})
	text, err := os.ReadFile(filepath.Join(r.Host.FrontHome, "mcp-config.json"))
	check(t, err == nil && strings.Contains(string(text), `"mine"`), "mcp-config.json is %s, %v", text, err)
	list := harness.Did(r.Fixture, config.List, &cliv1.McpConfigServiceListRequest{})
	check(t, list.GetServers()["mine"].GetStdio().GetCommand() == harness.MCPServer(t).GetStdio().GetCommand(),
		"configured: %v", list)
	harness.Did(r.Fixture, config.Disable, &cliv1.McpConfigServiceDisableRequest{Names: []string{"mine"}})
	harness.Did(r.Fixture, config.Enable, &cliv1.McpConfigServiceEnableRequest{Names: []string{"mine"}})
	harness.Did(r.Fixture, config.Remove, &cliv1.McpConfigServiceRemoveRequest{Name: "mine"})
	check(t, len(harness.Did(r.Fixture, config.List, &cliv1.McpConfigServiceListRequest{}).GetServers()) == 0,
		"removed, and still there")

	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"mine": harness.MCPServer(t)}
	}))
	s.Ask("hello") // by then the server is up
	mcp := cliv1.NewSessionMcpServiceClient(r.conn)
	running := func() bool {
		return harness.Did(r.Fixture, mcp.IsServerRunning,
			&cliv1.SessionMcpServiceIsServerRunningRequest{SessionId: s.ID(), ServerName: "mine"}).GetRunning()
	}
	check(t, running(), "the server does not run")
	tools := harness.Did(r.Fixture, mcp.ListTools,
		&cliv1.SessionMcpServiceListToolsRequest{SessionId: s.ID(), ServerName: "mine"})
	check(t, len(tools.GetTools()) == len(harness.MCPTools), "tools: %v", tools)
	harness.Did(r.Fixture, mcp.StopServer,
		&cliv1.SessionMcpServiceStopServerRequest{SessionId: s.ID(), ServerName: "mine"})
	check(t, !running(), "the stopped server runs")
	harness.Did(r.Fixture, mcp.List, &cliv1.SessionMcpServiceListRequest{SessionId: s.ID()})
	harness.Did(r.Fixture, mcp.Disable, &cliv1.SessionMcpServiceDisableRequest{SessionId: s.ID(), ServerName: "mine"})
	s.Ask("hello again")
	check(t,
		!slices.ContainsFunc(r.LastModelRequest().Tools,
			func(o offlinemodel.Tool) bool { return strings.Contains(o.Name, "shout") }),
		"the model has the tools of a disabled server")
}

func sampleAgents(t *testing.T, r *sample) {
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.CustomAgents = []*cliv1.CustomAgentConfig{{Name: "poet", Prompt: "You are a poet of note.",
			Description: proto.String("Writes.")}}
	}))
	agent := cliv1.NewSessionAgentServiceClient(r.conn)
	list := harness.Did(r.Fixture, agent.List, &cliv1.SessionAgentServiceListRequest{SessionId: s.ID()})
	check(t, slices.ContainsFunc(list.GetAgents(), func(a *cliv1.AgentInfo) bool { return a.GetName() == "poet" }),
		"agents: %v", list)
	harness.Did(r.Fixture, agent.Select, &cliv1.SessionAgentServiceSelectRequest{SessionId: s.ID(), Name: "poet"})
	got := harness.Did(r.Fixture, agent.GetCurrent, &cliv1.SessionAgentServiceGetCurrentRequest{SessionId: s.ID()})
	check(t, got.GetAgent().GetName() == "poet", "the agent is %v", got)
	s.Ask("hello")
	check(t, strings.Contains(string(r.LastModelRequest().Body), "You are a poet of note."),
		"the model is not told of the agent")
	harness.Did(r.Fixture, agent.Deselect, &cliv1.SessionAgentServiceDeselectRequest{SessionId: s.ID()})
	got = harness.Did(r.Fixture, agent.GetCurrent, &cliv1.SessionAgentServiceGetCurrentRequest{SessionId: s.ID()})
	check(t, got.GetAgent() == nil, "the agent is %v", got)
	r.Write(".github/agents/critic.agent.md", "---\nname: critic\ndescription: Judges.\n---\nYou judge.\n")
	found := harness.Did(r.Fixture, cliv1.NewAgentsServiceClient(r.conn).Discover,
		&cliv1.AgentsServiceDiscoverRequest{ProjectPaths: []string{r.Dir}})
	check(t, slices.ContainsFunc(found.GetAgents(), func(a *cliv1.AgentInfo) bool { return a.GetName() == "critic" }),
		"discovered: %v", found)
}

func sampleTasks(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	tasks := cliv1.NewSessionTasksServiceClient(r.conn)
	started := harness.Did(r.Fixture, tasks.StartAgent,
		&cliv1.SessionTasksServiceStartAgentRequest{SessionId: s.ID(), AgentType: "general-purpose",
			Prompt: "look around", Name: "scout"})
	harness.Did(r.Fixture, tasks.WaitForPending, &cliv1.SessionTasksServiceWaitForPendingRequest{SessionId: s.ID()})
	list := harness.Did(r.Fixture, tasks.List, &cliv1.SessionTasksServiceListRequest{SessionId: s.ID()})
	text, err := json.Marshal(list)
	check(t, err == nil && len(list.GetTasks()) == 1 && strings.Contains(string(text), started.GetAgentId()),
		"tasks: %s", text)
	asked := slices.ContainsFunc(r.Model.ModelRequests(),
		func(q offlinemodel.Request) bool { return strings.Contains(string(q.Body), "look around") })
	check(t, asked, "the task asked the model nothing")
	harness.Did(r.Fixture, tasks.Cancel,
		&cliv1.SessionTasksServiceCancelRequest{SessionId: s.ID(), Id: started.GetAgentId()})
	gone := harness.Did(r.Fixture, tasks.Remove,
		&cliv1.SessionTasksServiceRemoveRequest{SessionId: s.ID(), Id: started.GetAgentId()})
	check(t, gone.GetRemoved(), "not removed: %v",
		harness.Did(r.Fixture, tasks.List, &cliv1.SessionTasksServiceListRequest{SessionId: s.ID()}))
}

func sampleHistory(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	s.Ask("first words")
	s.Ask("second words")
	var second string
	for _, ev := range s.Recorded() {
		if ev.GetEvent().GetUserMessage().GetContent() == "second words" {
			second = ev.GetEvent().GetId()
		}
	}
	history := cliv1.NewSessionHistoryServiceClient(r.conn)
	cut := harness.Did(r.Fixture, history.Truncate,
		&cliv1.SessionHistoryServiceTruncateRequest{SessionId: s.ID(), EventId: second})
	check(t, cut.GetEventsRemoved() > 0, "nothing was removed")
	s.Ask("third words")
	body := string(r.LastModelRequest().Body)
	check(t, strings.Contains(body, "first words") && !strings.Contains(body, "second words"),
		"the model is told what was cut off")
	points := harness.Did(r.Fixture, history.ListRewindPoints,
		&cliv1.SessionHistoryServiceListRewindPointsRequest{SessionId: s.ID()})
	t.Logf("rewind points: %v", points)
	harness.Did(r.Fixture, history.Compact, &cliv1.SessionHistoryServiceCompactRequest{SessionId: s.ID()})
	messages := harness.Did(r.Fixture, cliv1.NewSessionServiceClient(r.conn).GetMessages,
		&cliv1.SessionServiceGetMessagesRequest{SessionId: s.ID()})
	check(t,
		slices.ContainsFunc(messages.GetEvents(),
			func(e *cliv1.SessionEvent) bool { return e.GetEventType() == "session.compaction_complete" }),
		"no compaction in the history")
}

func sampleQueue(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	queue, session := cliv1.NewSessionQueueServiceClient(r.conn), cliv1.NewSessionServiceClient(r.conn)
	harness.Did(r.Fixture, queue.SetDrainPaused,
		&cliv1.SessionQueueServiceSetDrainPausedRequest{SessionId: s.ID(), Paused: true})
	for _, prompt := range []string{"one", "two"} {
		harness.Did(r.Fixture, session.Send, &cliv1.SessionServiceSendRequest{SessionId: s.ID(), Prompt: prompt})
	}
	items := harness.Did(r.Fixture, queue.PendingItems,
		&cliv1.SessionQueueServicePendingItemsRequest{SessionId: s.ID()}).GetItems()
	check(t, len(items) == 2, "queued: %v", items)
	harness.Did(r.Fixture, queue.RemoveMostRecent, &cliv1.SessionQueueServiceRemoveMostRecentRequest{SessionId: s.ID()})
	items = harness.Did(r.Fixture, queue.PendingItems,
		&cliv1.SessionQueueServicePendingItemsRequest{SessionId: s.ID()}).GetItems()
	check(t, len(items) == 1 && items[0].GetDisplayText() == "one", "queued, without the last: %v", items)
	harness.Did(r.Fixture, queue.SetDrainPaused,
		&cliv1.SessionQueueServiceSetDrainPausedRequest{SessionId: s.ID(), Paused: false})
	harness.Did(r.Fixture, queue.Clear, &cliv1.SessionQueueServiceClearRequest{SessionId: s.ID()})
	items = harness.Did(r.Fixture, queue.PendingItems,
		&cliv1.SessionQueueServicePendingItemsRequest{SessionId: s.ID()}).GetItems()
	check(t, len(items) == 0, "queued: %v", items)
}

func sampleUsage(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	s.Ask("hello")
	usage := harness.Did(r.Fixture, cliv1.NewSessionUsageServiceClient(r.conn).GetMetrics,
		&cliv1.SessionUsageServiceGetMetricsRequest{SessionId: s.ID()})
	check(t, usage.GetTotalUserRequests() == 1 && len(usage.GetModelMetrics()) == 1, "usage: %v", usage)
	meta := cliv1.NewSessionMetadataServiceClient(r.conn)
	snapshot := harness.Did(r.Fixture, meta.Snapshot, &cliv1.SessionMetadataServiceSnapshotRequest{SessionId: s.ID()})
	check(t, snapshot.GetSessionId() == s.ID() && snapshot.GetWorkingDirectory() == r.Dir, "snapshot: %v", snapshot)
	check(t,
		!harness.Did(r.Fixture, meta.IsProcessing,
			&cliv1.SessionMetadataServiceIsProcessingRequest{SessionId: s.ID()}).GetProcessing(), "it is processing")
	check(t,
		!harness.Did(r.Fixture, meta.Activity,
			&cliv1.SessionMetadataServiceActivityRequest{SessionId: s.ID()}).GetHasActiveWork(), "it has work")
	harness.Did(r.Fixture, meta.ContextInfo,
		&cliv1.SessionMetadataServiceContextInfoRequest{SessionId: s.ID(), PromptTokenLimit: 1000,
			OutputTokenLimit: 1000})
	other := t.TempDir()
	harness.Did(r.Fixture, meta.SetWorkingDirectory,
		&cliv1.SessionMetadataServiceSetWorkingDirectoryRequest{SessionId: s.ID(), WorkingDirectory: other})
	snapshot = harness.Did(r.Fixture, meta.Snapshot, &cliv1.SessionMetadataServiceSnapshotRequest{SessionId: s.ID()})
	check(t, snapshot.GetWorkingDirectory() == other, "snapshot: %v", snapshot)
}

func samplePermissions(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	permissions, paths := cliv1.NewSessionPermissionsServiceClient(r.conn), cliv1.NewSessionPermissionsPathsServiceClient(r.conn)
	harness.Did(r.Fixture, permissions.SetApproveAll,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: s.ID(), Enabled: true})
	harness.Did(r.Fixture, permissions.SetApproveAll,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: s.ID(), Enabled: false})
	extra := harness.RealDir(t)
	harness.Did(r.Fixture, paths.Add, &cliv1.SessionPermissionsPathsServiceAddRequest{SessionId: s.ID(), Path: extra})
	within := func(session string) bool {
		return harness.Did(r.Fixture, paths.IsPathWithinAllowedDirectories,
			&cliv1.SessionPermissionsPathsServiceIsPathWithinAllowedDirectoriesRequest{
				SessionId: session, Path: filepath.Join(extra, "x"),
			}).GetAllowed()
	}
	check(t, within(s.ID()), "the added path is not allowed")
	list := harness.Did(r.Fixture, paths.List, &cliv1.SessionPermissionsPathsServiceListRequest{SessionId: s.ID()})
	check(t, slices.Contains(list.GetDirectories(), extra) && list.GetPrimary() == r.Dir, "paths: %v", list)
	harness.Did(r.Fixture, permissions.ModifyRules, &cliv1.SessionPermissionsServiceModifyRulesRequest{
		SessionId: s.ID(), Scope: cliv1.PermissionsModifyRulesScope_PERMISSIONS_MODIFY_RULES_SCOPE_SESSION,
		Add: []*cliv1.PermissionRule{{Kind: "shell", Argument: proto.String("echo")}},
	})
	pending := harness.Did(r.Fixture, permissions.PendingRequests,
		&cliv1.SessionPermissionsServicePendingRequestsRequest{SessionId: s.ID()})
	check(t, len(pending.GetItems()) == 0, "pending: %v", pending)
	harness.Did(r.Fixture, permissions.ResetSessionApprovals,
		&cliv1.SessionPermissionsServiceResetSessionApprovalsRequest{SessionId: s.ID()})
}

func sampleCommands(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	commands := cliv1.NewSessionCommandsServiceClient(r.conn)
	list := harness.Did(r.Fixture, commands.List,
		&cliv1.SessionCommandsServiceListRequest{SessionId: s.ID(), IncludeBuiltins: proto.Bool(true)})
	check(t, len(list.GetCommands()) > 5, "commands: %v", list)
	harness.Did(r.Fixture, commands.Invoke,
		&cliv1.SessionCommandsServiceInvokeRequest{SessionId: s.ID(), Name: "rename",
			Input: proto.String("by command")})
	name := harness.Did(r.Fixture, cliv1.NewSessionNameServiceClient(r.conn).Get,
		&cliv1.SessionNameServiceGetRequest{SessionId: s.ID()})
	check(t, name.GetName() == "by command", "the name is %v", name)
	shell := harness.Did(r.Fixture, cliv1.NewSessionShellServiceClient(r.conn).ExecuteUserRequested,
		&cliv1.SessionShellServiceExecuteUserRequestedRequest{
			SessionId: s.ID(), RequestId: "r1", Command: "echo done > made; echo said",
		})
	text, err := os.ReadFile(filepath.Join(r.Dir, "made"))
	check(t, err == nil && string(text) == "done\n" && strings.Contains(shell.GetOutput(), "said"),
		"made is %q, %v; the output %v", text, err, shell)
	tools := harness.Did(r.Fixture, cliv1.NewSessionToolsServiceClient(r.conn).GetCurrentMetadata,
		&cliv1.SessionToolsServiceGetCurrentMetadataRequest{SessionId: s.ID()})
	t.Logf("%d tools", len(tools.GetTools().GetItems()))
	harness.Did(r.Fixture, cliv1.NewSessionInstructionsServiceClient(r.conn).GetSources,
		&cliv1.SessionInstructionsServiceGetSourcesRequest{SessionId: s.ID()})
	harness.Did(r.Fixture, cliv1.NewSessionScheduleServiceClient(r.conn).List,
		&cliv1.SessionScheduleServiceListRequest{SessionId: s.ID()})
}

func sampleEventLog(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	log := cliv1.NewSessionEventLogServiceClient(r.conn)
	tail := harness.Did(r.Fixture, log.Tail, &cliv1.SessionEventLogServiceTailRequest{SessionId: s.ID()})
	type answer struct {
		reply *cliv1.SessionEventLogServiceReadResponse
		err   error
	}
	waiting := make(chan answer, 1)
	go func() {
		reply, err := log.Read(r.Ctx,
			&cliv1.SessionEventLogServiceReadRequest{SessionId: s.ID(), Cursor: proto.String(tail.GetCursor()),
				WaitMs: proto.Int64(30_000)})
		waiting <- answer{reply, err}
	}()
	s.Ask("wake up")
	got := <-waiting
	check(t, got.err == nil && len(got.reply.GetEvents()) > 0, "the read that waited: %v, %v", got.reply, got.err)
	all := harness.Did(r.Fixture, log.Read,
		&cliv1.SessionEventLogServiceReadRequest{SessionId: s.ID(), Max: proto.Int64(1000)})
	check(t,
		slices.ContainsFunc(all.GetEvents(),
			func(e *cliv1.SessionEvent) bool { return e.GetUserMessage().GetContent() == "wake up" }),
		"no such message")
	handle := harness.Did(r.Fixture, log.RegisterInterest,
		&cliv1.SessionEventLogServiceRegisterInterestRequest{SessionId: s.ID(),
			EventType: "sampling.requested"}).GetHandle()
	check(t,
		harness.Did(r.Fixture, log.ReleaseInterest,
			&cliv1.SessionEventLogServiceReleaseInterestRequest{SessionId: s.ID(), Handle: handle}).GetSuccess(),
		"not released")
}

// sampleErrors: an exact caller gets the CLI's own error, a tidy one its reason.
func sampleErrors(t *testing.T, r *sample) {
	s := r.Session(r.Options())
	mode := cliv1.NewSessionModeServiceClient(r.conn)
	_, err := mode.Set(r.Ctx, &cliv1.SessionModeServiceSetRequest{SessionId: s.ID(), JsonExtra: `{"mode":"bogus"}`})
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN)
	_, err = mode.Set(exactly(r.Ctx),
		&cliv1.SessionModeServiceSetRequest{SessionId: s.ID(), JsonExtra: `{"mode":"bogus"}`})
	var rpc *bridgev1.JsonRpcError
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*bridgev1.JsonRpcError); ok {
			rpc = d
		}
	}
	check(t, rpc.GetCode() == -32603 && strings.Contains(rpc.GetMessage(), "unknown variant `bogus`"),
		"the CLI's error is %v", rpc)
	_, err = cliv1.NewRuntimeServiceClient(r.conn).Shutdown(r.Ctx, &cliv1.RuntimeServiceShutdownRequest{})
	harness.WantError(t, err, codes.Unimplemented, bridgev1.ErrorReason_ERROR_REASON_METHOD_REFUSED)
	_, err = cliv1.NewInternalGlobalStateServiceClient(r.conn).Load(r.Ctx,
		&cliv1.InternalGlobalStateServiceLoadRequest{})
	check(t, status.Code(err) == codes.Unimplemented, "an internal method: %v", err)
}

// sampleLife: a session that was made by the CLI's own methods is the bridge's like any
// other.
func sampleLife(t *testing.T, r *sample) {
	session := cliv1.NewSessionServiceClient(r.conn)
	config := r.Options().Config
	made := harness.Did(r.Fixture, session.Create, &cliv1.SessionServiceCreateRequest{
		Model: config.Model, Provider: config.Provider, WorkingDirectory: config.WorkingDirectory,
	})
	r.Own(made.GetSessionId())
	s := &harness.TestSession{Session: r.Client.Session(made.GetSessionId()), Fixture: r.Fixture}
	s.Ask("hello")
	harness.Did(r.Fixture, session.Destroy, &cliv1.SessionServiceDestroyRequest{SessionId: s.ID()})
	_, err := session.GetMessages(r.Ctx, &cliv1.SessionServiceGetMessagesRequest{SessionId: s.ID()})
	harness.WantError(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	harness.Did(r.Fixture, session.Resume,
		&cliv1.SessionServiceResumeRequest{SessionId: s.ID(), Provider: config.Provider})
	sent := harness.Did(r.Fixture, session.Send,
		&cliv1.SessionServiceSendRequest{SessionId: s.ID(), Prompt: "again", Wait: proto.Bool(true)})
	check(t, sent.GetMessageId() != "" && strings.Contains(string(r.LastModelRequest().Body), "again"), "sent: %v",
		sent)
	harness.Did(r.Fixture, session.Abort, &cliv1.SessionServiceAbortRequest{SessionId: s.ID()})
	check(t, harness.Did(r.Fixture, session.Delete, &cliv1.SessionServiceDeleteRequest{SessionId: s.ID()}).GetSuccess(),
		"not deleted")
}
