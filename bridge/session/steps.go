package session

import (
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxTools bounds the tools with a span in a session. Further ones have none.
const maxTools = 256

// steps reports the model calls and tools of a session to the observer. The session's lock guards it.
type steps struct {
	observer        *observe.Observer
	session, tenant string
	// turn is the span of the turn that runs, used what its model calls have used.
	turn *observe.Span
	used observe.Tokens
	// tools are the spans of running tools by the ids of their calls.
	tools map[string]*observe.Span
}

// begin notes that a turn with a span, which may be nil, has begun.
func (s *steps) begin(turn *observe.Span) { s.turn, s.used = turn, observe.Tokens{} }

// end notes that the turn has ended. Background tasks go on after a completed turn, with the tools that they run.
func (s *steps) end(status bridgev1.TurnStatus) {
	s.turn = nil
	if status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		s.cut()
	}
}

// cut ends the spans of tools whose end no event shows.
func (s *steps) cut() {
	for _, span := range s.tools {
		span.EndTool(true, "unfinished", time.Now())
	}
	clear(s.tools)
}

// called reports a model call of an agent.
func (s *steps) called(agent string, c *usage.Call, at time.Time) {
	used := observe.Tokens{Input: c.Input, Output: c.Output, CacheRead: c.CacheRead, CacheWrite: c.CacheWrite}
	s.used.Add(used)
	s.observer.ModelCalled(s.turn, s.session, s.tenant, &observe.ModelCall{
		Model: c.Model, Own: c.Own, Endpoint: c.Endpoint, Agent: agent, Tokens: used, Cost: c.Cost, Finish: c.Finish,
		Failed: c.Failed, Status: c.Status, Took: time.Duration(c.Millis) * time.Millisecond,
	}, s.used, at)
}

// toolBegun reports the begin of a tool call.
func (s *steps) toolBegun(rec *journal.Record, at time.Time) {
	if !s.observer.Steps() || len(s.tools) >= maxTools {
		return
	}
	var d struct{ ToolCallID, ToolName string }
	if !event.Data(rec, &d) || s.tools[d.ToolCallID] != nil {
		return
	}
	if s.tools == nil {
		s.tools = map[string]*observe.Span{}
	}
	s.tools[d.ToolCallID] = s.observer.Tool(s.turn, s.session, s.tenant, rec.Agent, d.ToolCallID, d.ToolName, at)
}

// toolEnded reports the end of a tool call.
func (s *steps) toolEnded(rec *journal.Record, at time.Time) {
	if len(s.tools) == 0 {
		return
	}
	var d struct {
		ToolCallID string
		Success    bool
		Error      struct{ Code string }
	}
	event.Data(rec, &d)
	s.tools[d.ToolCallID].EndTool(!d.Success, d.Error.Code, at)
	delete(s.tools, d.ToolCallID)
}
