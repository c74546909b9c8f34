package cli

import (
	"cmp"
	"fmt"
	"strings"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// maxShort bounds the text of an event where no terminal does.
const maxShort = 200

// shortText is what people want to know of an event.
func shortText(event *cliv1.SessionEvent) string {
	switch d := event.GetData().(type) {
	case *cliv1.SessionEvent_UserMessage:
		return d.UserMessage.GetContent()
	case *cliv1.SessionEvent_AssistantReasoning:
		return d.AssistantReasoning.GetContent()
	case *cliv1.SessionEvent_AssistantIntent:
		return d.AssistantIntent.GetIntent()
	case *cliv1.SessionEvent_AssistantUsage:
		return fmt.Sprintf("%s: %d tokens in, %d out", d.AssistantUsage.GetModel(), d.AssistantUsage.GetInputTokens(),
			d.AssistantUsage.GetOutputTokens())
	case *cliv1.SessionEvent_SessionTitleChanged:
		return d.SessionTitleChanged.GetTitle()
	case *cliv1.SessionEvent_SessionModelChange:
		return d.SessionModelChange.GetNewModel()
	case *cliv1.SessionEvent_SessionInfo:
		return d.SessionInfo.GetMessage()
	case *cliv1.SessionEvent_SessionWarning:
		return d.SessionWarning.GetMessage()
	case *cliv1.SessionEvent_SessionError:
		return d.SessionError.GetMessage()
	case *cliv1.SessionEvent_ToolExecutionStart:
		return d.ToolExecutionStart.GetToolName() + " " + d.ToolExecutionStart.GetArgumentsJson()
	case *cliv1.SessionEvent_ToolExecutionProgress:
		return d.ToolExecutionProgress.GetProgressMessage()
	case *cliv1.SessionEvent_ToolExecutionComplete:
		if !d.ToolExecutionComplete.GetSuccess() {
			return "failed: " + d.ToolExecutionComplete.GetError().GetMessage()
		}
		return d.ToolExecutionComplete.GetResult().GetContent()
	case *cliv1.SessionEvent_PermissionRequested:
		return permissionText(d.PermissionRequested.GetPermissionRequest())
	}
	return dataText(event)
}

// dataText is the data of an event as JSON; empty if there is none.
func dataText(event *cliv1.SessionEvent) string {
	m := event.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("data"))
	switch {
	case field == nil:
		return ""
	case field.Message() == nil: // of a type that this program does not know
		return cut(m.Get(field).String(), maxShort)
	}
	text, err := jsonText(m.Get(field).Message().Interface())
	if err != nil || string(text) == "{}" {
		return ""
	}
	return cut(string(text), maxShort)
}

// permissionText says what the agent wants permission for.
func permissionText(req *cliv1.PermissionRequest) string {
	switch r := req.GetVariant().(type) {
	case *cliv1.PermissionRequest_Shell:
		return "run " + r.Shell.GetFullCommandText()
	case *cliv1.PermissionRequest_Write:
		return "write " + r.Write.GetFileName()
	case *cliv1.PermissionRequest_Read:
		return "read " + r.Read.GetPath()
	case *cliv1.PermissionRequest_Url:
		return "fetch " + r.Url.GetUrl()
	case *cliv1.PermissionRequest_Mcp:
		return fmt.Sprintf("call %s of the MCP server %s %s", r.Mcp.GetToolName(), r.Mcp.GetServerName(),
			r.Mcp.GetArgsJson())
	case *cliv1.PermissionRequest_CustomTool:
		return fmt.Sprintf("call %s %s", r.CustomTool.GetToolName(), r.CustomTool.GetArgsJson())
	}
	m := req.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("variant"))
	if field == nil {
		return "something that has no name"
	}
	kind := strings.ReplaceAll(string(field.Name()), "_", " ")
	if field.Message() == nil {
		return cmp.Or(req.GetUnrecognized(), kind)
	}
	text, err := jsonText(m.Get(field).Message().Interface())
	if err != nil {
		return kind
	}
	return kind + " " + string(text)
}
