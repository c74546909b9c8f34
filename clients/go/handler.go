package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Call says which callback a handler is answering.
type Call struct {
	// The session.
	SessionID string
	// The callback's id.
	CallbackID string
	// The id that the model gave the tool call; empty for other callbacks.
	ToolCallID string
	// The tool; empty for other callbacks.
	ToolName string
	// The session's working directory on the CLI's machine, where known.
	WorkingDirectory string
	// The W3C trace context that the callback belongs to; empty if there is none.
	Traceparent string
	// The W3C trace state that goes with it.
	Tracestate string
}

type callKey struct{}

// CallFrom tells a handler which callback it is answering.
func CallFrom(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return Call{}, false
	}
	return *c, true
}

// Request is a callback without a type.
type Request struct {
	// The session.
	SessionID string
	// The callback's id.
	CallbackID string
	// The JSON-RPC method, or the type of the event that asks.
	Method string
	// Its parameters, or the event's data.
	Params json.RawMessage
}

// RequestHandler answers callbacks without a type, from a CLI newer than this client.
// The client sends its result as JSON, in the form of the CLI's method. An error is sent
// as an error; [ErrAbstain] leaves the callback to other participants.
type RequestHandler func(ctx context.Context, req *Request) (any, error)

// WithdrawnError is the cause with which a handler's context ends when its answer is no
// longer wanted.
type WithdrawnError struct {
	// How the callback ended; empty when that happened while the connection was broken.
	Outcome CallbackOutcome
	// The participant that answered, where one did.
	ParticipantID string
}

// Error says how the callback ended.
func (e *WithdrawnError) Error() string {
	if e.Outcome == "" {
		return "copilot: callback is over"
	}
	return "copilot: callback is over: " + string(e.Outcome)
}

// answerer works out the answer to a callback. It does not panic.
type answerer func(ctx context.Context) *bridgev1.Answer

// handlers are the program's functions that answer callbacks, and the tools among them, which may change.
type handlers struct {
	log          *slog.Logger
	onPermission PermissionHandler
	onRequest    map[string]RequestHandler
	byKind       map[handlerKey]Handler

	mu    sync.Mutex
	tools map[string]Tool
}

// answerer returns the function that answers a callback; nil when this participant does not.
// offered says whether the server asks this participant in particular.
func (hs *handlers) answerer(cb *bridgev1.Callback, offered bool) answerer {
	switch cb.GetKind() {
	case bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL:
		return hs.toolAnswerer(cb, offered)
	case bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION:
		if h := hs.onPermission; h != nil && offered {
			return func(ctx context.Context) *bridgev1.Answer { return hs.answerPermission(ctx, cb, h) }
		}
	case bridgev1.CallbackKind_CALLBACK_KIND_RAW:
		if h := hs.onRequest[cb.GetRaw().GetMethod()]; h != nil && offered {
			return func(ctx context.Context) *bridgev1.Answer { return hs.answerRequest(ctx, cb, h) }
		}
	default:
		if h, ok := hs.handlerFor(cb); ok && offered {
			return func(ctx context.Context) *bridgev1.Answer { return hs.answerWith(ctx, cb, h) }
		}
	}
	return nil
}

func (hs *handlers) toolAnswerer(cb *bridgev1.Callback, offered bool) answerer {
	tool, known := hs.tool(cb.GetToolCall().GetToolName())
	switch {
	case known && tool.Handler != nil && (offered || tool.OwnedBySession):
		return func(ctx context.Context) *bridgev1.Answer { return hs.answerTool(ctx, cb, tool.Handler) }
	case offered && !known:
		// The tool was just removed. Unlike for a declared tool, no caller answers
		// with Resolve.
		return func(context.Context) *bridgev1.Answer { return abstain() }
	default:
		return nil
	}
}

func (hs *handlers) answerTool(
	ctx context.Context, cb *bridgev1.Callback, h ToolHandler,
) (answer *bridgev1.Answer) {
	defer func() {
		if r := recover(); r != nil {
			answer = toolFailed(hs.panicked(cb, r))
		}
	}()
	result, err := h(ctx, json.RawMessage(cb.GetToolCall().GetArgumentsJson()))
	var forModel *ToolError
	switch {
	case errors.Is(err, ErrAbstain):
		return abstain()
	case errors.As(err, &forModel):
		hs.failed(cb, err)
		result = Failure(forModel.Text)
	case err != nil:
		hs.failed(cb, err)
		return toolFailed(err.Error())
	}
	tool, err := toolAnswer(result)
	if err != nil {
		hs.log.Warn("tool result not sent", "session_id", cb.GetSessionId(), "callback_id", cb.GetCallbackId(),
			"error", err)
		failed := Failure("The tool ran, but its result cannot be encoded as JSON.")
		failed.Error = proto.String(err.Error())
		tool = &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Result{Result: failed}}
	}
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: tool}}
}

