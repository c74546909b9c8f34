package wire

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// needed are the required members that callers must not leave empty. A new required member needs a row here, or in
// meaningful: measure first what the CLI makes of an empty one.
const needed = `
	AttachmentBlob.mime_type AttachmentDirectory.path AttachmentExtensionContext.extension_id AttachmentFile.path
	AttachmentGitHubActionsJob.url AttachmentGitHubCommit.oid AttachmentGitHubCommit.url
	AttachmentGitHubFile.git_ref AttachmentGitHubFile.path AttachmentGitHubFile.url AttachmentGitHubFileDiff.url
	AttachmentGitHubFileDiffSide.git_ref AttachmentGitHubFileDiffSide.path AttachmentGitHubReference.state
	AttachmentGitHubReference.url AttachmentGitHubRelease.tag_name AttachmentGitHubRelease.url
	AttachmentGitHubRepository.url AttachmentGitHubSnippet.git_ref AttachmentGitHubSnippet.path
	AttachmentGitHubSnippet.url AttachmentGitHubTreeComparison.url AttachmentGitHubTreeComparisonSide.revision
	AttachmentGitHubUrl.url AttachmentSelection.file_path
	CallbackGitHubTokenServiceGetTokenResponseToken.access_token
	CallbackInstallationsServiceConfirmResponse.confirmation_id
	CallbackInstallationsServiceConfirmResponse.review_fingerprint
	CallbackProviderTokenServiceGetTokenResponse.token CallbackSessionFsServiceSqliteQueryResponse.rows_json
	CanvasActionDeclaration.name CanvasDeclaration.id CanvasProviderIdentity.id CommandDeclaration.name
	CustomAgentConfig.name EmbeddedBlobResourceContents.uri EmbeddedTextResourceContents.uri ExperimentConfig.id
	ExperimentConfig.parameters_json ExtensionIdentity.name ExtensionIdentity.source
	ExtensionLaunchProfile.executable ExternalToolTextResultForLlmBinaryResultsForLlm.data
	ExternalToolTextResultForLlmBinaryResultsForLlm.mime_type ExternalToolTextResultForLlmContentAudio.data
	ExternalToolTextResultForLlmContentAudio.mime_type ExternalToolTextResultForLlmContentImage.data
	ExternalToolTextResultForLlmContentImage.mime_type ExternalToolTextResultForLlmContentResourceLink.uri
	ExternalToolTextResultForLlmContentResourceLinkIcon.src ExternalToolTextResultForLlmContentShellExit.shell_id
	GitHubRepoRef.name GitHubRepoRef.owner JsonSchemaResponseFormat.name JsonSchemaResponseFormat.schema_json
	McpOauthPendingRequestResponseToken.access_token McpServerConfigHttp.url McpServerConfigStdio.command
	NamedProviderConfig.base_url NamedProviderConfig.name OpenCanvasInstance.canvas_id
	OpenCanvasInstance.extension_id OpenCanvasInstance.instance_id
	PermissionDecisionApproveForLocation.location_key
	PermissionDecisionApproveForLocationApprovalCustomTool.tool_name
	PermissionDecisionApproveForLocationApprovalExtensionEnvAccess.extension_name
	PermissionDecisionApproveForLocationApprovalExtensionPermissionAccess.extension_name
	PermissionDecisionApproveForLocationApprovalMcp.server_name
	PermissionDecisionApproveForLocationApprovalMcp.tool_name
	PermissionDecisionApproveForLocationApprovalMcpSampling.server_name
	PermissionDecisionApproveForSessionApprovalCustomTool.tool_name
	PermissionDecisionApproveForSessionApprovalExtensionEnvAccess.extension_name
	PermissionDecisionApproveForSessionApprovalExtensionPermissionAccess.extension_name
	PermissionDecisionApproveForSessionApprovalMcp.server_name
	PermissionDecisionApproveForSessionApprovalMcp.tool_name
	PermissionDecisionApproveForSessionApprovalMcpSampling.server_name PermissionDecisionApprovePermanently.domain
	PermissionDecisionApprovedForLocation.location_key PermissionDecisionDeniedByContentExclusionPolicy.message
	PermissionDecisionDeniedByContentExclusionPolicy.path PermissionRule.argument PermissionRule.kind
	ProviderConfig.base_url ProviderModelConfig.id ProviderModelConfig.provider
	SessionFsReaddirWithTypesEntry.name SessionFsSqliteQueryResult.rows_json SkillProviderDescriptor.name
	ToolDefinition.name ToolNamespace.name UserToolSessionApprovalCustomTool.tool_name
	UserToolSessionApprovalExtensionEnvAccess.extension_name
	UserToolSessionApprovalExtensionPermissionAccess.extension_name UserToolSessionApprovalMcp.server_name
	UserToolSessionApprovalMcp.tool_name WorkflowFactoryDeclaration.name
`

// requiredTexts returns the required strings and bytes of the messages that callers send, by their names.
func requiredTexts() map[string]protoreflect.FieldDescriptor {
	out := map[string]protoreflect.FieldDescriptor{}
	seen := map[protoreflect.FullName]bool{}
	var walk func(md protoreflect.MessageDescriptor)
	walk = func(md protoreflect.MessageDescriptor) {
		if seen[md.FullName()] {
			return
		}
		seen[md.FullName()] = true
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if fd.IsMap() {
				fd = fd.MapValue()
			}
			text := fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind
			if rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules); text && rules.GetRequired() && !fd.IsList() {
				out[MemberName(fd)] = fd
			}
			if fd.Message() != nil {
				walk(fd.Message())
			}
		}
	}
	for _, m := range []proto.Message{&bridgev1.Answer{}, &bridgev1.Prompt{}, &cliv1.SessionConfig{}, &cliv1.SessionResumeExtras{}} {
		walk(m.ProtoReflect().Descriptor())
	}
	return out
}

