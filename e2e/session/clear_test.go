package session

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// cleared is a field of a configuration that a resume clears.
type cleared struct {
	// set gives the field its value, and what the value needs.
	set func(t *testing.T, r *harness.Fixture, c *cliv1.SessionConfig)
	// shows reports whether the CLI works with the value. It is called after a turn.
	shows func(s *harness.TestSession) bool
	// absent is what shows returns without the value.
	absent bool
	// extra is the empty value in json_extra; "" if json_extra cannot clear the field.
	extra string
}

func hasTool(name string) func(*harness.TestSession) bool {
	return func(s *harness.TestSession) bool {
		q := s.Fixture.LastModelRequest()
		return slices.Contains(q.ToolNames(), name)
	}
}

// told reports whether the last request to the model has a text outside of the conversation.
func told(text string) func(*harness.TestSession) bool {
	return func(s *harness.TestSession) bool {
		q := s.Fixture.LastModelRequest()
		var body struct {
			Messages []struct{ Role, Content json.RawMessage }
			Tools    json.RawMessage
		}
		if err := json.Unmarshal(q.Body, &body); err != nil {
			s.Fixture.T.Fatal(err)
		}
		said := string(body.Tools)
		for _, m := range body.Messages {
			if string(m.Role) == `"system"` {
				said += string(m.Content)
			}
		}
		return strings.Contains(said, text)
	}
}

// skillOf writes a skill and returns the directory of skills.
func skillOf(r *harness.Fixture) string {
	r.Write("skills/probe/SKILL.md", "---\nname: probe\ndescription: Probes.\n---\nProbe.\n")
	return filepath.Join(r.Dir, "skills")
}

// skillEnabled reports whether the session has the skill of skillOf, enabled.
func skillEnabled(s *harness.TestSession) bool {
	list, err := cliv1.NewSessionSkillsServiceClient(s.Fixture.Client.Conn()).List(s.Fixture.Ctx,
		&cliv1.SessionSkillsServiceListRequest{SessionId: s.ID()})
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return slices.ContainsFunc(list.GetSkills(), func(k *cliv1.Skill) bool {
		return k.GetName() == "probe" && k.GetEnabled()
	})
}

func hasAgent(s *harness.TestSession) bool {
	list, err := cliv1.NewSessionAgentServiceClient(s.Fixture.Client.Conn()).List(s.Fixture.Ctx,
		&cliv1.SessionAgentServiceListRequest{SessionId: s.ID()})
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return slices.ContainsFunc(list.GetAgents(), func(a *cliv1.AgentInfo) bool { return a.GetName() == "prober" })
}

func hasCommand(s *harness.TestSession) bool {
	list, err := cliv1.NewSessionCommandsServiceClient(s.Fixture.Client.Conn()).List(s.Fixture.Ctx,
		&cliv1.SessionCommandsServiceListRequest{SessionId: s.ID()})
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return slices.ContainsFunc(list.GetCommands(), func(c *cliv1.SlashCommandInfo) bool { return c.GetName() == "probe" })
}

func hasCanvas(s *harness.TestSession) bool {
	list, err := cliv1.NewSessionCanvasServiceClient(s.Fixture.Client.Conn()).List(s.Fixture.Ctx,
		&cliv1.SessionCanvasServiceListRequest{SessionId: s.ID()})
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return len(list.GetCanvases()) > 0
}

// mcpRuns reports whether the last MCP server that was started runs.
func mcpRuns(s *harness.TestSession) bool {
	text, err := os.ReadFile(filepath.Join(s.Fixture.Dir, "starts"))
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	started := strings.Fields(string(text))
	pid, err := strconv.ParseInt(started[len(started)-1], 10, 64)
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return harness.Alive(pid)
}

