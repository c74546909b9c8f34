package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// stage is how far a tool call of the agent is.
type stage uint8

const (
	begun    stage = iota
	asked          // its permission is requested
	approved       // the permission is given
	denied         // the permission is refused
	called         // a caller's tool, or the user's answer, is awaited
	returned       // the caller has answered
	// unended: an earlier process had the caller's answer and ended before it wrote the end of the call. The CLI waits for
	// that end until the turn is aborted.
	unended
)

// The kinds of tool calls.
const (
	ownTool     = 't' // of the CLI, without a permission
	callersTool = 's'
	permitted   = 'p' // a caller's, with a permission
	question    = 'q' // to the user
	hooked      = 'h' // of the CLI, behind a hook
)

// toolCall is a tool call of the agent. Those of one message go on independently of each other.
type toolCall struct {
	kind    rune
	id      string
	stage   stage
	request string // the id of the request that its stage is about
	// until is when it ends at the earliest.
	until time.Time
}

// waits reports whether only an answer takes the call on.
func (t *toolCall) waits() bool { return t.stage == asked || t.stage == called }

// declaration is what a session has declared to the process.
type declaration struct {
	Tools, Commands  []named
	RequestUserInput bool
	Hooks            bool
	ClientName       string
	Model            string
	Provider         struct {
		BaseURL, APIKey string
		Headers         map[string]string
	}
	GitHubToken string
}

// can reports whether the agent can make a call of a kind.
func (d declaration) can(kind rune) bool {
	switch kind {
	case question:
		return d.RequestUserInput
	case hooked:
		return d.Hooks
	case ownTool:
		return true
	}
	return slices.ContainsFunc(d.Tools, func(t named) bool { return t.Name == string(kind) })
}

// isToldMore reports whether the bridge has sent another configuration, or has to wait with it for a command: who handles a callback
// since a load was under way is told to the process behind it.
func (c *cli) isToldMore() bool {
	return c.w.invoking || slices.ContainsFunc(c.requests, func(r request) bool { return r.method == "session.resume" })
}

// beginCalls has the agent call tools with one message.
func (c *cli) beginCalls(kinds string) {
	c.emit("assistant.message", `{"content":"calling","toolRequests":[{"name":"t"}]}`, -1)
	for _, kind := range kinds {
		if !c.declared.can(kind) {
			if c.w.declares(kind) && !c.isToldMore() {
				c.w.failures = append(c.w.failures, fmt.Sprintf("the CLI does not know the tool %c", kind))
			}
			kind = ownTool
		}
		t := &toolCall{kind: kind, id: c.w.uuid()}
		c.calls = append(c.calls, t)
		c.emit("tool.execution_start", fmt.Sprintf(`{"toolCallId":%q,"toolName":%q}`, t.id, string(kind)), -1)
	}
	c.phase = calling
}

// callSteps are what the calls of the agent can do next.
func (c *cli) callSteps() (all []func()) {
	for _, t := range c.calls {
		if !t.waits() && t.stage != unended && !time.Now().Before(t.until) {
			all = append(all, func() { c.advance(t) })
		}
	}
	if len(c.calls) == 0 {
		all = append(all, c.endCalls)
	}
	return all
}

