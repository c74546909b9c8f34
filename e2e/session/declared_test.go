package session

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestDeclarationsThatBreakTurns: the CLI accepts each of them. The server refuses them at create, resume and join, and
// the session's turns go on.
func TestDeclarationsThatBreakTurns(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	const invalid, badField = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	var calls []badCall
	tool := func(name, schema, field string, reason bridgev1.ErrorReason) {
		tools := []*cliv1.ToolDefinition{{Name: name, Description: "d"}}
		if schema != "" {
			tools[0].ParametersJson = proto.String(schema)
		}
		config := &cliv1.SessionConfig{Provider: st.Provider(), Tools: tools}
		joining := &bridgev1.AttachStart{Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: s.ID()}, Tools: tools}
		calls = append(calls,
			badCall{"create with " + name + schema, unary(createSession, &bridgev1.CreateSessionRequest{Config: config}),
				codes.InvalidArgument, reason, "config." + field},
			badCall{"resume with " + name + schema, unary(resumeSession, &bridgev1.ResumeSessionRequest{SessionId: s.ID(), Config: config}),
				codes.InvalidArgument, reason, "config." + field},
			badCall{"join with " + name + schema, attaching(startFrame(joining)), codes.InvalidArgument, reason, "start." + field})
	}
	// Tools that the CLI always has, and tools that it has in some modes only: ask_user with a handler of questions,
	// exit_plan_mode in plan mode, apply_patch with some models, open_canvas with a renderer.
	for _, name := range []string{"view", "bash", "task", "skill", "sql", "ask_user", "exit_plan_mode", "apply_patch", "open_canvas"} {
		tool(name, "", "tools[0].name", invalid)
	}
	for _, schema := range []string{`{}`, `[]`, `{"type":"array"}`, `{"type":"object","properties":{"x":{"$ref":"#/$defs/none"}}}`} {
		tool("mine", schema, "tools[0].parameters_json", badField)
	}
	for _, name := range []string{"compact", "YOLO", "help"} {
		calls = append(calls, badCall{"command " + name, attaching(startFrame(&bridgev1.AttachStart{
			Session:  &bridgev1.AttachStart_JoinSessionId{JoinSessionId: s.ID()},
			Commands: []*cliv1.CommandDeclaration{{Name: name}},
		})), codes.InvalidArgument, badField, "start.commands[0].name"})
	}
	calls = append(calls, badCall{"an agent without a name", unary(createSession, &bridgev1.CreateSessionRequest{
		Config: &cliv1.SessionConfig{CustomAgents: []*cliv1.CustomAgentConfig{{Prompt: "p"}}},
	}), codes.InvalidArgument, badField, "config.custom_agents[0].name"})
	wantAllBad(st, s, calls)

	// An override takes the place of the CLI's tool.
	override := &cliv1.ToolDefinition{Name: "view", Description: "mine", OverridesBuiltInTool: proto.Bool(true)}
	other := st.Join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{{Definition: override}}})
	if out := st.Say(other, "with an override"); out.Text() != "You said: with an override" {
		t.Errorf("the agent said %q", out.Text())
	}
	found := false
	for _, offered := range st.LastModelRequest().Tools {
		found = found || offered.Name == "view" && offered.Description == "mine"
	}
	if !found {
		t.Error("the model was not offered the tool that overrides")
	}
}

// TestEmptyAttachments: the CLI drops or misreads an attachment without what it needs, and answers OK.
func TestEmptyAttachments(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	picture := harness.Picture(t)
	var calls []badCall
	for field, a := range map[string]*cliv1.Attachment{
		"blob.mime_type": {Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{Data: picture}}},
		"blob.data":      {Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{MimeType: "image/png"}}},
		"file.path":      {Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{DisplayName: "f"}}},
		"directory.path": {Variant: &cliv1.Attachment_Directory{Directory: &cliv1.AttachmentDirectory{DisplayName: "d"}}},
		"github_url.url": {Variant: &cliv1.Attachment_GithubUrl{GithubUrl: &cliv1.AttachmentGitHubUrl{}}},
	} {
		calls = append(calls, badCall{field, unary(send, &bridgev1.SendRequest{
			SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "look", Attachments: []*cliv1.Attachment{a}},
		}), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, "prompt.attachments[0]." + field})
	}
	wantAllBad(st, s, calls)
}
