package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// stalled is the model's answer that never comes.
type stalled struct {
	// limit is how long the bridge waits for an event.
	limit time.Duration
	since time.Time
}

// longTool is how long a tool of the CLI may run without an event.
const longTool = turn.DefaultStall + time.Minute

// stick has the agent wait for a model that never answers, or use a tool that takes longer than a turn may be silent.
func (w *world) stick(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.cli
	if c == nil || c.phase != thinking || c.stuck || c.asksModel() != nil {
		return
	}
	w.stalls = append(w.stalls, stalled{turn.DefaultStall, time.Now()})
	last := &w.stalls[len(w.stalls)-1]
	if n%3 == 0 {
		w.note("the agent uses a tool that takes long")
		last.limit += longTool
		c.useLongTool()
		return
	}
	w.note("the model does not answer")
	if n%3 == 1 {
		last.limit = turn.DefaultModelCall
		c.notify(c.aside("model.call_start", `{}`))
	}
	c.stuck = true
	for _, p := range w.prompts {
		p.stuck = p.stuck || !p.over
	}
	w.turns.end("STALLED")
}

// aside returns an ephemeral event that changes nothing in the run: its id is not one of the others.
func (c *cli) aside(eventType, data string) string {
	c.w.asides++
	return fmt.Sprintf(`{"id":"00000001-0000-4000-8000-%012x","timestamp":%q,"parentId":null,"type":%q,"ephemeral":true,"data":%s}`,
		c.w.asides, c.w.now(), eventType, data)
}

// useLongTool has the agent use a tool of the CLI, which ends by itself.
func (c *cli) useLongTool() {
	c.emit("assistant.message", `{"content":"calling","toolRequests":[{"name":"t"}]}`, -1)
	t := &toolCall{kind: ownTool, id: c.w.uuid(), until: time.Now().Add(longTool)}
	c.calls = append(c.calls, t)
	c.emit("tool.execution_start", `{"toolCallId":"`+t.id+`","toolName":"t"}`, -1)
	c.phase = calling
}

// checkStalled checks that a turn which the bridge gives up has been silent for long enough. The caller holds the world's lock.
func (w *world) checkStalled(out turn.Outcome) {
	if out.Status != bridgev1.TurnStatus_TURN_STATUS_STALLED {
		return
	}
	if !slices.ContainsFunc(w.stalls, func(s stalled) bool { return time.Since(s.since) >= s.limit }) {
		w.failures = append(w.failures, "a turn is given up that has not been silent for long enough")
	}
}

// checkStays: a session that nobody needs stays unloaded. What waits in it for longer than a turn may be silent would have it loaded.
func (w *world) checkStays() {
	if w.ids%4 > 0 { // it takes time
		return
	}
	w.mu.Lock()
	w.fuse = fuse{} // a process that ended now would have it loaded
	w.mu.Unlock()
	w.unload()
	for w.step(0) {
	}
	if w.s.Loader().State() != session.Unloaded {
		return
	}
	w.pass(turn.DefaultStall + time.Minute)
	for w.step(0) {
	}
	if w.s.Loader().State() != session.Unloaded {
		w.fail("a session is loaded again that nobody needs")
	}
}