// advance takes a call on that waits for no answer.
func (c *cli) advance(t *toolCall) {
	switch {
	case t.stage == begun && t.kind == permitted:
		t.stage, t.request = asked, c.w.uuid()
		c.emit("permission.requested", fmt.Sprintf(`{"requestId":%q,"permissionRequest":{"kind":"custom-tool","toolCallId":%q,"toolName":"p"}}`,
			t.request, t.id), -1)
	case t.stage == begun && t.kind == question:
		t.stage, t.request = called, questionID(t)
		c.emit("user_input.requested", fmt.Sprintf(`{"requestId":%q,"toolCallId":%q,"question":%q}`, t.request, t.id, t.id), -1)
		c.questions[t.request] = t
		c.pipe.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"userInput.request","params":{"sessionId":"s1","question":%q}}`,
			t.request, t.id))
	case t.stage == begun && t.kind == hooked:
		c.askHook(t)
	case t.stage == begun && t.kind == callersTool, t.stage == approved:
		if t.stage == approved && c.resumed {
			c.emit("tool.execution_start", fmt.Sprintf(`{"toolCallId":%q,"toolName":"p"}`, t.id), -1)
		}
		t.stage, t.request = called, c.w.uuid()
		c.emit("external_tool.requested", fmt.Sprintf(`{"requestId":%q,"toolCallId":%q,"toolName":%q}`, t.request, t.id, string(t.kind)), -1)
	default:
		c.completeCall(t, t.stage != denied)
		c.calls = slices.DeleteFunc(c.calls, func(o *toolCall) bool { return o == t })
	}
}

func (c *cli) completeCall(t *toolCall, success bool) {
	c.emit("tool.execution_complete", fmt.Sprintf(`{"toolCallId":%q,"success":%v}`, t.id, success), -1)
}

// questionID is the id of a question of the agent, and of the callback that it is for callers.
func questionID(t *toolCall) string { return "q-" + t.id }

// endCalls goes on with the turn behind its calls, unless a permission was refused without a word to the agent. A process that has taken the turn over says so with an interaction.
func (c *cli) endCalls() {
	turnID := 1
	if c.resumed {
		turnID = 0
		c.w.interaction++
		c.resumed = false
	} else {
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	}
	if c.stops {
		c.phase = deciding
		c.emit("abort", `{"reason":"user_initiated"}`, -1)
		c.abortEvent = c.events[len(c.events)-1]
		c.removeWaiting()
		c.end("ABORTED")
		return
	}
	c.beginStep(turnID)
	c.phase = thinking
}

// beginStep begins a request to the model, with the messages that steer the turn.
func (c *cli) beginStep(turnID int) {
	c.emit("assistant.turn_start", fmt.Sprintf(`{"turnId":"%d","interactionId":"i%d"}`, turnID, c.w.interaction), -1)
	for _, in := range c.steering {
		c.say(in, "steering")
	}
	c.steering = nil
}

// answerCall takes the answer to a request of an event.
func (c *cli) answerCall(r request, awaited stage) {
	for _, t := range c.calls {
		if t.stage != awaited || t.request != r.params.RequestID || t.kind == question || t.kind == hooked {
			continue
		}
		c.w.taken(t.request, string(r.params.Result))
		if awaited == called {
			t.stage = returned
			c.emit("external_tool.completed", fmt.Sprintf(`{"requestId":%q}`, t.request), -1)
		} else {
			c.decide(t, r.params.Result)
		}
		c.reply(r, `{"success":true}`)
		return
	}
	c.reply(r, `{"success":false}`)
}

// decide takes the answer to a request for a permission.
func (c *cli) decide(t *toolCall, result json.RawMessage) {
	var d struct{ Kind, Feedback string }
	_ = json.Unmarshal(result, &d) // what is no object is refused
	t.stage = denied
	switch d.Kind {
	case "approve-once":
		t.stage = approved
		c.completePermission(t, "approved")
	case "user-not-available":
		c.completePermission(t, "denied-no-approval-rule-and-could-not-request-from-user")
	default:
		c.stops = c.stops || d.Feedback == "" && !c.resumed
		c.completePermission(t, "denied-interactively-by-user")
	}
}

func (c *cli) completePermission(t *toolCall, kind string) {
	c.emit("permission.completed", fmt.Sprintf(`{"requestId":%q,"toolCallId":%q,"result":{"kind":%q}}`, t.request, t.id, kind), -1)
}

// answerQuestion takes the reply to a question, whose turn may have been aborted.
func (c *cli) answerQuestion(r request) {
	var id string
	_ = json.Unmarshal(r.id, &id) // the ids of questions are texts
	t := c.questions[id]
	if t == nil && !c.lost[id] {
		c.w.failures = append(c.w.failures, fmt.Sprintf("the bridge replies twice, or to no question: %s", r.id))
		return
	}
	delete(c.questions, id)
	delete(c.lost, id)
	if t == nil {
		return
	}
	if t.kind == hooked {
		c.hookReplied(t, r.answer)
		return
	}
	if slices.Contains(c.calls, t) {
		c.w.taken(id, string(r.answer))
		t.stage = returned
	}
	c.emit("user_input.completed", fmt.Sprintf(`{"requestId":%q}`, id), -1)
}

// cancelCalls ends the calls of an aborted turn. Their ends and that of the step come in any order, and the record has the
// abort before or behind them.
func (c *cli) cancelCalls() {
	early, first := c.w.lot()%2 == 0, c.w.lot()/2%2 == 0
	if first {
		c.events = append(c.events, c.abortEvent)
	}
	if early {
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	}
	for _, t := range c.cancelled {
		switch {
		case t.stage == asked:
			c.completePermission(t, "cancelled")
		case t.stage == called && t.kind != question && t.kind != hooked:
			c.emit("external_tool.completed", fmt.Sprintf(`{"requestId":%q}`, t.request), -1)
		}
	}
	if !early {
		c.emit("assistant.turn_end", `{"turnId":"0"}`, -1)
	}
	if !first {
		c.events = append(c.events, c.abortEvent)
	}
	c.cancelled = nil
}

// waiting lists the requests that the agent waits for, of a type of events.
func (c *cli) waiting(s stage, questions bool) (ids []string) {
	for _, t := range c.calls {
		if t.stage == s && t.kind != hooked && (t.kind == question) == questions {
			ids = append(ids, t.request)
		}
	}
	return ids
}

// waits lists all requests that the agent waits for; none without a process.
func (c *cli) waits() []string {
	if c == nil {
		return nil
	}
	return slices.Concat(c.waiting(asked, false), c.waiting(called, false), c.waiting(called, true), c.openHooks(), c.running(), c.canvases, c.openModels())
}

// openHooks are the hooks that have no reply, also those of aborted turns.
func (c *cli) openHooks() (ids []string) {
	for id, t := range c.questions {
		if t.kind == hooked {
			ids = append(ids, id)
		}
	}
	return ids
}

// list is the result of the methods that list requests.
func list(ids []string) string {
	items := []map[string]string{}
	for _, id := range ids {
		items = append(items, map[string]string{"requestId": id})
	}
	text, _ := json.Marshal(map[string]any{"items": items}) // of texts
	return string(text)
}

// unendedCalls are the calls that a record leaves unended.
func unendedCalls(record []stored) (open []*toolCall) {
	type event struct {
		Type string
		Data struct {
			RequestID, ToolCallID, ToolName string
			PermissionRequest               struct{ ToolCallID string }
			Result                          struct{ Kind string }
		}
	}
	find := func(is func(*toolCall) bool) *toolCall {
		if i := slices.IndexFunc(open, is); i >= 0 {
			return open[i]
		}
		return &toolCall{}
	}
	for _, s := range record {
		var e event
		if s.agent {
			continue
		}
		_ = json.Unmarshal([]byte(s.json), &e) // the model has made it
		d := e.Data
		ofCall := func(t *toolCall) bool { return t.id == d.ToolCallID || t.id == d.PermissionRequest.ToolCallID }
		ofRequest := func(t *toolCall) bool { return t.request == d.RequestID }
		switch e.Type {
		case "tool.execution_start":
			if find(ofCall).id == "" {
				open = append(open, &toolCall{kind: rune(d.ToolName[0]), id: d.ToolCallID})
			}
		case "permission.requested":
			t := find(ofCall)
			t.stage, t.request = asked, d.RequestID
		case "permission.completed":
			if t := find(ofRequest); d.Result.Kind == "approved" {
				t.stage = approved
			} else {
				t.stage = denied
			}
		case "external_tool.requested":
			t := find(ofCall)
			t.stage, t.request = called, d.RequestID
		case "external_tool.completed":
			find(ofRequest).stage = unended
		case "tool.execution_complete":
			open = slices.DeleteFunc(open, ofCall)
		case "abort", "assistant.turn_end":
			open = nil
		}
	}
	return open
}

// takeOver has the process go on with the calls that an earlier one has left, once the session is resumed.
func (c *cli) takeOver(continuePending bool) {
	for _, t := range unendedCalls(c.events) {
		if !continuePending || t.stage == begun || t.stage == approved {
			c.stale = append(c.stale, t)
		} else {
			c.calls = append(c.calls, t)
		}
	}
	if len(c.calls) > 0 {
		c.phase, c.resumed, c.text = calling, true, "C"
		c.took = -1
		for _, e := range c.events {
			if e.said >= 0 {
				c.took = e.said
			} else if e.isMessage() {
				c.took = -1
			}
		}
	}
}

// interrupt ends the calls that cannot go on.
func (c *cli) interrupt() {
	if len(c.stale) == 0 {
		return
	}
	for _, t := range c.stale {
		c.completeCall(t, false)
	}
	c.stale = nil
	c.emit("session.warning", `{"message":"tool calls had no recorded result"}`, -1)
}
