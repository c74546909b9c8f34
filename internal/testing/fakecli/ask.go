package fakecli

import (
	"context"
	"encoding/json"
	"strings"
)

// asked is how the client answers an event that asks for something: the method it calls and the event that ends it.
// Tools and permissions have separate rules.
type asked struct{ method, completed string }

var askedBy = map[string]asked{
	"elicitation.requested":      {"session.ui.handlePendingElicitation", "elicitation.completed"},
	"user_input.requested":       {"session.ui.handlePendingUserInput", "user_input.completed"},
	"exit_plan_mode.requested":   {"session.ui.handlePendingExitPlanMode", "exit_plan_mode.completed"},
	"auto_mode_switch.requested": {"session.ui.handlePendingAutoModeSwitch", "auto_mode_switch.completed"},
	"sampling.requested":         {"session.ui.handlePendingSampling", "sampling.completed"},
	"session_limits_exhausted.requested": {"session.ui.handlePendingSessionLimitsExhausted",
		"session_limits_exhausted.completed"},
	"command.execute":    {"session.commands.handlePendingCommand", "command.completed"},
	"mcp.oauth_required": {"session.mcp.oauth.handlePendingRequest", "mcp.oauth_completed"},
	"mcp.headers_refresh_required": {"session.mcp.headers.handlePendingHeadersRefreshRequest",
		"mcp.headers_refresh_completed"},
}

// askedWith finds the event that a method answers.
func askedWith(method string) string {
	for event, a := range askedBy {
		if a.method == method {
			return event
		}
	}
	return ""
}

// ask emits an event that asks for something and waits for the answer, which
// changes nothing but that the turn goes on.
func (a *answering) ask(e *Event) error {
	a.session.cli.mu.Lock()
	id := a.session.cli.newID()
	data := `{"requestId":"` + id + `"`
	if members := strings.TrimPrefix(string(orEmpty(e.Data)), "{"); members != "}" {
		data += "," + members
	} else {
		data += "}"
	}
	w := a.session.wait(id, e.Type, json.RawMessage(data))
	a.session.emit(e.Type, []byte(data), true)
	a.session.cli.mu.Unlock()
	_, err := a.session.await(a.ctx, w)
	a.session.say(askedBy[e.Type].completed, obj("requestId", id), true)
	return err
}

// askAll asks one thing after the other.
func (a *answering) askAll(t *Turn) error {
	for i := range t.Requests {
		if err := a.request(&t.Requests[i]); err != nil {
			return err
		}
	}
	for i := range t.Asks {
		if err := a.ask(&t.Asks[i]); err != nil {
			return err
		}
	}
	return context.Cause(a.ctx)
}
