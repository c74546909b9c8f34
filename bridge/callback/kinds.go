// Package callback knows what the CLI asks of its callers: which kinds there are, how
// each is answered, what the answer is when nobody gives one, and which callbacks of a
// session are pending.
package callback

import (
	"encoding/json"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Kind is one kind of callback.
type Kind struct {
	// Method is the JSON-RPC method of the CLI's request, or the type of the event
	// that asks.
	Method string
	// Type is the kind's type in the API.
	Type bridgev1.CallbackKind
	// Event is set when an event asks: AnswerMethod then takes the answer, and the
	// event of type DoneEvent says that the callback is over.
	Event                   bool
	AnswerMethod, DoneEvent string
	// Switch is the member of the session's configuration that makes the CLI ask;
	// empty when nothing has to be switched on.
	Switch string
	// Survives says that the CLI still knows the callback after its process died and
	// the session was resumed with continuePendingWork.
	Survives bool
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
	// Overflow: too many callbacks of the session are pending.
	Overflow
)

// text completes a sentence about the callback.
func (w Why) text() string {
	switch w {
	case TimedOut:
		return "nobody answered in time"
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
	ToolRequested        = "external_tool.requested"
	PermissionRequested  = "permission.requested"
	ElicitationRequested = "elicitation.requested"
	CommandExecute       = "command.execute"
	UserInputRequest     = "userInput.request"
	ExitPlanModeRequest  = "exitPlanMode.request"
	AutoModeRequest      = "autoModeSwitch.request"
	HooksInvoke          = "hooks.invoke"
	SystemTransform      = "systemMessage.transform"
)

// events are the kinds that an event asks. A kind that has both a request and an
// event, such as user input, is answered by the request; its event only tells.
var events = []*Kind{
	{
		Method: ToolRequested, Type: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL, Event: true,
		AnswerMethod: "session.tools.handlePendingToolCall", DoneEvent: "external_tool.completed",
		Survives: true, Fallback: toolFallback,
	},
	{
		Method: PermissionRequested, Type: bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION, Event: true,
		AnswerMethod: "session.permissions.handlePendingPermissionRequest", DoneEvent: "permission.completed",
		Survives: true, Fallback: fixed(`{"result":{"kind":"user-not-available"}}`),
	},
	{
		Method: ElicitationRequested, Type: raw, Event: true, Switch: "requestElicitation",
		AnswerMethod: "session.ui.handlePendingElicitation", DoneEvent: "elicitation.completed",
		Fallback: fixed(`{"result":{"action":"cancel"}}`),
	},
	{
		Method: CommandExecute, Type: raw, Event: true,
		AnswerMethod: "session.commands.handlePendingCommand", DoneEvent: "command.completed",
		Fallback: commandFallback,
	},
}

// requests are the kinds that a JSON-RPC request asks and that the bridge has an
// answer of its own for; all others fall back to an error.
var requests = []*Kind{
	{Method: UserInputRequest, Type: raw, Switch: "requestUserInput", Fallback: errorFallback},
	{Method: ExitPlanModeRequest, Type: raw, Switch: "requestExitPlanMode", Fallback: fixed(`{"approved":false}`)},
	{Method: AutoModeRequest, Type: raw, Switch: "requestAutoModeSwitch", Fallback: fixed(`{"response":"no"}`)},
	{Method: HooksInvoke, Type: raw, Switch: "hooks", Fallback: hookFallback},
	{Method: SystemTransform, Type: raw, Fallback: unchangedSections},
}

const raw = bridgev1.CallbackKind_CALLBACK_KIND_RAW

var (
	byMethod = map[string]*Kind{}
	byDone   = map[string]*Kind{}
)

func init() {
	for _, k := range events {
		byMethod[k.Method], byDone[k.DoneEvent] = k, k
	}
	for _, k := range requests {
		byMethod[k.Method] = k
	}
}

// ForEvent returns the kind that events of the type ask, or nil.
func ForEvent(eventType string) *Kind {
	if k := byMethod[eventType]; k != nil && k.Event {
		return k
	}
	return nil
}

// DoneBy returns the kind whose callbacks events of the type end, or nil.
func DoneBy(eventType string) *Kind { return byDone[eventType] }

// ForRequest returns the kind of a JSON-RPC request; a method it has not heard of has
// a kind too.
func ForRequest(method string) *Kind {
	if k := byMethod[method]; k != nil && !k.Event {
		return k
	}
	return &Kind{Method: method, Type: raw, Fallback: errorFallback}
}

// SwitchFor returns the member of a session's configuration that makes the CLI ask
// for callbacks of a method or event type, or "".
func SwitchFor(method string) string {
	if k := byMethod[method]; k != nil {
		return k.Switch
	}
	return ""
}

// Switches lists every member of a session's configuration that is one.
func Switches() []string {
	var out []string
	for _, k := range byMethod {
		if k.Switch != "" {
			out = append(out, k.Switch)
		}
	}
	return out
}

// DefaultTimeout is how long a callback waits for an answer unless its session says
// otherwise. The CLI itself waits for ever.
const DefaultTimeout = 30 * time.Minute
