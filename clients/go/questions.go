package copilot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/answer"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/contract"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Common callbacks and their answers.
type (
	// UserInputRequest is a question of the agent to its user.
	UserInputRequest = cliv1.CallbackUserInputServiceRequestRequest
	// UserInputAnswer is what the user said.
	UserInputAnswer = cliv1.CallbackUserInputServiceRequestResponse
	// ElicitationRequest is a form to fill in, or a page to visit.
	ElicitationRequest = cliv1.ElicitationRequestedData
	// ElicitationAnswer is what became of it.
	ElicitationAnswer = cliv1.UIElicitationResponse
	// ExitPlanModeRequest is a plan that the agent would carry out.
	ExitPlanModeRequest = cliv1.CallbackExitPlanModeServiceRequestRequest
	// ExitPlanModeAnswer says whether it may.
	ExitPlanModeAnswer = cliv1.CallbackExitPlanModeServiceRequestResponse
	// AutoModeSwitchRequest tells of the rate limit that was reached.
	AutoModeSwitchRequest = cliv1.CallbackAutoModeSwitchServiceRequestRequest
	// AutoModeSwitchAnswer says whether the CLI may choose another model.
	AutoModeSwitchAnswer = cliv1.CallbackAutoModeSwitchServiceRequestResponse
	// Command is a command that a user gave.
	Command = cliv1.CommandExecuteData
	// GitHubTokenRequest says for which host a token is needed, and why.
	GitHubTokenRequest = cliv1.CallbackGitHubTokenServiceGetTokenRequest
)

// GitHubToken is a token of a GitHub account.
type GitHubToken struct {
	// The token.
	Token string
	// How long it is good for. The CLI wants another an hour before that is over.
	ExpiresIn time.Duration
}

// Inputs and outputs of [Hooks].
type (
	// AgentStopInput is what AgentStop of [Hooks] receives.
	AgentStopInput = cliv1.HookAgentStopInput
	// AgentStopOutput is what AgentStop of [Hooks] returns.
	AgentStopOutput = cliv1.HookAgentStopOutput
	// ErrorOccurredInput is what ErrorOccurred of [Hooks] receives.
	ErrorOccurredInput = cliv1.HookErrorOccurredInput
	// ErrorOccurredOutput is what ErrorOccurred of [Hooks] returns.
	ErrorOccurredOutput = cliv1.HookErrorOccurredOutput
	// PostToolUseFailureInput is what PostToolUseFailure of [Hooks] receives.
	PostToolUseFailureInput = cliv1.HookPostToolUseFailureInput
	// PostToolUseFailureOutput is what PostToolUseFailure of [Hooks] returns.
	PostToolUseFailureOutput = cliv1.HookPostToolUseFailureOutput
	// PostToolUseInput is what PostToolUse of [Hooks] receives.
	PostToolUseInput = cliv1.HookPostToolUseInput
	// PostToolUseOutput is what PostToolUse of [Hooks] returns.
	PostToolUseOutput = cliv1.HookPostToolUseOutput
	// PreMCPToolCallInput is what PreMCPToolCall of [Hooks] receives.
	PreMCPToolCallInput = cliv1.HookPreMcpToolCallInput
	// PreMCPToolCallOutput is what PreMCPToolCall of [Hooks] returns.
	PreMCPToolCallOutput = cliv1.HookPreMcpToolCallOutput
	// PreToolUseInput is what PreToolUse of [Hooks] receives.
	PreToolUseInput = cliv1.HookPreToolUseInput
	// PreToolUseOutput is what PreToolUse of [Hooks] returns.
	PreToolUseOutput = cliv1.HookPreToolUseOutput
	// SessionEndInput is what SessionEnd of [Hooks] receives.
	SessionEndInput = cliv1.HookSessionEndInput
	// SessionEndOutput is what SessionEnd of [Hooks] returns.
	SessionEndOutput = cliv1.HookSessionEndOutput
	// SessionStartInput is what SessionStart of [Hooks] receives.
	SessionStartInput = cliv1.HookSessionStartInput
	// SessionStartOutput is what SessionStart of [Hooks] returns.
	SessionStartOutput = cliv1.HookSessionStartOutput
	// SubagentStartInput is what SubagentStart of [Hooks] receives.
	SubagentStartInput = cliv1.HookSubagentStartInput
	// SubagentStopInput is what SubagentStop of [Hooks] receives.
	SubagentStopInput = cliv1.HookSubagentStopInput
	// UserPromptSubmittedInput is what UserPromptSubmitted of [Hooks] receives.
	UserPromptSubmittedInput = cliv1.HookUserPromptSubmittedInput
	// UserPromptSubmittedOutput is what UserPromptSubmitted of [Hooks] returns.
	UserPromptSubmittedOutput = cliv1.HookUserPromptSubmittedOutput
	// UserPromptTransformedInput is what UserPromptTransformed of [Hooks] receives.
	UserPromptTransformedInput = cliv1.HookUserPromptTransformedInput
	// UserPromptTransformedOutput is what UserPromptTransformed of [Hooks] returns.
	UserPromptTransformedOutput = cliv1.HookUserPromptTransformedOutput
)

