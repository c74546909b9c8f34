package fakecli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answering is one prompt being answered.
type answering struct {
	session     *session
	ctx         context.Context
	interaction string
	message     string // id of the user's message
	turn        int
	told        string // the last answer to a request
}

// errFailed ends an answer after its session.error.
var errFailed = errors.New("failed")

// start runs work in the background with a context that abort ends. The lock
// is held.
func (s *session) start(work func(context.Context)) {
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	ctx := s.ctx
	s.cli.tasks.Go(func() { work(ctx) })
}

// say emits an event from a turn.
func (s *session) say(kind string, data []byte, ephemeral bool) string {
	s.cli.mu.Lock()
	defer s.cli.mu.Unlock()
	return s.emit(kind, data, ephemeral)
}

// work answers prompts until none is left; then comes the one session.idle.
func (s *session) work(ctx context.Context) {
	for {
		s.cli.mu.Lock()
		if len(s.queue) == 0 || ctx.Err() != nil {
			s.rest(ctx)
			s.cli.mu.Unlock()
			return
		}
		in := s.queue[0]
		s.queue = s.queue[1:]
		s.announce()
		s.interaction = s.cli.newID()
		s.userMessage(in)
		turns := s.cli.turnsFor(in.text)
		a := &answering{session: s, ctx: ctx, interaction: s.interaction, message: in.messageID}
		s.cli.mu.Unlock()
		a.run(turns)
	}
}

// rest ends the busy time. The lock is held.
func (s *session) rest(ctx context.Context) {
	s.running = false
	idle, mode := obj(), obj("mode", s.mode)
	if errors.Is(context.Cause(ctx), errAborted) {
		idle, mode = obj("aborted", true), obj("aborted", true, "mode", s.mode)
	}
	s.emit("assistant.idle", idle, true)
	s.emit("session.idle", mode, true)
	for _, f := range s.late {
		s.copy(f)
	}
	s.late = nil
	if len(s.queue) > 0 && !s.gone { // sent after the abort
		s.running = true
		s.start(s.work)
	}
}

// announce tells what the first turn of a loaded session loads.
func (s *session) announce() {
	s.emit("pending_messages.modified", obj(), true)
	if s.started {
		return
	}
	s.started = true
	s.emit("session.skills_loaded", obj("skills", []string{}), true)
	s.emit("session.mcp_servers_loaded", obj("servers", []string{}), true)
	s.emit("session.tools_updated", obj("model", s.config.Model), true)
}

func (s *session) userMessage(in input) {
	if s.title == "" {
		s.title = in.text
		s.emit("session.title_changed", obj("title", s.title), true)
	}
	s.emit("user.message",
		obj("content", in.text, "transformedContent", in.text, "messageId", in.messageID, "delivery", in.delivery,
			"interactionId", s.interaction),
		false)
}

// run makes the model calls of one prompt.
func (a *answering) run(turns []Turn) {
	for i := range turns {
		a.turn = i
		if i == 0 && a.message != "" {
			a.session.say("system.message", obj("role", "system", "content", "You are a fake."), false)
		}
		a.begin()
		err := a.one(&turns[i])
		a.end(err)
		if err != nil {
			return
		}
		if i == len(turns)-1 {
			a.session.say("model.messages_snapshot", obj("kind", "messages_snapshot", "messages", []string{}), true)
			a.strike(turns[i].Fault, AtEnd)
		}
	}
}

func (a *answering) model() string {
	a.session.cli.mu.Lock()
	defer a.session.cli.mu.Unlock()
	return a.session.config.Model
}

func (a *answering) turnID() string { return strconv.Itoa(a.turn) }

func (a *answering) begin() {
	model := a.model()
	a.session.say("model.turn_started",
		obj("kind", "turn_started", "model", model, "turn", a.turn, "timestampMs",
			a.session.cli.opts.Now().UnixMilli()), true)
	a.session.say("assistant.turn_start", obj("turnId", a.turnID(), "interactionId", a.interaction), false)
	a.session.say("session.usage_info", obj("tokenLimit", 128000, "currentTokens", 100, "messagesLength", 2+a.turn),
		true)
	a.session.say("model.log", obj("kind", "log", "level", "debug", "message", "fake model"), true)
	a.session.say("model.call_start", obj("turnId", a.turnID(), "model", model), true)
	a.session.say("model.model_call_started",
		obj("kind", "model_call_started", "model", model, "turn", a.turn, "timestampMs",
			a.session.cli.opts.Now().UnixMilli()), true)
}

func (a *answering) end(err error) {
	if errors.Is(err, errAborted) {
		a.session.say("agent.interrupted", obj("activity", "model_call", "elapsedMs", 0, "turn", a.turn), true)
	}
	a.session.say("model.turn_ended",
		obj("kind", "turn_ended", "model", a.model(), "turn", a.turn, "timestampMs",
			a.session.cli.opts.Now().UnixMilli()), true)
	a.session.say("assistant.turn_end", obj("turnId", a.turnID()), false)
}

// one makes one model call.
func (a *answering) one(t *Turn) error {
	a.strike(t.Fault, AtStart)
	if err := a.pause(t); err != nil {
		return err
	}
	if err := a.askAll(t); err != nil {
		return err
	}
	text, messageID, err := a.stream(t)
	if err != nil {
		return err
	}
	for _, e := range t.Events {
		a.session.say(e.Type, orEmpty(e.Data), e.Ephemeral)
	}
	if t.Error != nil {
		return a.fail(t.Error)
	}
	calls := a.finish(t, text, messageID)
	return a.callTools(t, calls)
}

