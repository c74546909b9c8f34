package fakecli

import (
	"context"
	"encoding/json"
	"strings"
)

// callTool runs one tool call to its tool.execution_complete.
func (a *answering) callTool(t *Tool, callID string) error {
	a.session.cli.mu.Lock()
	def, declared := a.session.tool(t.Name)
	a.session.cli.mu.Unlock()
	if !declared && t.Output == "" && t.Permission == nil {
		a.complete(callID, toolOutcome{failure: "Tool '" + t.Name + "' does not exist."})
		return nil
	}
	if !def.SkipPermission {
		refusal, err := a.permission(t, def, callID)
		if err != nil || refusal != nil {
			if refusal != nil {
				a.complete(callID, *refusal)
			}
			return err
		}
	}
	if !declared {
		a.complete(callID, toolOutcome{text: t.Output})
		return nil
	}
	outcome, err := a.external(t, callID)
	if err == nil {
		a.complete(callID, outcome)
	}
	return err
}

// permission asks for one, and returns how the tool fails without.
func (a *answering) permission(t *Tool, def toolDef, callID string) (*toolOutcome, error) {
	a.session.cli.mu.Lock()
	if a.session.approveAll {
		a.session.cli.mu.Unlock()
		return nil, nil
	}
	if !a.session.config.RequestPermission {
		a.session.cli.mu.Unlock()
		return &toolOutcome{failure: "Permission denied and could not request permission from user",
			code: "denied"}, nil
	}
	request := t.Permission
	if request == nil {
		request = obj("kind", "custom-tool", "toolCallId", callID, "toolName", t.Name, "toolDescription",
			def.Description, "args", orEmpty(t.Arguments))
	}
	id := a.session.cli.newID()
	w := a.session.wait(id, pendingPermission, obj("requestId", id, "permissionRequest", request))
	a.session.emit("permission.requested", obj("requestId", id, "permissionRequest", request, "promptRequest", request,
		"agentMode", a.session.mode, "permissionMode", "manual"), false)
	a.session.cli.mu.Unlock()
	answer, err := a.session.await(a.ctx, w)
	if err != nil {
		a.session.say("permission.completed", obj("requestId", id, "toolCallId", callID,
			"result", obj("kind", "cancelled", "reason", "Session aborted")), false)
		return nil, err
	}
	result, refusal := decide(answer)
	a.session.say("permission.completed", obj("requestId", id, "toolCallId", callID, "result", result), false)
	return refusal, nil
}

// decide reads an answer to a permission request as the real CLI does.
func decide(answer json.RawMessage) (result json.RawMessage, refusal *toolOutcome) {
	var p struct {
		Result struct{ Kind, Feedback string }
	}
	_ = json.Unmarshal(answer, &p)
	switch kind := p.Result.Kind; {
	case strings.HasPrefix(kind, "approve-"):
		return obj("kind", "approved"), nil
	case kind == "reject":
		return obj("kind", "denied-interactively-by-user", "feedback", p.Result.Feedback),
			&toolOutcome{failure: "The user rejected this tool call. User feedback: " + p.Result.Feedback,
				code: "denied"}
	case kind == "user-not-available":
		return obj("kind", "denied-no-approval-rule-and-could-not-request-from-user"),
			&toolOutcome{failure: "Permission denied and could not request permission from user", code: "denied"}
	default:
		return obj("kind",
			kind), &toolOutcome{failure: "permission host returned malformed payload: unknown variant `" + kind + "`"}
	}
}

// external lets the client run a tool.
func (a *answering) external(t *Tool, callID string) (toolOutcome, error) {
	a.session.cli.mu.Lock()
	id := a.session.cli.newID()
	data := obj("requestId", id, "sessionId", a.session.id, "toolCallId", callID, "toolName", t.Name,
		"arguments", orEmpty(t.Arguments), "workingDirectory", a.session.config.WorkingDirectory)
	w := a.session.wait(id, pendingTool, data)
	a.session.emit("external_tool.requested", data, false)
	a.session.cli.mu.Unlock()
	answer, err := a.session.await(a.ctx, w)
	a.session.say("external_tool.completed", obj("requestId", id), false)
	return readOutcome(answer), err
}

// wait registers something asked of the client. The lock is held.
func (s *session) wait(id, kind string, info json.RawMessage) *pending {
	w := &pending{id: id, kind: kind, info: info, answer: make(chan json.RawMessage, 1)}
	s.waiting[id] = w
	return w
}

func (s *session) await(ctx context.Context, w *pending) (json.RawMessage, error) {
	select {
	case answer := <-w.answer:
		return answer, nil
	case <-ctx.Done():
		s.cli.mu.Lock()
		delete(s.waiting, w.id)
		s.cli.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

// toolOutcome is what a tool call came to.
type toolOutcome struct{ text, failure, code string }

// readOutcome reads an answer to a tool call: a text, a result object, an
// error, or nothing.
func readOutcome(answer json.RawMessage) toolOutcome {
	var p struct {
		Result json.RawMessage
		Error  *string
	}
	_ = json.Unmarshal(answer, &p)
	var text string
	var result struct{ TextResultForLlm, ResultType, Error string }
	switch {
	case p.Error != nil && p.Result == nil:
		return toolOutcome{failure: "Tool execution failed"}
	case p.Result == nil || string(p.Result) == "null":
		return toolOutcome{failure: "Tool returned no result."}
	case json.Unmarshal(p.Result, &text) == nil:
		return toolOutcome{text: text}
	}
	_ = json.Unmarshal(p.Result, &result)
	if result.ResultType != "" && result.ResultType != "success" {
		return toolOutcome{failure: result.TextResultForLlm, code: result.ResultType}
	}
	return toolOutcome{text: result.TextResultForLlm}
}

// complete says what a tool call came to.
func (a *answering) complete(callID string, o toolOutcome) {
	if o.failure == "" {
		a.session.say("tool.execution_complete",
			obj("toolCallId", callID, "model", a.model(), "interactionId", a.interaction, "turnId", a.turnID(),
				"success", true, "result", obj("content", o.text, "detailedContent", o.text)), false)
		return
	}
	failure := obj("message", o.failure)
	if o.code != "" {
		failure = obj("message", o.failure, "code", o.code)
	}
	a.session.say("tool.execution_complete",
		obj("toolCallId", callID, "model", a.model(), "interactionId", a.interaction, "turnId", a.turnID(),
			"success", false, "error", failure), false)
}
