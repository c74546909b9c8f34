package session

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// system asks something in a session with a system message and returns the model's messages.
func system(r *harness.Fixture, message *cliv1.SystemMessageConfig) string {
	r.T.Helper()
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.SystemMessage = message }))
	s.Ask("hello")
	return r.LastModelRequest().System
}

func TestSessionSystemMessageAppend(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	const words = "End every answer with: Have a nice day!"
	got := system(r, &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_APPEND, Content: proto.String(words),
	})
	if !strings.Contains(got, words) {
		t.Error("the words were not appended")
	}
	if !strings.Contains(got, "GitHub") || strings.Index(got, words) < len(got)/2 {
		t.Error("the words do not follow the CLI's own system message")
	}
}

func TestSessionSystemMessageReplace(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	const words = "You are a lighthouse keeper.\nAnswer in one word."
	got := system(r, &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE, Content: proto.String(words),
	})
	if got != words {
		t.Errorf("system prompt is %q, want exactly %q", got, words)
	}
}

func TestSessionSystemMessageCustomize(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	// Marks of the sections in the CLI's own system message.
	const tone, changes, limits = "# Tone and style", "<code_change_instructions>", "<environment_limitations>"
	plain := system(r, nil)
	for _, mark := range []string{tone, changes, limits} {
		if !strings.Contains(plain, mark) {
			t.Fatalf("the CLI's own system message has no %q", mark)
		}
	}
	section := func(action cliv1.SystemMessageSectionAction, content string) *cliv1.SystemMessageSectionOverride {
		o := &cliv1.SystemMessageSectionOverride{Action: action}
		if content != "" {
			o.Content = proto.String(content)
		}
		return o
	}
	got := system(r, &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_CUSTOMIZE,
		Sections: map[string]*cliv1.SystemMessageSectionOverride{
			"tone": section(cliv1.SystemMessageSectionAction_SYSTEM_MESSAGE_SECTION_ACTION_REPLACE,
				"Speak like a sailor."),
			"code_change_rules": section(cliv1.SystemMessageSectionAction_SYSTEM_MESSAGE_SECTION_ACTION_REMOVE, ""),
			"safety": section(cliv1.SystemMessageSectionAction_SYSTEM_MESSAGE_SECTION_ACTION_APPEND,
				"Mind the rocks."),
		},
		Content: proto.String("Fair winds."),
	})
	for _, want := range []string{"Speak like a sailor.", limits, "Mind the rocks.", "Fair winds."} {
		if !strings.Contains(got, want) {
			t.Errorf("the system prompt lacks %q", want)
		}
	}
	for _, gone := range []string{tone, changes} {
		if strings.Contains(got, gone) {
			t.Errorf("the system prompt still has %q", gone)
		}
	}
	if strings.Index(got, limits) > strings.Index(got, "Mind the rocks.") {
		t.Error("what was appended to a section comes before it")
	}
}

// offered asks something in a session and returns the tools the model was offered.
func offered(r *harness.Fixture, changes ...func(*cliv1.SessionConfig)) []string {
	r.T.Helper()
	s := r.Session(r.Options(changes...))
	s.Ask("hello")
	request := r.LastModelRequest()
	return request.ToolNames()
}

func TestSessionAvailableTools(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	got := offered(r, func(c *cliv1.SessionConfig) {
		c.AvailableTools = &cliv1.StringList{Items: []string{"view", "glob"}}
	})
	if want := []string{"glob", "view"}; !slices.Equal(sorted(got), want) {
		t.Errorf("the model was offered %q, want %q", got, want)
	}
}

func TestSessionNoAvailableTools(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	// An empty list is not the same as none.
	got := offered(r, func(c *cliv1.SessionConfig) { c.AvailableTools = &cliv1.StringList{} })
	if len(got) != 0 {
		t.Errorf("the model was offered %q, want nothing", got)
	}
}

func TestSessionExcludedTools(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	all := offered(r)
	got := offered(r, func(c *cliv1.SessionConfig) {
		c.ExcludedTools = &cliv1.StringList{Items: []string{"view", "web_fetch"}}
	})
	want := slices.DeleteFunc(sorted(all), func(name string) bool { return name == "view" || name == "web_fetch" })
	if len(want) != len(all)-2 {
		t.Fatalf("the CLI has tools %q", all)
	}
	if !slices.Equal(sorted(got), want) {
		t.Errorf("the model was offered %q, want %q", sorted(got), want)
	}
}

