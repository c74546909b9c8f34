package tenancy

import (
	"context"
	_ "embed"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// This file says what guests may do in a session of another tenant. The session's CLI process
// belongs to its owner: it has the owner's files, accounts and tools, and perhaps no sandbox. The
// server checks the fields of guests' requests (caller.CheckGuest). Here are the checks that no
// field expresses: methods and answers that make the owner's process act on its machine.

//go:embed guest_methods.txt
var guestMethodsText string

// guestMethods are the rows of guest_methods.txt: empty for the methods that guests may call, and
// why they may not call the others.
var guestMethods = mustGuestMethods(guestMethodsText)

func mustGuestMethods(text string) map[string]string {
	table := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		method, rest, _ := strings.Cut(line, " ")
		answer, why, _ := strings.Cut(rest, " ")
		_, twice := table[method]
		if good := answer == "yes" && why == "" || answer == "no" && why != ""; twice || !good {
			panic("tenancy: guest_methods.txt: " + line) // it is part of the program
		}
		table[method] = why
	}
	return table
}

// guestCallbacks are the kinds of callback that guests receive and may answer: questions to the people and
// tools of a conversation. The other kinds concern the owner's machine (files, model requests with their keys,
// hooks, accounts), or are not known yet.
var guestCallbacks = map[string]bool{
	callback.ToolRequested: true, callback.PermissionRequested: true,
	callback.CommandExecute: true, callback.CommandQueued: true,
	"elicitation.requested": true, "session_limits_exhausted.requested": true,
	"userInput.request": true, "exitPlanMode.request": true, "autoModeSwitch.request": true,
	"canvas.open": true, "canvas.close": true, "canvas.action.invoke": true, // of a canvas of the guest's own
}

// CheckMethod rejects a method of the CLI that is not for guests if id names a shared session.
func CheckMethod(method, id string) error {
	if !IsShared(id) {
		return nil
	}
	why, listed := guestMethods[method]
	switch {
	case !listed:
		return fault.New(fault.Forbidden, "%s is not allowed in sessions of other tenants", method).WithField("session_id")
	case why != "":
		return fault.New(fault.Forbidden, "%s is not allowed in sessions of other tenants: it %s, which only the owner may use", method, why).
			WithField("session_id")
	}
	return nil
}

// CheckHandlers rejects callbacks that a guest may not answer. at is the path of the handlers in
// the request.
func CheckHandlers(ctx context.Context, s Session, methods []string, at string) error {
	if !Foreign(ctx, s) {
		return nil
	}
	for _, method := range methods {
		if !guestCallbacks[method] {
			return fault.New(fault.Forbidden, onlyOwner, method).WithField(at)
		}
	}
	return nil
}

// onlyOwner says that a guest may not answer callbacks of a method.
const onlyOwner = "only the tenant that owns the session may answer %s"

// approvesOnce is the one decision by which a guest may approve, and callersTool the one kind of
// request: a tool that some caller serves.
const (
	approvesOnce = "approve-once"
	callersTool  = "custom-tool"
)

// declines are the decisions that approve nothing.
var declines = map[string]bool{"reject": true, "user-not-available": true}

// CheckAnswer rejects a guest's answer that lets the owner's process do something on its machine.
// It checks the reply that the CLI would get, so that every form of an answer is covered.
func CheckAnswer(ctx context.Context, s Session, p *callback.Pending, reply callback.Reply, at string) error {
	if !Foreign(ctx, s) {
		return nil
	}
	refused := func(format string, args ...any) error {
		return fault.New(fault.Forbidden, format, args...).WithField(at).With("callback_id", p.ID)
	}
	if !guestCallbacks[p.Kind.Method] {
		return refused(onlyOwner, p.Kind.Method)
	}
	if p.Kind.Method != callback.PermissionRequested || reply.Error != nil {
		return nil
	}
	decision, err := jsonobj.Parse(reply.Members)
	if err == nil {
		decision, err = jsonobj.Parse(decision.Get("result"))
	}
	kind := decision.String("kind") // of several the last, as the CLI reads it
	if err == nil && declines[kind] {
		return nil
	}
	asked, unread := callback.PermissionPromptOf(p)
	if err == nil && unread == nil && asked.Kind == callersTool && kind == approvesOnce && len(decision) == 1 {
		return nil
	}
	return refused("only the tenant that owns the session may approve access to its machine: a guest may reject, " +
		"or approve one call of a caller's tool")
}

// Sees reports whether callers of a tenant receive callbacks of a kind in a session.
func Sees(s Session, tenant string, k *callback.Kind) bool {
	return s.Tenant() == tenant || guestCallbacks[k.Method]
}

// SeesMethod is Sees for callbacks of a method or event type.
func SeesMethod(s Session, tenant, method string) bool {
	return s.Tenant() == tenant || guestCallbacks[method]
}

// Pending returns a callback of a session that waits for an answer and that the caller may see.
func Pending(ctx context.Context, s *session.Session, id string) (*callback.Pending, error) {
	p, err := s.Callbacks().Registry().Get(id)
	if err == nil && !Sees(s, caller.From(ctx).Tenant, p.Kind) {
		return nil, fault.New(fault.CallbackNotFound, "no callback %q is pending", id).WithField("callback_id").
			With("callback_id", id)
	}
	return p, err
}