// clearedFields are fields that the CLI distinguishes when they are empty and when they are absent.
var clearedFields = map[string]cleared{
	"mcp_servers": {extra: `{"mcpServers":{}}`, shows: hasTool("loud-shout"),
		set: func(t *testing.T, r *harness.Fixture, c *cliv1.SessionConfig) {
			server := harness.MCPServer(t)
			server.GetStdio().Env[harness.MCPStartsEnv] = filepath.Join(r.Dir, "starts")
			c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"loud": server}
		}},
	"custom_agents": {extra: `{"customAgents":[]}`, shows: hasAgent,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.CustomAgents = []*cliv1.CustomAgentConfig{{Name: "prober", Prompt: "Probe."}}
		}},
	"tools": {extra: `{"tools":[]}`, shows: hasTool("probe"),
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.Tools = []*cliv1.ToolDefinition{{Name: "probe", Description: "Probes."}}
		}},
	"skill_directories": {extra: `{"skillDirectories":[]}`, shows: skillEnabled,
		set: func(_ *testing.T, r *harness.Fixture, c *cliv1.SessionConfig) {
			c.SkillDirectories = []string{skillOf(r)}
		}},
	"disabled_skills": {extra: `{"disabledSkills":[]}`, shows: skillEnabled, absent: true,
		set: func(_ *testing.T, r *harness.Fixture, c *cliv1.SessionConfig) {
			c.SkillDirectories, c.DisabledSkills = []string{skillOf(r)}, []string{"probe"}
		}},
	"instruction_directories": {extra: `{"instructionDirectories":[]}`, shows: told("Probe often."),
		set: func(_ *testing.T, r *harness.Fixture, c *cliv1.SessionConfig) {
			r.Write("rules/.github/instructions/probe.instructions.md", "---\napplyTo: \"**\"\n---\nProbe often.\n")
			c.InstructionDirectories, c.SkipCustomInstructions = []string{filepath.Join(r.Dir, "rules")}, nil
		}},
	"excluded_builtin_agents": {extra: `{"excludedBuiltinAgents":[]}`, shows: told("explore"), absent: true,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.ExcludedBuiltinAgents = []string{"explore"}
		}},
	"excluded_tools": {extra: `{"excludedTools":[]}`, shows: hasTool("glob"), absent: true,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.ExcludedTools = &cliv1.StringList{Items: []string{"glob"}}
		}},
	"available_tools": {shows: hasTool("glob"), absent: true,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.AvailableTools = &cliv1.StringList{Items: []string{"view"}}
		}},
	"commands": {extra: `{"commands":[]}`, shows: hasCommand,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.Commands = []*cliv1.CommandDeclaration{{Name: "probe", Description: "Probes."}}
		}},
	"canvases": {extra: `{"canvases":[]}`, shows: hasCanvas,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.Canvases = []*cliv1.CanvasDeclaration{{Id: "probe", DisplayName: "Probe", Description: "Probes."}}
			c.RequestCanvasRenderer = proto.Bool(true)
		}},
	"system_message": {extra: `{"systemMessage":{}}`, shows: told("Probe gently."),
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.SystemMessage = &cliv1.SystemMessageConfig{Content: proto.String("Probe gently.")}
		}},
	"organization_custom_instructions": {shows: told("Probe as one."),
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.OrganizationCustomInstructions = proto.String("Probe as one.")
			c.SkipCustomInstructions = nil
		}},
	"default_agent": {shows: hasTool("glob"), absent: true,
		set: func(_ *testing.T, _ *harness.Fixture, c *cliv1.SessionConfig) {
			c.DefaultAgent = &cliv1.DefaultAgentConfig{ExcludedTools: []string{"glob"}}
		}},
}

// A resume clears a field of a loaded session, by its mask or by json_extra. The field stays empty when the session is
// unloaded and loaded again, and a session that began with it can have it again.
func TestClearedFields(t *testing.T) {
	t.Parallel()
	for name, field := range clearedFields {
		for how, request := range map[string]string{
			"mask": `{"config": {}, "updateMask": "` + jsonPath(name) + `"}`, "json_extra": extraRequest(field.extra),
		} {
			if request == "" {
				continue
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				r := harness.NewFixture(t, harness.Echo)
				opts := r.Options(func(c *cliv1.SessionConfig) { field.set(t, r, c) })
				s := r.Session(opts)
				want := func(when string, value bool) {
					t.Helper()
					s.Ask(when)
					if value && name == "mcp_servers" { // it starts in the background
						r.Eventually("the MCP server starts", func() bool {
							if field.shows(s) {
								return true
							}
							s.Ask(when + " again")
							return false
						})
					}
					if field.shows(s) != (value != field.absent) {
						t.Errorf("%s, the field has its value: %v", when, !value)
					}
				}
				want("at first", true)
				resume(s, request)
				want("after the resume", false)
				if name == "mcp_servers" {
					r.Eventually("the MCP server ends", func() bool { return !mcpRuns(s) })
				}
				unload(s)
				want("after a load", false)
				again := &cliv1.SessionConfig{}
				field.set(t, r, again)
				if name != "excluded_builtin_agents" { // one more resume is enough for the others
					resumeWith(s, again)
					unload(s)
					want("set again", true)
				}
			})
		}
	}
}

// jsonPath returns a field's path as it is in a mask's JSON form.
func jsonPath(name string) string {
	text, _ := protojson.Marshal(&fieldmaskpb.FieldMask{Paths: []string{name}}) // names of fields encode
	return strings.Trim(string(text), `"`)
}