// The table has each required text once, and nothing else.
func TestEveryRequiredTextHasARow(t *testing.T) {
	t.Parallel()
	texts := requiredTexts()
	rows := names(needed)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if rows[name] == meaningful[name] {
			t.Errorf("%s: in needed %v, in meaningful %v", name, rows[name], meaningful[name])
		}
	}
	for name := range rows {
		if texts[name] == nil {
			t.Errorf("%s is no required text of a message that callers send", name)
		}
	}
	for name := range meaningful {
		if texts[name] == nil {
			t.Errorf("%s is no required text of a message that callers send", name)
		}
	}
}

// A message that has all it needs lacks nothing; one with an empty text lacks it, unless that is meaningful.
func TestLackingTexts(t *testing.T) {
	t.Parallel()
	c := New(slog.New(slog.DiscardHandler))
	for name, fd := range requiredTexts() {
		md := fd.ContainingMessage()
		m := dynamicpb.NewMessage(md)
		fill(m)
		if lacking := c.Lacking(m); lacking != "" {
			t.Errorf("a filled %s lacks %s", md.Name(), lacking)
			continue
		}
		m.Set(fd, map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString(""), protoreflect.BytesKind: protoreflect.ValueOfBytes(nil),
		}[fd.Kind()])
		want := string(fd.Name())
		if meaningful[name] {
			want = ""
		}
		if lacking := c.Lacking(m); lacking != want {
			t.Errorf("with an empty %s, %q is lacking, want %q", name, lacking, want)
		}
	}
}

// fill gives a message what it needs.
func fill(m protoreflect.Message) {
	union := m.Descriptor().Oneofs().ByName("variant")
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		first := union != nil && fd == union.Fields().Get(0)
		if fd.IsList() || fd.IsMap() || !rules.GetRequired() && !first {
			continue
		}
		switch fd.Kind() {
		case protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString("x"))
		case protoreflect.BytesKind:
			m.Set(fd, protoreflect.ValueOfBytes([]byte("x")))
		case protoreflect.EnumKind:
			m.Set(fd, protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number()))
		case protoreflect.MessageKind:
			fill(m.Mutable(fd).Message())
		}
	}
}

// Paths of what is lacking lead through lists, maps and unions.
func TestLackingPaths(t *testing.T) {
	t.Parallel()
	c := New(slog.New(slog.DiscardHandler))
	picture := func(mime string) *cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm {
		return &cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{
			BinaryType: cliv1.ExternalToolTextResultForLlmBinaryResultsForLlmType_EXTERNAL_TOOL_TEXT_RESULT_FOR_LLM_BINARY_RESULTS_FOR_LLM_TYPE_IMAGE,
			Data:       []byte("x"), MimeType: mime,
		}
	}
	stdio := func(command string) *cliv1.McpSerializableServerConfig {
		return &cliv1.McpSerializableServerConfig{Variant: &cliv1.McpSerializableServerConfig_Stdio{
			Stdio: &cliv1.McpServerConfigStdio{Command: command},
		}}
	}
	for want, m := range map[string]proto.Message{
		"text_result_for_llm.binary_results_for_llm[1].mime_type": &cliv1.ExternalToolResult{
			Variant: &cliv1.ExternalToolResult_TextResultForLlm{TextResultForLlm: &cliv1.ExternalToolTextResultForLlm{
				BinaryResultsForLlm: []*cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{picture("image/png"), picture("")},
			}},
		},
		`mcp_servers["b"].stdio.command`: &cliv1.SessionConfig{
			McpServers: map[string]*cliv1.McpSerializableServerConfig{"a": stdio("x"), "b": stdio(""), "c": stdio("")},
		},
		"variant":     &cliv1.ExternalToolResult{},
		"server_name": &cliv1.PermissionDecisionApproveForSessionApprovalMcp{},
		"":            &cliv1.PermissionDecisionApproveForSessionApprovalMcp{ServerName: "s"}, // no tool name: null, all tools
		"tool_name":   &cliv1.PermissionDecisionApproveForSessionApprovalMcp{ServerName: "s", ToolName: proto.String("")},
	} {
		if got := c.Lacking(m.ProtoReflect()); got != want {
			t.Errorf("%v lacks %q, want %q", m, got, want)
		}
	}
	unrecognized := func(text string) *cliv1.Attachment {
		return &cliv1.Attachment{Variant: &cliv1.Attachment_Unrecognized{Unrecognized: text}}
	}
	for want, attachment := range map[string]*cliv1.Attachment{
		"attachments[0].file.path":              {Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{}}},
		"attachments[0].unrecognized.path":      unrecognized(`{"type":"file","path":"","displayName":"f"}`),
		"attachments[0].unrecognized.mime_type": unrecognized(`{"type":"blob","data":"eA==","mimeType":""}`),
		"":                                      unrecognized(`{"type":"file","path":"/f","displayName":""}`),
	} {
		prompt := &bridgev1.Prompt{Attachments: []*cliv1.Attachment{attachment}}
		if got := c.LackingWithin(prompt.ProtoReflect()); got != want {
			t.Errorf("in a prompt with %v, %q is lacking, want %q", attachment, got, want)
		}
	}
	newer := &bridgev1.Prompt{Attachments: []*cliv1.Attachment{unrecognized(`{"type":"newer","path":""}`)}}
	if got := c.LackingWithin(newer.ProtoReflect()); got != "" {
		t.Errorf("in a prompt with a newer attachment, %q is lacking", got)
	}
}
