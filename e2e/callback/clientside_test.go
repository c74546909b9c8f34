package callback

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// juggling is a catalogue of one skill.
var juggling = &cliv1.InternalCallbackSkillProviderServiceListResponse{
	Skills: []*cliv1.SkillProviderDescriptor{{Name: "juggle", Description: "How to juggle."}},
}

// clientside are the kinds about what callers have: skills, tasks, ways to start extensions.
var clientside = map[string]question{
	"skill list": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_SKILL_LIST, since: "1.0.92",
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			got := invoke(st, s, "session.skills.list", map[string]any{})
			return func() string {
				if text := got(); strings.Contains(text, `"juggle"`) || !strings.Contains(text, `"skills"`) {
					return text
				}
				return "without it"
			}
		},
		request: `skill_list:{`,
		accept:  juggling, accepted: "How to juggle.",
		decline: failing, declined: "without it",
		wrong:  &cliv1.InternalCallbackSkillProviderServiceReadResponse{Markdown: proto.String("no list")},
		silent: "without it",
	},
	"skill read": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_SKILL_READ, since: "1.0.92",
		also: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_SKILL_LIST},
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("skill", map[string]any{"skill": "juggle"})),
			{When: offlinemodel.When{User: "BALLS"}, Reply: harness.Steps(harness.Say("balls are thrown"))},
			harness.OnResult("skill", harness.Say("told: {{tool_result}}")),
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, "ask")
			settle(st, s, juggling)
			return func() string { return wait().Text() }
		},
		request:  `name:"juggle"`,
		accept:   &cliv1.InternalCallbackSkillProviderServiceReadResponse{Markdown: proto.String("Throw three BALLS.")},
		accepted: "balls",
		decline:  &cliv1.InternalCallbackSkillProviderServiceReadResponse{}, declined: "provider may be unavailable",
		silent: "provider may be unavailable",
	},
	"task cancel": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_TASK_CANCEL, since: "1.0.92",
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			var registered struct{ Task struct{ ID string } }
			text := invoke(st, s, "session.tasks.register", map[string]any{
				"type": "client", "clientTaskId": "mine", "description": "Work elsewhere.", "cancellable": true,
			})()
			if err := json.Unmarshal([]byte(text), &registered); err != nil {
				st.T.Fatalf("registered as %s", text)
			}
			return invoke(st, s, "session.tasks.cancel", map[string]any{"id": registered.Task.ID})
		},
		request: `client_task_id:"mine"`,
		accept:  &cliv1.CallbackTasksServiceCancelResponse{Cancelled: true}, accepted: `"cancelled":true`,
		decline: &cliv1.CallbackTasksServiceCancelResponse{}, declined: `"cancelled":false`,
		silent: `"cancelled":false`,
	},
}

// extensionLaunch is apart: its participant answers for the whole process.
var extensionLaunch = question{
	kind: bridgev1.CallbackKind_CALLBACK_KIND_EXTENSION_LAUNCH,
	host: harness.HostConfig{
		Raw: true, Env: map[string]string{"COPILOT_CLI_ENABLED_FEATURE_FLAGS": "EXTENSIONS"},
		Change: func(c *app.Config) { c.ExtensionLaunch = true },
	},
	config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
		c.RequestExtensions, c.EnableConfigDiscovery = proto.Bool(true), proto.Bool(true)
	},
	ask: func(st *harness.Scripted, s *copilot.Session) func() string {
		if out, err := exec.CommandContext(st.Ctx, "git", "init", "-q", st.Dir).CombinedOutput(); err != nil {
			st.T.Fatalf("git: %v: %s", err, out)
		}
		st.Write(".github/extensions/demo/extension.mjs", "process.exit(0)")
		got := invoke(st, s, "session.extensions.reload", map[string]any{})
		return func() string {
			got()
			if st.Exists("launched") {
				return "launched"
			}
			return "not launched"
		}
	},
	request: `name:"demo"`,
	answer: func(cb *bridgev1.Callback) proto.Message {
		dir, _, _ := strings.Cut(cb.GetExtensionLaunch().GetModulePath(), "/.github")
		return &cliv1.CallbackExtensionLaunchProviderServiceResolveResponse{Launch: &cliv1.ExtensionLaunchProfile{
			Executable: "/bin/sh", Args: []string{"-c", `touch "` + dir + `/launched"`},
			Env: map[string]string{"MINE": "1"},
		}}
	},
	accepted: "launched",
	decline:  failing, declined: "not launched",
	silent: "not launched",
}

func TestClientSide(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Raw: true}).Host
	for name, q := range clientside {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}

func TestExtensionLaunch(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	extensionLaunch.test(t, nil)
}