func extraRequest(extra string) string {
	if extra == "" {
		return ""
	}
	return `{"config": {"jsonExtra": ` + strconv.Quote(extra) + `}}`
}

// resume resumes a session by a request in the form of grpcurl.
func resume(s *harness.TestSession, request string) {
	s.Fixture.T.Helper()
	q := &bridgev1.ResumeSessionRequest{}
	if err := protojson.Unmarshal([]byte(request), q); err != nil {
		s.Fixture.T.Fatal(err)
	}
	q.SessionId = s.ID()
	if _, err := s.Fixture.Client.Sessions().ResumeSession(s.Fixture.Ctx, q); err != nil {
		s.Fixture.T.Fatal(err)
	}
}

func resumeWith(s *harness.TestSession, config *cliv1.SessionConfig) {
	s.Fixture.T.Helper()
	q := &bridgev1.ResumeSessionRequest{SessionId: s.ID(), Config: config}
	if _, err := s.Fixture.Client.Sessions().ResumeSession(s.Fixture.Ctx, q); err != nil {
		s.Fixture.T.Fatal(err)
	}
}

// unload unloads a session from its CLI process.
func unload(s *harness.TestSession) {
	s.Fixture.T.Helper()
	if _, err := s.Fixture.Client.ExportSession(s.Fixture.Ctx, s.ID(), io.Discard); err != nil {
		s.Fixture.T.Fatal(err)
	}
}

// The first frame of Attach clears fields, and leaves the rest of the configuration as it is.
func TestClearedByAttach(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.Tools = []*cliv1.ToolDefinition{{Name: "probe", Description: "Probes."}}
		c.SystemMessage = &cliv1.SystemMessageConfig{Content: proto.String("Probe gently.")}
		c.ExcludedTools = &cliv1.StringList{Items: []string{"glob"}}
	}))
	s.Ask("hello")
	other := r.Resume(r.Dial(), s.ID(), copilot.SessionOptions{Clear: []string{"tools", "system_message"}})
	other.Ask("hello again")
	for what, wrong := range map[string]bool{
		"the tool": hasTool("probe")(other), "the system message": told("Probe gently.")(other),
		"an excluded tool": hasTool("glob")(other),
	} {
		if wrong {
			t.Errorf("the model has %s", what)
		}
	}
}

// A creation clears nothing of its own: fields that are listed and empty reach the CLI as such.
func TestClearedAtCreation(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	opts := r.Options()
	opts.Clear = []string{"mcp_servers", "tools", "custom_agents", "system_message", "model", "reasoning_effort"}
	s := r.Session(opts)
	if got := s.Ask("hello"); got != "You said: hello" {
		t.Errorf("the answer is %q", got)
	}
}

// What cannot be cleared is refused, and changes nothing.
func TestClearRefused(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("probe", harness.Call("probe", nil)), harness.OnResult("probe", harness.Say("done")))
	hold := harness.NewHold()
	opts := st.Options(func(c *cliv1.SessionConfig) {
		c.SystemMessage = &cliv1.SystemMessageConfig{Content: proto.String("Probe gently.")}
		c.SkillDirectories = []string{skillOf(st.Fixture)}
	})
	opts.Tools, opts.OnPermission = []copilot.Tool{hold.Tool("probe", "probed")}, copilot.ApproveAll
	s := st.Session(opts)
	clearFields := func(paths ...string) error {
		_, err := s.Fixture.Client.Sessions().ResumeSession(st.Ctx, &bridgev1.ResumeSessionRequest{
			SessionId: s.ID(), Config: &cliv1.SessionConfig{ClientName: proto.String("refused")},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
		return copilot.FromError(err)
	}
	const field = "update_mask"
	for _, path := range []string{
		"colour", "mcpServers", "system_message.content", "", "json_extra", "model", "working_directory",
	} {
		harness.WantField(t, clearFields("skill_directories", path), codes.InvalidArgument,
			bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, field)
	}
	s.Submit("probe")
	<-hold.Asked
	harness.WantField(t, clearFields("system_message"), codes.FailedPrecondition,
		bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY, field)
	if !skillEnabled(s) {
		t.Error("a refused request cleared a field")
	}
	if err := clearFields("skill_directories"); err != nil {
		t.Errorf("a field that needs no rest: %v", err)
	}
	if skillEnabled(s) {
		t.Error("the skill is still there")
	}
	hold.Release()
	s.WaitFor("session.idle")
	s.Ask("hello")
	if !told("Probe gently.")(s) {
		t.Error("a refused request cleared the system message")
	}
	if err := clearFields("system_message"); err != nil {
		t.Errorf("at rest: %v", err)
	}
	s.Ask("hello")
	if told("Probe gently.")(s) {
		t.Error("the system message is still there")
	}
}