// Hooks are functions that the agent calls at points of its work. They may observe,
// change or refuse an action. Nil functions are not called. If several participants have
// a hook, each receives the changes of the previous ones, and a refusal ends the chain. A
// nil output has no effect. An error, or no answer in time, refuses in PreToolUse and has
// no effect elsewhere.
type Hooks struct {
	// Before a tool is used: allow, deny, ask, or change its arguments.
	PreToolUse func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error)
	// Before a tool of an MCP server is called: the metadata of the call. It cannot refuse
	// the call; PreToolUse, which comes before, can.
	PreMCPToolCall func(context.Context, *PreMCPToolCallInput) (*PreMCPToolCallOutput, error)
	// After a tool has succeeded: change its result, or add to it.
	PostToolUse func(context.Context, *PostToolUseInput) (*PostToolUseOutput, error)
	// After a tool has failed: adds text for the model.
	PostToolUseFailure func(context.Context, *PostToolUseFailureInput) (*PostToolUseFailureOutput,
		error)
	// When a prompt has come: change it, or add to it.
	UserPromptSubmitted func(context.Context,
		*UserPromptSubmittedInput) (*UserPromptSubmittedOutput, error)
	// When the prompt has the form that the model gets: change that.
	UserPromptTransformed func(context.Context,
		*UserPromptTransformedInput) (*UserPromptTransformedOutput, error)
	// When the session begins: adds text for the model.
	SessionStart func(context.Context, *SessionStartInput) (*SessionStartOutput, error)
	// When the session ends.
	SessionEnd func(context.Context, *SessionEndInput) (*SessionEndOutput, error)
	// When something failed: try again, skip it, or give up.
	ErrorOccurred func(context.Context, *ErrorOccurredInput) (*ErrorOccurredOutput, error)
	// When the agent considers its work done: whether it may stop.
	AgentStop func(context.Context, *AgentStopInput) (*AgentStopOutput, error)
	// When a sub-agent begins. There is nothing to say about it.
	SubagentStart func(context.Context, *SubagentStartInput) error
	// When a sub-agent ends. There is nothing to say about it.
	SubagentStop func(context.Context, *SubagentStopInput) error
}

func (h *Hooks) handlers() []Handler {
	var all []Handler
	all = handle(all, h.PreToolUse)
	all = handle(all, h.PreMCPToolCall)
	all = handle(all, h.PostToolUse)
	all = handle(all, h.PostToolUseFailure)
	all = handle(all, h.UserPromptSubmitted)
	all = handle(all, h.UserPromptTransformed)
	all = handle(all, h.SessionStart)
	all = handle(all, h.SessionEnd)
	all = handle(all, h.ErrorOccurred)
	all = handle(all, h.AgentStop)
	all = handle(all, silent(h.SubagentStart))
	return handle(all, silent(h.SubagentStop))
}

// silent is a hook that has nothing to say.
func silent[Input proto.Message](
	fn func(context.Context, Input) error,
) func(context.Context, Input) (*cliv1.HookOutput, error) {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, in Input) (*cliv1.HookOutput, error) { return nil, fn(ctx, in) }
}

// handle adds a handler of a function, unless that is nil.
func handle[Req, Answer proto.Message](all []Handler, fn func(context.Context, Req) (Answer, error)) []Handler {
	if fn == nil {
		return all
	}
	return append(all, Handle(fn))
}

// converted adds a handler whose function returns something simpler than the answer.
func converted[Req, Answer proto.Message, Result any](
	all []Handler, fn func(context.Context, Req) (Result, error), convert func(Req, Result) Answer,
) []Handler {
	if fn == nil {
		return all
	}
	return append(all, Handle(func(ctx context.Context, req Req) (Answer, error) {
		result, err := fn(ctx, req)
		return convert(req, result), err
	}))
}

// acted adds a handler whose function has no result.
func acted[Req, Answer proto.Message](all []Handler, fn func(context.Context, Req) error, answer Answer) []Handler {
	if fn == nil {
		return all
	}
	return append(all, Handle(func(ctx context.Context, req Req) (Answer, error) { return answer, fn(ctx, req) }))
}