func (hs *handlers) answerPermission(
	ctx context.Context, cb *bridgev1.Callback, h PermissionHandler,
) (answer *bridgev1.Answer) {
	defer func() {
		if r := recover(); r != nil {
			answer = handlerFailed(cb, hs.panicked(cb, r))
		}
	}()
	data := cb.GetPermission()
	decision, err := h(ctx, &PermissionRequest{
		SessionID:  cb.GetSessionId(),
		CallbackID: cb.GetCallbackId(),
		Kind:       permissionKind(data.GetPermissionRequest()),
		Data:       data,
	})
	switch {
	case errors.Is(err, ErrAbstain):
		return abstain()
	case err == nil && decision == nil:
		err = errNoAnswer
	}
	if err != nil {
		hs.failed(cb, err)
		return handlerFailed(cb, err.Error())
	}
	return AnswerPermission(decision)
}

func (hs *handlers) answerRequest(
	ctx context.Context, cb *bridgev1.Callback, h RequestHandler,
) (answer *bridgev1.Answer) {
	defer func() {
		if r := recover(); r != nil {
			answer = handlerFailed(cb, hs.panicked(cb, r))
		}
	}()
	result, err := h(ctx, &Request{
		SessionID:  cb.GetSessionId(),
		CallbackID: cb.GetCallbackId(),
		Method:     cb.GetRaw().GetMethod(),
		Params:     json.RawMessage(cb.GetRaw().GetParamsJson()),
	})
	if errors.Is(err, ErrAbstain) {
		return abstain()
	}
	if err == nil {
		answer, err = AnswerRequest(result)
	}
	if err != nil {
		hs.failed(cb, err)
		return handlerFailed(cb, err.Error())
	}
	return answer
}

// errNoAnswer is the failure of a handler that returns neither an answer nor an error.
var errNoAnswer = errors.New("the handler returned no answer")

// failed logs that the handler of a callback failed.
func (hs *handlers) failed(cb *bridgev1.Callback, err error) {
	hs.log.Warn("handler failed", append(describe(cb), "error", err)...)
}

// panicked logs a handler's panic, with its stack, and returns it as a text.
func (hs *handlers) panicked(cb *bridgev1.Callback, r any) string {
	text := fmt.Sprintf("the handler panicked: %v", r)
	hs.log.Warn("handler failed", append(describe(cb), "error", text, "stack", string(debug.Stack()))...)
	return text
}

// describe names a callback in the log: by its kind, and by the tool or the hook.
func describe(cb *bridgev1.Callback) []any {
	about := []any{"session_id", cb.GetSessionId(), "callback_id", cb.GetCallbackId(), "handler", wordOf[CallbackKind](cb.GetKind())}
	if tool := cb.GetToolCall().GetToolName(); tool != "" {
		about = append(about, "tool", tool)
	}
	if hook := cb.GetHook().GetHookType(); hook != "" {
		about = append(about, "hook", hook)
	}
	return about
}

// handlerFailed is the answer of a handler that failed. Only the caller of a slash command reads why: what others read
// may reach the model.
func handlerFailed(cb *bridgev1.Callback, why string) *bridgev1.Answer {
	if cb.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_COMMAND {
		return answerError(strings.ToValidUTF8(why, "\uFFFD"))
	}
	return answerError("The handler failed.")
}

func (hs *handlers) tool(name string) (Tool, bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	t, ok := hs.tools[name]
	return t, ok
}

// setTools replaces the tools, and returns the tools before.
func (hs *handlers) setTools(tools map[string]Tool) (before map[string]Tool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	before, hs.tools = hs.tools, tools
	return before
}

// declared returns the definitions of the participant's own tools, without the session's.
func (hs *handlers) declared() []*cliv1.ToolDefinition {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return definitions(hs.tools, false)
}

// AnswerTool is the answer to a tool call, for [Session.Resolve]. result is treated as
// [ToolHandler] says.
func AnswerTool(result any) (*bridgev1.Answer, error) {
	tool, err := toolAnswer(result)
	if err != nil {
		return nil, err
	}
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: tool}}, nil
}

// AnswerApprove answers a callback of any kind that asks for an approval with yes, once, for
// [Session.Resolve].
func AnswerApprove() *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}
}

// AnswerReject answers a callback of any kind that asks for an approval with no, for
// [Session.Resolve]. The agent receives the feedback; without it the turn is aborted.
func AnswerReject(feedback string) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Reject{Reject: &bridgev1.Reject{Feedback: feedback}}}
}

// AnswerPermission is the answer to a permission request, for [Session.Resolve].
func AnswerPermission(d *Decision) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{Permission: d}}
}

// AnswerRequest is the answer to a callback without a type, for [Session.Resolve]:
// result as JSON.
func AnswerRequest(result any) (*bridgev1.Answer, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("copilot: encode the answer: %w", err)
	}
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Raw{
		Raw: &bridgev1.RawAnswer{ResultJson: string(text)},
	}}, nil
}

func answerError(text string) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: &bridgev1.AnswerError{Message: text}}}
}

func abstain() *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}}
}
