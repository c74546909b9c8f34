// Package callback defines what the CLI asks of its callers: the kinds of callbacks, how each is answered, the
// default answer if no participant answers, and the pending callbacks of a session.
//
// The first valid answer claims a callback; all later ones fail, except a repetition by the participant that gave it
// (Responder). Every callback ends: at its deadline, or without a handler, it gets the default answer of its kind
// (fallback.go). A registry has at most 1,024 pending callbacks; a further one gets its default answer at once.
//
// To add a kind, add a row to kinds.go and four lines to callback.proto: a value of CallbackKind, a case of
// Callback.request and one of Answer.answer, each tagged with the CLI's method or event type. The code that types
// requests and checks answers reads the tags. A test compares the kinds with the CLI's requests.
package callback

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// Kind is one kind of callback.
type Kind struct {
	// Method is the JSON-RPC method of the CLI's request, or the type of the event
	// that asks.
	Method string
	// Type is the kind's type in the API.
	Type bridgev1.CallbackKind
	// Event is set if an event asks. The method AnswerMethod then takes the answer, in the parameter AnswerMember if
	// that is set, and an event of type DoneEvent reports the end of the callback.
	Event                                 bool
	AnswerMethod, AnswerMember, DoneEvent string
	// Interest reports that the CLI sends the event only to connections that registered an interest in it.
	Interest bool
	// Switch is the member of the session's configuration that makes the CLI ask; empty if none is required.
	Switch string
	// Bound reports that the CLI asks on the connection that declared the subject of the callback: that of one
	// participant, or the session's.
	Bound bool
	// Survives reports that the CLI still knows the callback after its process died and the session was resumed with
	// continuePendingWork.
	Survives bool
	// OfTurn reports that only the agent's turn waits for the callback, so that an abort of the turn ends it.
	OfTurn bool
	// Limit bounds the time for an answer independently of the session's settings; zero sets no limit.
	Limit time.Duration
	// Fallback returns the bridge's default answer.
	Fallback func(p *Pending, why Why) Reply
}

// Why is the reason for a default answer.
type Why uint8

const (
	// Unhandled: no participant handles the kind.
	Unhandled Why = iota
	// TimedOut: no participant answered in time.
	TimedOut
	// Abstained: all participants that handle it have abstained.
	Abstained
	// Overflow: too many callbacks of the session are pending.
	Overflow
)

// text returns the reason as the end of a sentence about the callback.
func (w Why) text() string {
	switch w {
	case TimedOut:
		return "no participant answered in time"
	case Abstained:
		return "all its handlers abstained"
	case Overflow:
		return "too many requests are pending"
	default:
		return "no participant handles it"
	}
}

// Reply is the answer to the CLI. For an event, Members are the parameters of the answering call beside sessionId and
// requestId. For a request they are its result, unless Error is set.
type Reply struct {
	Members json.RawMessage
	Error   *ReplyError
}

// ReplyError answers a request with an error.
type ReplyError struct {
	Code    int32
	Message string
}

// DefaultErrorCode is the JSON-RPC code of an error reply.
const DefaultErrorCode = -32603

// Names that other packages need.
const (
	ToolRequested       = "external_tool.requested"
	PermissionRequested = "permission.requested"
	CommandExecute      = "command.execute"
	CommandQueued       = "command.queued"
	HooksInvoke         = "hooks.invoke"
	ModelRequestStart   = "llmInference.httpRequestStart"
	ModelRequestChunk   = "llmInference.httpRequestChunk"
	FSReadFile          = "sessionFs.readFile"
	FSWriteFile         = "sessionFs.writeFile"
	GitHubToken         = "gitHubToken.getToken"
)

// events are the kinds for which an event asks.
var events = []*Kind{
	{
		Method: ToolRequested, AnswerMethod: "session.tools.handlePendingToolCall",
		DoneEvent: "external_tool.completed", Survives: true, OfTurn: true, Fallback: toolFallback,
	},
	{
		Method: PermissionRequested, AnswerMethod: "session.permissions.handlePendingPermissionRequest", AnswerMember: "result",
		DoneEvent: "permission.completed", Survives: true, OfTurn: true,
		Fallback: fixed(`{"result":{"kind":"user-not-available"}}`),
	},
	{
		Method: "elicitation.requested", Switch: "requestElicitation", AnswerMethod: "session.ui.handlePendingElicitation", AnswerMember: "result",
		DoneEvent: "elicitation.completed", Fallback: fixed(`{"result":{"action":"cancel"}}`),
	},
	{
		Method: CommandExecute, AnswerMethod: "session.commands.handlePendingCommand",
		DoneEvent: "command.completed", Fallback: commandFallback,
	},
	{
		Method: CommandQueued, AnswerMethod: "session.commands.respondToQueuedCommand", AnswerMember: "result", Interest: true,
		DoneEvent: "command.completed", Fallback: fixed(`{"result":{"handled":false}}`),
	},
	{
		Method: "sampling.requested", AnswerMethod: "session.ui.handlePendingSampling", Interest: true,
		DoneEvent: "sampling.completed", Fallback: fixed(`{}`),
	},
	{
		Method: "mcp.oauth_required", AnswerMethod: "session.mcp.oauth.handlePendingRequest", AnswerMember: "result", Interest: true,
		DoneEvent: "mcp.oauth_completed", Fallback: fixed(`{"result":{"kind":"cancelled"}}`),
	},
	{
		Method: "mcp.headers_refresh_required", AnswerMember: "result", Interest: true,
		AnswerMethod: "session.mcp.headers.handlePendingHeadersRefreshRequest",
		DoneEvent:    "mcp.headers_refresh_completed", Fallback: fixed(`{"result":{"kind":"none"}}`),
	},
	{
		Method: "session_limits_exhausted.requested", AnswerMethod: "session.ui.handlePendingSessionLimitsExhausted", AnswerMember: "response", Interest: true,
		DoneEvent: "session_limits_exhausted.completed", Fallback: fixed(`{"response":{"action":"cancel"}}`),
	},
}

