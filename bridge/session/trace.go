package session

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxTools bounds the tools with a span in a session, and maxToolID the bytes of the ids of their calls, which models choose.
// Further ones have none.
const maxTools, maxToolID = 256, 256

// trace reports the model calls and tools of a session to the observer. The session's lock guards it.
type trace struct {
	s        *Session
	observer *observe.Observer
	// turn is the span of the turn that runs, used what its model calls have used.
	turn *observe.Span
	used observe.Tokens
	// tools are the spans of running tools by the ids of their calls.
	tools map[string]*observe.Span
}

// begin notes that a turn with a span, which may be nil, has begun.
func (t *trace) begin(turn *observe.Span) { t.turn, t.used = turn, observe.Tokens{} }

// end notes that the turn has ended. Background tasks go on after a completed turn, with the tools that they run.
func (t *trace) end(status bridgev1.TurnStatus) {
	t.turn = nil
	if status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.cut()
	}
}

// cut ends the spans of tools whose end no event shows.
func (t *trace) cut() {
	for _, span := range t.tools {
		span.EndTool(true, "unfinished", time.Now())
	}
	clear(t.tools)
}

// called reports a model call of an agent.
func (t *trace) called(agent string, c *usage.Call, at time.Time) {
	used := observe.Tokens{Input: c.Input, Output: c.Output, CacheRead: c.CacheRead, CacheWrite: c.CacheWrite}
	t.used.Add(used)
	t.observer.ModelCalled(t.turn, t.s.id, t.s.tenant, &observe.ModelCall{
		Model: c.Model, Own: c.Own, Endpoint: c.Endpoint, Agent: agent, Tokens: used, Cost: c.Cost, Finish: c.Finish,
		Traced: t.byCLI(), Failed: c.Failed, Status: c.Status, Took: time.Duration(c.Millis) * time.Millisecond,
	}, t.used, at)
}

// byCLI reports whether the CLI exports spans of model calls and tools itself. They are more detailed.
func (t *trace) byCLI() bool {
	rt := t.s.loader.runtime
	return rt != nil && rt.Traces()
}

// asking returns the span in which the CLI asks for a callback: that of the tool that it concerns, or else of the turn; nil if
// there is none.
func (t *trace) asking(p *callback.Pending) *observe.Span {
	turn := t.s.turns.span()
	if len(t.tools) == 0 {
		return turn
	}
	var d struct {
		ToolCallID        string
		PermissionRequest struct{ ToolCallID string }
	}
	_ = json.Unmarshal(p.Params, &d) // a member that does not fit names no tool
	return cmp.Or(t.tools[d.ToolCallID], t.tools[d.PermissionRequest.ToolCallID], turn)
}

// toolBegun reports the begin of a tool call.
func (t *trace) toolBegun(rec *journal.Record, at time.Time) {
	if !t.observer.Traces() || t.byCLI() || len(t.tools) >= maxTools {
		return
	}
	var d struct{ ToolCallID, ToolName string }
	if !event.Data(rec, &d) || t.tools[d.ToolCallID] != nil || len(d.ToolCallID) > maxToolID {
		return
	}
	if t.tools == nil {
		t.tools = map[string]*observe.Span{}
	}
	t.tools[d.ToolCallID] = t.observer.Tool(t.turn, t.s.id, t.s.tenant, rec.Agent, d.ToolCallID, d.ToolName, at)
}

// toolEnded reports the end of a tool call.
func (t *trace) toolEnded(rec *journal.Record, at time.Time) {
	if len(t.tools) == 0 {
		return
	}
	var d struct {
		ToolCallID string
		Success    bool
		Error      struct{ Code string }
	}
	event.Data(rec, &d)
	t.tools[d.ToolCallID].EndTool(!d.Success, d.Error.Code, at)
	delete(t.tools, d.ToolCallID)
}
