package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
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
		ask: func(st *stage, s *copilot.Session) func() string {
			got := st.invoke(s, "session.skills.list", map[string]any{})
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
			onUser("ask", call("skill", map[string]any{"skill": "juggle"})),
			{When: offlinemodel.When{User: "BALLS"}, Reply: steps(say("balls are thrown"))},
			onResult("skill", say("told: {{tool_result}}")),
		},
		ask: func(st *stage, s *copilot.Session) func() string {
			wait := st.goTurn(s, "ask")
			st.settle(s, juggling)
			return func() string { return wait().GetText() }
		},
		request: `name:"juggle"`,
		accept:  &cliv1.InternalCallbackSkillProviderServiceReadResponse{Markdown: proto.String("Throw three BALLS.")}, accepted: "balls",
		decline: &cliv1.InternalCallbackSkillProviderServiceReadResponse{}, declined: "provider may be unavailable",
		silent: "provider may be unavailable",
	},
	"task cancel": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_TASK_CANCEL, since: "1.0.92",
		ask: func(st *stage, s *copilot.Session) func() string {
			var registered struct{ Task struct{ ID string } }
			text := st.invoke(s, "session.tasks.register", map[string]any{
				"type": "client", "clientTaskId": "mine", "description": "Work elsewhere.", "cancellable": true,
			})()
			if err := json.Unmarshal([]byte(text), &registered); err != nil {
				st.t.Fatalf("registered as %s", text)
			}
			return st.invoke(s, "session.tasks.cancel", map[string]any{"id": registered.Task.ID})
		},
		request: `client_task_id:"mine"`,
		accept:  &cliv1.CallbackTasksServiceCancelResponse{Cancelled: true}, accepted: `"cancelled":true`,
		decline: &cliv1.CallbackTasksServiceCancelResponse{}, declined: `"cancelled":false`,
		silent: `"cancelled":false`,
	},
}

// extensionLaunch is apart: it is asked of whoever answers for the whole process.
var extensionLaunch = question{
	kind: bridgev1.CallbackKind_CALLBACK_KIND_EXTENSION_LAUNCH,
	host: hostConfig{
		raw: true, env: map[string]string{"COPILOT_CLI_ENABLED_FEATURE_FLAGS": "EXTENSIONS"},
		change: func(c *app.Config) { c.ExtensionLaunch = true },
	},
	config: func(_ *stage, c *cliv1.SessionConfig) {
		c.RequestExtensions, c.EnableConfigDiscovery = proto.Bool(true), proto.Bool(true)
	},
	ask: func(st *stage, s *copilot.Session) func() string {
		if out, err := exec.CommandContext(st.ctx, "git", "init", "-q", st.dir).CombinedOutput(); err != nil {
			st.t.Fatalf("git: %v: %s", err, out)
		}
		st.write(".github/extensions/demo/extension.mjs", "process.exit(0)")
		got := st.invoke(s, "session.extensions.reload", map[string]any{})
		return func() string {
			got()
			if st.exists("launched") {
				return "launched"
			}
			return "not launched"
		}
	},
	request: `name:"demo"`,
	answer: func(cb *bridgev1.Callback) proto.Message {
		dir, _, _ := strings.Cut(cb.GetExtensionLaunch().GetModulePath(), "/.github")
		return &cliv1.CallbackExtensionLaunchProviderServiceResolveResponse{Launch: &cliv1.ExtensionLaunchProfile{
			Executable: "/bin/sh", Args: []string{"-c", `touch "` + dir + `/launched"`}, Env: map[string]string{"MINE": "1"},
		}}
	},
	accepted: "launched",
	decline:  failing, declined: "not launched",
	silent: "not launched",
}

func TestClientSide(t *testing.T) {
	t.Parallel()
	host := newOwnRig(t, echo, hostConfig{raw: true}).host
	for name, q := range clientside {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}

func TestExtensionLaunch(t *testing.T) {
	t.Parallel()
	skipWithoutCLI(t)
	extensionLaunch.test(t, nil)
}
