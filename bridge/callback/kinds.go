// Package callback knows what the CLI asks of its callers: which kinds there are, how
// each is answered, what the answer is when nobody gives one, and which callbacks of a
// session are pending.
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
	// Event is set when an event asks: AnswerMethod then takes the answer, in the
	// parameter AnswerMember if it has one of its own, and the event of type DoneEvent
	// says that the callback is over.
	Event                                 bool
	AnswerMethod, AnswerMember, DoneEvent string
	// Interest says that the CLI sends the event to those only who registered an
	// interest in it.
	Interest bool
	// Switch is the member of the session's configuration that makes the CLI ask;
	// empty when nothing has to be switched on.
	Switch string
	// Bound says that the CLI asks on the connection on which what it asks about was
	// declared: one participant's, or else the session's.
	Bound bool
	// Survives says that the CLI still knows the callback after its process died and
	// the session was resumed with continuePendingWork.
	Survives bool
	// Limit bounds how long an answer may take, whatever the session says; zero does not.
	Limit time.Duration
	// Fallback gives the bridge's own answer.
	Fallback func(p *Pending, why Why) Reply
}

// Why says why the bridge answers in everybody's place.
type Why uint8

// The whys.
const (
	// Unhandled: nobody handles the kind.
	Unhandled Why = iota
	// TimedOut: nobody answered in time.
	TimedOut
	// Abstained: all who handle it have left it to others.
	Abstained
	// Overflow: too many callbacks of the session are pending.
	Overflow
)

// text completes a sentence about the callback.
func (w Why) text() string {
	switch w {
	case TimedOut:
		return "nobody answered in time"
	case Abstained:
		return "everybody who handles it has abstained"
	case Overflow:
		return "too many requests are pending"
	default:
		return "nobody handles it"
	}
}

// Reply is what the CLI is told. For an event, Members are the parameters of the
// answering call beside sessionId and requestId; for a request, they are its result,
// unless Error is set.
type Reply struct {
	Members json.RawMessage
	Error   *ReplyError
}

// ReplyError answers a request with an error.
type ReplyError struct {
	Code    int32
	Message string
}

// DefaultErrorCode is the JSON-RPC code of an answer that is an error.
const DefaultErrorCode = -32603

// The names other packages need.
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

// events are the kinds that an event asks.
var events = []*Kind{
	{
		Method: ToolRequested, AnswerMethod: "session.tools.handlePendingToolCall",
		DoneEvent: "external_tool.completed", Survives: true, Fallback: toolFallback,
	},
	{
		Method: PermissionRequested, AnswerMethod: "session.permissions.handlePendingPermissionRequest", AnswerMember: "result",
		DoneEvent: "permission.completed", Survives: true, Fallback: fixed(`{"result":{"kind":"user-not-available"}}`),
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

// Told are the events that only tell of what a request asks, with that request.
var Told = map[string]string{
	"user_input.requested":       "userInput.request",
	"exit_plan_mode.requested":   "exitPlanMode.request",
	"auto_mode_switch.requested": "autoModeSwitch.request",
}

// requests are the kinds that a JSON-RPC request asks and whose fallback is not an error,
// or that have a switch or a connection of their own. Every other request is of a kind that
// has none of these.
var requests = []*Kind{
	{Method: "userInput.request", Switch: "requestUserInput", Fallback: errorFallback},
	{Method: "exitPlanMode.request", Switch: "requestExitPlanMode", Fallback: fixed(`{"approved":false}`)},
	{Method: "autoModeSwitch.request", Switch: "requestAutoModeSwitch", Fallback: fixed(`{"response":"no"}`)},
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
	// types are the kinds of the API, by method: the options of the enum's values say so.
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

// MethodOf returns the method or event type of a kind of the API; ok is false for RAW and
// for numbers that are none.
func MethodOf(t bridgev1.CallbackKind) (method string, ok bool) {
	method, ok = methods[t]
	return method, ok
}

// ForEvent returns the kind that events of the type ask, or nil.
func ForEvent(eventType string) *Kind {
	if k := byMethod[eventType]; k != nil && k.Event {
		return k
	}
	return nil
}

// Answers reports whether a method answers an event that asks.
func Answers(method string) bool {
	return slices.ContainsFunc(events, func(k *Kind) bool { return k.AnswerMethod == method })
}

// Ends reports whether events of the type end callbacks.
func Ends(eventType string) bool { return byDone[eventType] != nil }

// ForRequest returns the kind of a JSON-RPC request; a method it has not heard of has
// a kind too.
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

// Interests lists the event types that the CLI only sends to those who registered an
// interest in them.
func Interests() []string {
	var out []string
	for _, k := range events {
		if k.Interest {
			out = append(out, k.Method)
		}
	}
	return out
}

// Switches lists every member of a session's configuration that is one.
func Switches() []string {
	var out []string
	for _, k := range byMethod {
		if k.Switch != "" && !slices.Contains(out, k.Switch) {
			out = append(out, k.Switch)
		}
	}
	return out
}

// ProviderTimeout is how long what a program answers, and no person, waits for it at most:
// the CLI is idle meanwhile.
const ProviderTimeout = 30 * time.Second

// DefaultTimeout is how long a callback waits for an answer unless its session says
// otherwise. The CLI itself waits for ever.
const DefaultTimeout = 30 * time.Minute

// Asks returns the method of the request that an event tells of which asks nothing itself,
// or "".
func Asks(eventType string) string { return Told[eventType] }