// Told maps events that only report a request to the request's method.
var Told = map[string]string{
	"user_input.requested":       "userInput.request",
	"exit_plan_mode.requested":   "exitPlanMode.request",
	"auto_mode_switch.requested": "autoModeSwitch.request",
}

// requests are the kinds for which a JSON-RPC request asks and that have a special fallback, a switch or a
// connection. All other requests have a default kind.
var requests = []*Kind{
	{Method: "userInput.request", Switch: "requestUserInput", OfTurn: true, Fallback: errorFallback},
	{Method: "exitPlanMode.request", Switch: "requestExitPlanMode", OfTurn: true, Fallback: fixed(`{"approved":false}`)},
	{Method: "autoModeSwitch.request", Switch: "requestAutoModeSwitch", OfTurn: true, Fallback: fixed(`{"response":"no"}`)},
	{Method: HooksInvoke, Switch: "hooks", Fallback: hookFallback},
	{Method: "systemMessage.transform", Fallback: unchangedSections},
	{Method: "canvas.open", Bound: true, Fallback: errorFallback},
	{Method: "canvas.close", Bound: true, Fallback: errorFallback},
	{Method: "canvas.action.invoke", Bound: true, Fallback: errorFallback},
	{Method: "skillProvider.list", Switch: "hasSkillProvider", Fallback: errorFallback},
	{Method: "skillProvider.read", Switch: "hasSkillProvider", Fallback: errorFallback},
}

var (
	byMethod = map[string]*Kind{}
	byDone   = map[string][]*Kind{}
	// types are the kinds of the API, by method, from the options of the enum's values.
	types   = map[string]bridgev1.CallbackKind{}
	methods = map[bridgev1.CallbackKind]string{}
)

func init() {
	values := bridgev1.CallbackKind(0).Descriptor().Values()
	for i := range values.Len() {
		v := values.Get(i)
		if rules, _ := proto.GetExtension(v.Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules); rules.GetValue() != "" {
			types[rules.GetValue()] = bridgev1.CallbackKind(v.Number())
			methods[bridgev1.CallbackKind(v.Number())] = rules.GetValue()
		}
	}
	for _, k := range events {
		k.Event, k.Type = true, typeOf(k.Method)
		byMethod[k.Method] = k
		byDone[k.DoneEvent] = append(byDone[k.DoneEvent], k)
	}
	for _, k := range requests {
		k.Type = typeOf(k.Method)
		byMethod[k.Method] = k
	}
}

func typeOf(method string) bridgev1.CallbackKind {
	if t, ok := types[method]; ok {
		return t
	}
	return bridgev1.CallbackKind_CALLBACK_KIND_RAW
}

// MethodOf returns the method or event type of a kind of the API. ok is false for RAW and for unknown values.
func MethodOf(t bridgev1.CallbackKind) (method string, ok bool) {
	method, ok = methods[t]
	return method, ok
}

// ForEvent returns the kind for which events of the type ask, or nil.
func ForEvent(eventType string) *Kind {
	if k := byMethod[eventType]; k != nil && k.Event {
		return k
	}
	return nil
}

// Answers reports whether a method answers a callback of an event.
func Answers(method string) bool {
	return slices.ContainsFunc(events, func(k *Kind) bool { return k.AnswerMethod == method })
}

// Ends reports whether events of the type end callbacks.
func Ends(eventType string) bool { return byDone[eventType] != nil }

// ForRequest returns the kind of a JSON-RPC request. An unknown method has a default kind.
func ForRequest(method string) *Kind {
	if k := byMethod[method]; k != nil && !k.Event {
		return k
	}
	k := &Kind{Method: method, Type: typeOf(method), Fallback: errorFallback}
	if strings.HasPrefix(method, "sessionFs.") || strings.HasPrefix(method, "llmInference.") {
		k.Limit = ProviderTimeout
	}
	return k
}

// SwitchFor returns the member of a session's configuration that makes the CLI ask
// for callbacks of a method or event type, or "".
func SwitchFor(method string) string {
	if k := byMethod[method]; k != nil {
		return k.Switch
	}
	return ""
}

// Interests lists the event types that the CLI sends only to connections that registered an interest in them.
func Interests() []string {
	var out []string
	for _, k := range events {
		if k.Interest {
			out = append(out, k.Method)
		}
	}
	return out
}

// Switches lists all members of a session's configuration that are switches.
func Switches() []string {
	var out []string
	for _, k := range byMethod {
		if k.Switch != "" && !slices.Contains(out, k.Switch) {
			out = append(out, k.Switch)
		}
	}
	return out
}

// ProviderTimeout is the longest wait for an answer from a program rather than a person. The CLI is idle meanwhile.
const ProviderTimeout = 30 * time.Second

// DefaultTimeout is how long a callback waits for an answer unless its session has another limit. The CLI itself has
// no limit.
const DefaultTimeout = 30 * time.Minute

// Asks returns the method of the request that an event reports, or "".
func Asks(eventType string) string { return Told[eventType] }