func (a *answering) pause(t *Turn) error {
	var timer <-chan time.Time
	if !t.Hang {
		tm := time.NewTimer(time.Duration(t.PauseMS) * time.Millisecond)
		defer tm.Stop()
		timer = tm.C
	}
	select {
	case <-timer:
		return nil
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

func (a *answering) fail(e *ModelError) error {
	data := obj("errorType", e.Type, "message", e.Message)
	if e.StatusCode != 0 {
		data = obj("errorType", e.Type, "message", e.Message, "statusCode", e.StatusCode)
	}
	a.session.say("model.model_call_failure", obj("kind", "model_call_failure", "turn", a.turn), true)
	a.session.say("session.error", data, false)
	return errFailed
}

// finish says what a model call came to, and returns the ids of its tool calls.
func (a *answering) finish(t *Turn, text, messageID string) []string {
	calls := make([]string, len(t.Tools))
	requests := []json.RawMessage{}
	for i, tool := range t.Tools {
		calls[i] = "call_" + a.interaction[len(a.interaction)-4:] + "_" + a.turnID() + "_" + strconv.Itoa(i)
		requests = append(requests,
			obj("toolCallId", calls[i], "name", tool.Name, "arguments", orEmpty(tool.Arguments), "type", "function"))
		if a.streaming() {
			a.session.say("assistant.tool_call_delta",
				obj("toolCallId", calls[i], "toolName", tool.Name, "toolType", "function",
					"inputDelta", string(orEmpty(tool.Arguments))), true)
		}
	}
	model := a.model()
	if !slices.ContainsFunc(t.Events, func(e Event) bool { return e.Type == "assistant.usage" }) {
		a.session.say("assistant.usage", obj("model", model, "inputTokens", 1, "outputTokens", 1, "cacheReadTokens", 0,
			"cacheWriteTokens", 0, "cost", 1.5, "duration", 1, "initiator", "user"), true)
	}
	a.session.say("model.model_call_success",
		obj("kind", "model_call_success", "turn", a.turn, "modelCallDurationMs", 1), true)
	a.session.say("model.call_finished",
		obj("turnId", a.turnID(), "dispatchDurationMs", 1, "outcome", "success", "editClassifierVersion", 1), true)
	a.session.say("model.message",
		obj("kind", "message", "turn", a.turn, "message", obj("role", "assistant", "content", text)), true)
	a.session.say("assistant.message",
		obj("messageId", messageID, "originatingMessageId", a.message, "model", model, "content", text,
			"toolRequests", requests, "interactionId", a.interaction, "turnId", a.turnID()), false)
	return calls
}

func (a *answering) callTools(t *Turn, calls []string) error {
	for i, tool := range t.Tools {
		a.session.say("tool.execution_start",
			obj("toolCallId", calls[i], "toolName", tool.Name, "arguments", orEmpty(tool.Arguments),
				"turnId", a.turnID(), "model", a.model()), false)
	}
	errs := make([]error, len(t.Tools))
	var running sync.WaitGroup
	for i := range t.Tools {
		running.Go(func() { errs[i] = a.callTool(&t.Tools[i], calls[i]) })
	}
	if len(t.Tools) > 0 {
		a.strike(t.Fault, AtTools)
	}
	running.Wait()
	return errors.Join(errs...)
}

// request asks the client; events around it are the real one's.
func (a *answering) request(r *Reverse) error {
	a.session.cli.mu.Lock()
	if len(a.session.joined) == 0 || a.session.gone {
		a.session.cli.mu.Unlock()
		return context.Cause(a.ctx)
	}
	k := a.session.joined[len(a.session.joined)-1]
	params := strings.TrimPrefix(string(orEmpty(r.Params)), "{")
	if params != "}" {
		params = "," + params
	}
	requestID := a.session.cli.newID()
	event, asks := strings.CutSuffix(r.Method, ".request")
	event = map[string]string{"userInput": "user_input", "exitPlanMode": "exit_plan_mode",
		"autoModeSwitch": "auto_mode_switch"}[event]
	if asks && event != "" {
		a.session.emit(event+".requested", []byte(`{"requestId":"`+requestID+`"`+params), true)
	}
	body := []byte(`{"sessionId":"` + a.session.id + `"` + params)
	if r.Global {
		body = orEmpty(r.Params)
	}
	answer := k.ask(a.session.id, r.Method, body)
	a.session.cli.mu.Unlock()
	select {
	case m := <-answer:
		a.told = string(m.Result)
		if m.Error != nil {
			a.told = "error: " + m.Error.Message
		}
	case <-k.gone:
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
	if asks && event != "" {
		a.session.say(event+".completed", obj("requestId", requestID), true)
	}
	return nil
}

// strike applies a turn's fault if this is its point.
func (a *answering) strike(f *Fault, at string) {
	if f == nil || f.At != at && (f.At != "" || at != AtStart) {
		return
	}
	a.session.cli.mu.Lock()
	joined := append([]*conn(nil), a.session.joined...)
	a.session.cli.mu.Unlock()
	for _, k := range joined {
		k.misbehave(*f, "")
	}
}
