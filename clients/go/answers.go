package copilot

import (
	"fmt"
	"slices"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Further callbacks and their answers.
type (
	// SystemMessageRequest has the sections of the system message that the configuration
	// transforms.
	SystemMessageRequest = cliv1.CallbackSystemMessageServiceTransformRequest
	// QueuedCommand is a command that a user gave while the agent worked.
	QueuedCommand = cliv1.CommandQueuedData
	// SamplingRequest is the request of an MCP server for text of a model.
	SamplingRequest = cliv1.SamplingRequestedData
	// SamplingAnswer is the text, as the JSON of an MCP result; empty refuses.
	SamplingAnswer = bridgev1.SamplingAnswer
	// MCPOAuthRequest names an MCP server that wants authorization.
	MCPOAuthRequest = cliv1.McpOauthRequiredData
	// MCPOAuthAnswer is a token for it.
	MCPOAuthAnswer = cliv1.McpOauthPendingRequestResponse
	// MCPHeadersRequest names an MCP server whose headers are to be refreshed.
	MCPHeadersRequest = cliv1.McpHeadersRefreshRequiredData
	// SessionLimitsRequest tells of a limit that the session has reached.
	SessionLimitsRequest = cliv1.SessionLimitsExhaustedRequestedData
	// SessionLimitsAnswer changes the limit, or ends the turn.
	SessionLimitsAnswer = cliv1.UISessionLimitsExhaustedResponse
	// SkillListRequest asks for the program's skills.
	SkillListRequest = cliv1.InternalCallbackSkillProviderServiceListRequest
	// SkillListAnswer has the program's skills.
	SkillListAnswer = cliv1.InternalCallbackSkillProviderServiceListResponse
	// SkillReadRequest names a skill.
	SkillReadRequest = cliv1.InternalCallbackSkillProviderServiceReadRequest
	// SkillReadAnswer has the text of a skill; none if there is no such skill.
	SkillReadAnswer = cliv1.InternalCallbackSkillProviderServiceReadResponse
	// WorkflowExecuteRequest has a workflow's name and arguments.
	WorkflowExecuteRequest = cliv1.CallbackWorkflowServiceExecuteRequest
	// WorkflowExecuteAnswer is the result of a workflow.
	WorkflowExecuteAnswer = cliv1.CallbackWorkflowServiceExecuteResponse
	// FactoryExecuteRequest is WorkflowExecuteRequest in older CLIs.
	//lint:ignore SA1019 CLIs before 1.0.83 send it
	FactoryExecuteRequest = cliv1.CallbackFactoryServiceExecuteRequest
	// FactoryExecuteAnswer is WorkflowExecuteAnswer in older CLIs.
	//lint:ignore SA1019 as above
	FactoryExecuteAnswer = cliv1.CallbackFactoryServiceExecuteResponse
	// FactoryAbortRequest names the execution to stop, in older CLIs.
	//lint:ignore SA1019 as above
	FactoryAbortRequest = cliv1.CallbackFactoryServiceAbortRequest
	// InstallationConfirmRequest describes an installation.
	InstallationConfirmRequest = cliv1.CallbackInstallationsServiceConfirmRequest
	// InstallationConfirmAnswer is the decision about it.
	InstallationConfirmAnswer = cliv1.CallbackInstallationsServiceConfirmResponse
	// ExtensionLaunchRequest names an extension.
	ExtensionLaunchRequest = cliv1.CallbackExtensionLaunchProviderServiceResolveRequest
	// ExtensionLaunchAnswer is how to start it; empty leaves that to the CLI.
	ExtensionLaunchAnswer = cliv1.CallbackExtensionLaunchProviderServiceResolveResponse
)

// UserAnswer answers a question of the agent with a text, which may be one of its choices.
func UserAnswer(req *UserInputRequest, text string) *UserInputAnswer {
	return &UserInputAnswer{Answer: text, WasFreeform: !slices.Contains(req.GetChoices(), text)}
}

// AcceptForm fills in a form. Values are strings, numbers, booleans and lists of strings.
func AcceptForm(values map[string]any) (*ElicitationAnswer, error) {
	answer := &ElicitationAnswer{
		Action:  cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_ACCEPT,
		Content: make(map[string]*cliv1.UIElicitationFieldValue, len(values)),
	}
	for name, value := range values {
		field := new(cliv1.UIElicitationFieldValue)
		switch v := value.(type) {
		case string:
			field.Variant = &cliv1.UIElicitationFieldValue_StringValue{StringValue: v}
		case bool:
			field.Variant = &cliv1.UIElicitationFieldValue_BoolValue{BoolValue: v}
		case int:
			field.Variant = &cliv1.UIElicitationFieldValue_DoubleValue{DoubleValue: float64(v)}
		case float64:
			field.Variant = &cliv1.UIElicitationFieldValue_DoubleValue{DoubleValue: v}
		case []string:
			field.Variant = &cliv1.UIElicitationFieldValue_List{List: &cliv1.StringList{Items: v}}
		default:
			return nil, fmt.Errorf("copilot: the form's field %q has a %T: want string, bool, int, float64 or []string",
				name, value)
		}
		answer.Content[name] = field
	}
	return answer, nil
}

// DeclineForm declines to fill in a form.
func DeclineForm() *ElicitationAnswer {
	return &ElicitationAnswer{Action: cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_DECLINE}
}

// ApprovePlan approves a plan with its recommended action.
func ApprovePlan(req *ExitPlanModeRequest) *ExitPlanModeAnswer {
	action := req.GetRecommendedAction()
	return &ExitPlanModeAnswer{Approved: true, SelectedAction: &action}
}

// RejectPlan rejects a plan. The agent receives the feedback unless it is empty.
func RejectPlan(feedback string) *ExitPlanModeAnswer {
	answer := &ExitPlanModeAnswer{}
	if feedback != "" {
		answer.Feedback = &feedback
	}
	return answer
}

// The answers to a rate limit, whose names in cliv1 are longer than a line.
const (
	switchYes cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse = 1
	switchNo  cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse = 3
)

// SwitchModel says whether the CLI may choose another model after a rate limit.
func SwitchModel(allowed bool) *AutoModeSwitchAnswer {
	if allowed {
		return &AutoModeSwitchAnswer{Response: switchYes}
	}
	return &AutoModeSwitchAnswer{Response: switchNo}
}

// MCPToken authorizes an MCP server with an access token; an empty one refuses.
func MCPToken(accessToken string) *MCPOAuthAnswer {
	if accessToken == "" {
		return &MCPOAuthAnswer{Variant: &cliv1.McpOauthPendingRequestResponse_Cancelled{
			Cancelled: &cliv1.McpOauthPendingRequestResponseCancelled{},
		}}
	}
	return &MCPOAuthAnswer{Variant: &cliv1.McpOauthPendingRequestResponse_Token{
		Token: &cliv1.McpOauthPendingRequestResponseToken{AccessToken: accessToken},
	}}
}
