package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// meaningful are the required members that have a meaning when they are empty: texts and names for people and the
// model. The CLI drops or misreads any other required string or bytes that is empty: it shows a picture without a MIME
// type to nobody, and reads a file without a path as a missing one.
var meaningful = names(`
	AttachmentDirectory.display_name AttachmentExtensionContext.title AttachmentFile.display_name
	AttachmentGitHubActionsJob.job_name AttachmentGitHubActionsJob.workflow_name AttachmentGitHubCommit.message
	AttachmentGitHubReference.title AttachmentGitHubRelease.name AttachmentSelection.display_name
	AttachmentSelection.text

	CallbackSessionFsServiceReadFileBytesResponse.content CallbackSessionFsServiceReadFileResponse.content
	CallbackUserInputServiceRequestResponse.answer EmbeddedBlobResourceContents.blob
	EmbeddedTextResourceContents.text ExternalToolTextResultForLlm.text_result_for_llm
	ExternalToolTextResultForLlmContentResourceLink.name ExternalToolTextResultForLlmContentTerminal.text
	ExternalToolTextResultForLlmContentText.text InternalCallbackSkillProviderServiceReadResponse.markdown
	McpHeadersHandlePendingHeadersRefreshRequestError.message SessionFsSqliteTransactionError.message
	SkillProviderDescriptor.description SystemMessageSectionText.content

	CanvasDeclaration.description CanvasDeclaration.display_name CommandDeclaration.description
	CustomAgentConfig.prompt ExperimentAssignments.assignment_context ProtocolSystemMessageReplaceConfig.content
	SystemMessageBlock.content ToolDefinition.description WorkflowFactoryDeclaration.description
	WorkflowFactoryPhase.title
`)

func names(list string) map[string]bool {
	return maps.Collect(func(yield func(string, bool) bool) {
		for _, name := range strings.Fields(list) {
			if !yield(name, true) {
				return
			}
		}
	})
}

// Lacking returns the path of a field that the CLI requires and a message lacks, or "". An enum without a value or a
// message that is not set would be no member at all. So would a union without a case, for which its oneof is named. A
// string or bytes may be empty only where that is meaningful.
func (c *Codec) Lacking(m protoreflect.Message) (field string) {
	md := m.Descriptor()
	rules, _ := proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	if rules.GetShape() == jsonv1.Shape_SHAPE_UNION {
		switch set := m.WhichOneof(md.Oneofs().Get(0)); {
		case set == nil:
			return string(md.Oneofs().Get(0).Name())
		case set.Name() == "unrecognized" && set.Kind() == protoreflect.StringKind:
			return c.lackingUnrecognized(m, set)
		}
	}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if lacks(m, fd) {
			return string(fd.Name())
		}
		if inner := c.lackingIn(m.Get(fd), fd); inner != "" {
			return string(fd.Name()) + inner
		}
	}
	return ""
}

// lackingUnrecognized is Lacking for the JSON of a variant. It can be one that this version knows.
func (c *Codec) lackingUnrecognized(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	known := m.New()
	if c.FromJSON(json.RawMessage(m.Get(fd).String()), known.Interface()) != nil {
		return "" // the translation to JSON says what is wrong with it
	}
	variant := known.WhichOneof(fd.ContainingOneof())
	if variant == nil || variant == fd {
		return ""
	}
	if lacking := c.lackingIn(known.Get(variant), variant); lacking != "" {
		return string(fd.Name()) + lacking
	}
	return ""
}

// LackingWithin is Lacking for the messages in m: the members of m itself are not checked.
func (c *Codec) LackingWithin(m protoreflect.Message) (field string) {
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if !m.Has(fd) {
			continue
		}
		if inner := c.lackingIn(m.Get(fd), fd); inner != "" {
			return string(fd.Name()) + inner
		}
	}
	return ""
}

// lacks reports whether a message lacks a required field that is neither a list nor a map.
func lacks(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	if !rules.GetRequired() || fd.IsList() || fd.IsMap() {
		return false
	}
	switch fd.Kind() {
	case protoreflect.EnumKind, protoreflect.MessageKind:
		return !m.Has(fd) && !rules.GetNullable()
	case protoreflect.StringKind, protoreflect.BytesKind:
		unset := fd.HasPresence() && !m.Has(fd) && rules.GetNullable()
		return !unset && !meaningful[MemberName(fd)] && emptyText(m.Get(fd), fd)
	}
	return false
}

// MemberName returns the name of a field with its message's.
func MemberName(fd protoreflect.FieldDescriptor) string {
	return string(fd.ContainingMessage().Name()) + "." + string(fd.Name())
}

func emptyText(v protoreflect.Value, fd protoreflect.FieldDescriptor) bool {
	if fd.Kind() == protoreflect.BytesKind {
		return len(v.Bytes()) == 0
	}
	return v.String() == ""
}

// lackingIn returns the path of what the messages in a field lack, to append to the field's name.
func (c *Codec) lackingIn(v protoreflect.Value, fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap() && fd.MapValue().Message() != nil:
		inner := map[string]string{}
		for k, v := range v.Map().Range {
			if lacking := c.Lacking(v.Message()); lacking != "" {
				inner[k.String()] = lacking
			}
		}
		for _, key := range slices.Sorted(maps.Keys(inner)) {
			return fmt.Sprintf("[%q].%s", key, inner[key])
		}
	case fd.IsMap() || fd.Message() == nil:
	case fd.IsList():
		for i := range v.List().Len() {
			if lacking := c.Lacking(v.List().Get(i).Message()); lacking != "" {
				return fmt.Sprintf("[%d].%s", i, lacking)
			}
		}
	case v.Message().IsValid():
		if lacking := c.Lacking(v.Message()); lacking != "" {
			return "." + lacking
		}
	}
	return ""
}