// delegating is a script in which the agent gives work to the custom agent poet.
const delegating = `
rules:
  - name: poet
    when: {system: "You are a poet"}
    reply: [{text: "Roses are red."}]
  - name: delegate
    when: {user: "Have a poem written"}
    reply:
      - tool_call:
          name: task
          arguments: {agent_type: poet, name: verse, description: Write a verse, prompt: "Write about roses", mode: sync}
  - name: relay
    when: {tool_result: {name: task}}
    reply: [{text: "The poet says: {{tool_result}}"}]
default: {reply: [{text: "ok"}]}`

func poet(c *cliv1.SessionConfig) {
	c.CustomAgents = append(c.CustomAgents, &cliv1.CustomAgentConfig{
		Name: "poet", DisplayName: proto.String("The Poet"), Description: proto.String("Writes verses."),
		Prompt: "You are a poet. Write verses.", Infer: proto.Bool(true),
		Tools: &cliv1.StringList{Items: []string{"grep", "view"}}, // CLI 1.0.81 demands them
	})
}

func TestSessionCustomAgents(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, delegating)
	opts := r.Options(poet)
	opts.OnPermission = copilot.ApproveAll
	s := r.Session(opts)
	if got := s.Ask("Have a poem written"); !strings.Contains(got, "Roses are red.") {
		t.Errorf("the agent says %q", got)
	}
	started := s.WaitFor("subagent.started").GetEvent().GetSubagentStarted()
	if started.GetAgentName() != "poet" || started.GetAgentDisplayName() != "The Poet" {
		t.Errorf("subagent.started says %v", started)
	}
	// CLI 1.0.89-0 sometimes completes the tool call, and the turn, before the agent.
	recorded := s.RecordedTypes("subagent.completed")
	harness.WantOrder(t, recorded, "tool.execution_start", "subagent.started", "subagent.completed")
	harness.WantOrder(t, recorded, "subagent.started", "tool.execution_complete", "assistant.message")
}

func TestSessionCustomAgentSelected(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, delegating)
	s := r.Session(r.Options(poet, func(c *cliv1.SessionConfig) { c.Agent = proto.String("poet") }))
	if got := s.Ask("hello"); got != "Roses are red." {
		t.Errorf("the selected agent says %q", got)
	}
}

func TestSessionDefaultAgentExcludedTools(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, delegating)
	opts := r.Options(poet, func(c *cliv1.SessionConfig) {
		c.DefaultAgent = &cliv1.DefaultAgentConfig{ExcludedTools: []string{"grep"}}
	})
	opts.OnPermission = copilot.ApproveAll
	r.Session(opts).Ask("Have a poem written")
	for _, req := range r.Model.ModelRequests() {
		// Only the default agent is without the tool.
		has, want := slices.Contains(req.ToolNames(), "grep"), req.Rule == "poet"
		if has != want {
			t.Errorf("request %d, answered by rule %q, was offered grep: %t, want %t", req.Number, req.Rule, has, want)
		}
	}
	if n := len(r.Model.ModelRequests()); n != 3 {
		t.Errorf("the model was asked %d times, want 3", n)
	}
}

func TestSessionSkills(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - when: {user: "tie a knot"}
    reply: [{tool_call: {name: skill, arguments: {skill: knots}}}]
default: {reply: [{text: "ok"}]}`)
	r.Write("skills/knots/SKILL.md", "---\nname: knots\ndescription: How to tie knots.\n---\nThe bowline is the king "+
		"of knots.\n")
	r.Write("skills/sails/SKILL.md", "---\nname: sails\ndescription: How to set sails.\n---\nReef early.\n")
	opts := r.Options(func(c *cliv1.SessionConfig) {
		c.EnableSkills = proto.Bool(true)
		c.SkillDirectories = []string{r.Dir + "/skills"}
		c.DisabledSkills = []string{"sails"}
	})
	opts.OnPermission = copilot.ApproveAll
	s := r.Session(opts)
	s.Ask("Please tie a knot")
	invoked := s.WaitFor("skill.invoked").GetEvent().GetSkillInvoked()
	if invoked.GetName() != "knots" || !strings.Contains(invoked.GetContent(), "bowline") {
		t.Errorf("skill.invoked says %v", invoked)
	}
	requests := r.Model.ModelRequests()
	if told := string(requests[0].Body); !strings.Contains(told, "How to tie knots.") ||
		strings.Contains(told, "How to set sails.") {
		t.Error("the model was not told of the skill, or of one that is disabled")
	}
	if told := string(r.LastModelRequest().Body); !strings.Contains(told, "The bowline is the king of knots.") {
		t.Error("the model did not get the skill")
	}
}