// rareHandlers are the handlers of callbacks that few programs have.
func (o *SessionOptions) rareHandlers() []Handler {
	all := converted(nil, o.OnSystemMessage, answer.SystemMessage)
	all = converted(all, o.OnQueuedCommand,
		func(_ *QueuedCommand, handled bool) *cliv1.QueuedCommandResult { return answer.QueuedCommand(handled) })
	all = handle(all, o.OnSampling)
	all = handle(all, o.OnMCPOAuth)
	all = converted(all, o.OnMCPHeaders,
		func(_ *MCPHeadersRequest, headers map[string]string) *cliv1.McpHeadersHandlePendingHeadersRefreshRequest {
			return answer.MCPHeaders(headers)
		})
	all = handle(all, o.OnSessionLimits)
	all = handle(all, o.OnCanvasOpen)
	all = handle(all, o.OnCanvasClose)
	all = handle(all, o.OnCanvasAction)
	all = handle(all, o.OnSkillList)
	all = handle(all, o.OnSkillRead)
	all = handle(all, o.OnWorkflowExecute)
	all = acted(all, o.OnWorkflowAbort, &cliv1.CallbackWorkflowServiceAbortResponse{})
	all = handle(all, o.OnFactoryExecute)
	//lint:ignore SA1019 CLIs before 1.0.83 take it
	all = acted(all, o.OnFactoryAbort, &cliv1.CallbackFactoryServiceAbortResponse{})
	all = converted(all, o.OnTaskCancel,
		func(_ *cliv1.CallbackTasksServiceCancelRequest, cancelled bool) *cliv1.CallbackTasksServiceCancelResponse {
			return &cliv1.CallbackTasksServiceCancelResponse{Cancelled: cancelled}
		})
	all = handle(all, o.OnInstallationConfirm)
	all = handle(all, o.OnExtensionLaunch)
	return acted(all, o.OnUIThread, &cliv1.CallbackUiThreadServiceRunResponse{})
}

// handlers are all handlers of the options, by what they are for.
func (o *SessionOptions) handlers() (map[handlerKey]Handler, error) {
	all := slices.Concat(o.Handlers, o.OnHooks.handlers(), o.rareHandlers())
	all = handle(all, o.OnUserInput)
	all = handle(all, o.OnElicitation)
	all = handle(all, o.OnExitPlanMode)
	all = handle(all, o.OnAutoModeSwitch)
	if fs := o.SessionFS; fs != nil {
		all = append(all, fs.handlers()...)
	}
	all = acted(all, o.OnCommand, &bridgev1.CommandAnswer{})
	if fn := o.OnProviderToken; fn != nil {
		all = converted(all,
			func(ctx context.Context, r *cliv1.CallbackProviderTokenServiceGetTokenRequest) (string, error) {
				return fn(ctx, r.GetProviderName())
			},
			func(
				_ *cliv1.CallbackProviderTokenServiceGetTokenRequest, token string,
			) *cliv1.CallbackProviderTokenServiceGetTokenResponse {
				return &cliv1.CallbackProviderTokenServiceGetTokenResponse{Token: token}
			})
	}
	all = converted(all, o.OnGitHubToken,
		func(_ *GitHubTokenRequest, token *GitHubToken) *cliv1.CallbackGitHubTokenServiceGetTokenResponse {
			if token == nil {
				token = &GitHubToken{}
			}
			return answer.GitHubToken(token.Token, int64(token.ExpiresIn/time.Second))
		})
	byKind := make(map[handlerKey]Handler, len(all))
	for _, h := range all {
		key := handlerKey{h.kind, h.hook}
		if h.err != nil {
			return nil, h.err
		}
		if _, twice := byKind[key]; twice {
			return nil, fmt.Errorf("copilot: there are two handlers of %v %s", h.kind, h.hook)
		}
		byKind[key] = h
	}
	for method := range o.OnRequest {
		if contract.Read().Kinds[method] != 0 {
			return nil, fmt.Errorf("copilot: %q has a type of its own: Handle takes it, not OnRequest", method)
		}
	}
	return byKind, nil
}

// announced returns the handlers as the server is to know them.
func (hs *handlers) announced() *bridgev1.Handlers {
	a := &bridgev1.Handlers{Permission: hs.onPermission != nil}
	allHooks := false
	for key := range hs.byKind {
		if !slices.Contains(a.Kinds, key.kind) {
			a.Kinds = append(a.Kinds, key.kind)
		}
		if key.hook != "" {
			a.HookTypes = append(a.HookTypes, key.hook)
		} else if key.kind == bridgev1.CallbackKind_CALLBACK_KIND_HOOK {
			allHooks = true
		}
	}
	if allHooks {
		a.HookTypes = nil
	}
	for method := range hs.onRequest {
		a.Methods = append(a.Methods, method)
	}
	slices.Sort(a.Kinds)
	slices.Sort(a.HookTypes)
	slices.Sort(a.Methods)
	return a
}
