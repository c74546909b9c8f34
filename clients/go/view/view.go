// Package view computes the state of a user interface from the frames of a session:
//
//	var v view.View
//	for frame, err := range session.Frames(ctx, copilot.FromBeginning()) {
//		if err != nil {
//			return err
//		}
//		v = view.Reduce(v, frame)
//		show(v)
//	}
//
// The package has no clock, network or state: the same frames always result in the same view.
// Views are values that nothing changes; the view after a frame shares what has not changed.
package view

import (
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// View is what a user interface shows of a session. The zero value is the view before the first
// frame. Callers must not modify its slices and messages.
type View struct {
	// The session as last reported; nil before that. Its events update Title and Model.
	Session *bridgev1.Session
	Title   string
	Model   string
	// The timeline.
	Items []Item
	Turn  Turn
	// Callbacks that wait for an answer, oldest first, if the stream has callbacks.
	Pending []*bridgev1.Callback
	Usage   Usage
	// The sub-agents, in the order of their start.
	Agents []Agent
	// The replay is complete.
	CaughtUp bool
	// The server will end this stream soon; the library continues on another one.
	GoingAway bool
	// The reason for the end of the session's frames; unspecified before.
	Closed bridgev1.CloseReason
	// The latest position: a stream can continue after it with the same view.
	Position *bridgev1.Position
}

// Turn is the state of the turn.
type Turn struct {
	Running bool
	// What the agent says it is doing.
	Intent string
	// The outcome of the last turn that ended in this stream; nil if none.
	Outcome *bridgev1.TurnOutcome
}

// Usage counts the tokens of the session, as far as this stream reported them.
type Usage struct {
	Requests     int
	InputTokens  int64
	OutputTokens int64
	Cost         float64
	// Tokens in the model's context, and their limit; 0 if unknown.
	ContextTokens int64
	ContextLimit  int64
}

// AgentState is the state of a sub-agent.
type AgentState string

// The states of a sub-agent.
const (
	AgentRunning   AgentState = "running"
	AgentCompleted AgentState = "completed"
	AgentFailed    AgentState = "failed"
)

// Agent is a sub-agent.
type Agent struct {
	AgentID string
	// The call of a tool that started it.
	ToolCallID string
	Name       string
	State      AgentState
	Error      string
	// Totals at the end; 0 before.
	ToolCalls int64
	Tokens    int64
	Duration  time.Duration
}

// Item is an entry of the timeline: a [User], [Message], [Reasoning], [Tool], [Notice], [Gap] or
// [Restart].
type Item interface{ head() Head }

// Head is what all items have.
type Head struct {
	// Key is stable and unique among the items of its kind, for lists of user interfaces.
	Key string
	// Position is that of the event which created the item.
	Position *bridgev1.Position
}

func (h Head) head() Head { return h }

// KeyOf returns the key of an item.
func KeyOf(i Item) string { return i.head().Key }

// User is a message of a user.
type User struct {
	Head
	// The sub-agent that received the message from its parent; empty for a message of the
	// conversation itself.
	AgentID     string
	Text        string
	Attachments []Attachment
	// The sender of a message that is not a person's, such as a schedule.
	Source string
	// The message was accepted and lost with its CLI process: it is not part of the
	// conversation.
	Lost bool
	// Time of the event; zero if unknown.
	At time.Time
}

// Attachment is an attachment of a prompt.
type Attachment struct {
	// Such as "file", "directory", "blob" or "selection"; empty for a kind that this library does
	// not know.
	Kind string
	// The name for people; empty if there is none.
	Name string
	// The content's MIME type; empty if unknown.
	MIMEType string
}

// Message is a message of the agent, or of a sub-agent.
type Message struct {
	Head
	// The sub-agent; empty for the session's own agent.
	AgentID string
	Text    string
	// More deltas can follow.
	Streaming bool
	// Time of the first event; zero if unknown.
	At time.Time
}

// Reasoning is reasoning of the model.
type Reasoning struct {
	Head
	// The sub-agent; empty for the session's own agent.
	AgentID string
	Text    string
	// More deltas can follow.
	Streaming bool
	// Time of the first event; zero if unknown.
	At time.Time
}

// ToolState is the state of a tool call.
type ToolState string

// The states of a tool call, in their order.
const (
	ToolStreaming ToolState = "streaming"
	ToolRequested ToolState = "requested"
	ToolRunning   ToolState = "running"
	ToolCompleted ToolState = "completed"
	ToolFailed    ToolState = "failed"
)

// Tool is a call of a tool.
type Tool struct {
	Head
	// The sub-agent; empty for the session's own agent.
	AgentID    string
	ToolCallID string
	Name       string
	// The arguments as JSON text; incomplete while the state is ToolStreaming.
	ArgumentsJSON string
	State         ToolState
	// The output so far, or the result.
	Output string
	// The result for people, such as a diff; empty if it is the same as the output.
	Detail string
	// The latest message about the progress.
	Progress string
	// The error of a failed call.
	Error string
	// Start and end of the execution; zero before, or if unknown.
	StartedAt, EndedAt time.Time
}

func (t Tool) isDone() bool { return t.State == ToolCompleted || t.State == ToolFailed }

// Level is how serious a notice is.
type Level string

// The levels of notices.
const (
	Info    Level = "info"
	Warning Level = "warning"
	Error   Level = "error"
)

// Notice is a message of the CLI about the session.
type Notice struct {
	Head
	Level Level
	Text  string
}

// Gap stands for missing events, up to its position.
type Gap struct {
	Head
	Reason bridgev1.GapReason
	After  *bridgev1.Position
}

// Restart says that the session's CLI process ended and was replaced.
type Restart struct {
	Head
	Cause string
}
