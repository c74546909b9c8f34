package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// PermissionRequest is the agent's asking for leave to do something.
type PermissionRequest struct {
	// The session.
	SessionID string
	// The callback's id, with which [Session.Resolve] can answer it too.
	CallbackID string
	// The CLI's kind of the request: shell, write, read, url, mcp,
	// custom-tool, memory, ….
	Kind string
	// All that the CLI says about it; PermissionRequest holds the details of the kind.
	Data *cliv1.PermissionRequestedData
}

// Decision is the answer to a [PermissionRequest].
type Decision = cliv1.PermissionDecision

// PermissionHandler decides about a permission request. An error, a panic or a nil
// decision denies it; [ErrAbstain] leaves it to other participants. ctx ends when the
// request is withdrawn or another participant decides first.
type PermissionHandler func(ctx context.Context, req *PermissionRequest) (*Decision, error)

// ApproveAll approves everything once: for sandboxes and tests.
func ApproveAll(context.Context, *PermissionRequest) (*Decision, error) { return ApproveOnce(), nil }

// DenyAll rejects everything.
func DenyAll(context.Context, *PermissionRequest) (*Decision, error) {
	return Reject("Permission denied."), nil
}

// ApproveKinds approves requests of these kinds once, and abstains from all others: a
// rule for [FirstOf].
func ApproveKinds(kinds ...string) PermissionHandler { return decideKinds(kinds, ApproveOnce) }

// ApproveKindsForSession approves requests of these kinds, and equal ones for the rest of the
// session as [ApproveForSession] does, and abstains from all others: a rule for [FirstOf].
func ApproveKindsForSession(kinds ...string) PermissionHandler {
	return decideKinds(kinds, ApproveForSession)
}

// RejectKinds rejects requests of these kinds with a text for the agent, and abstains from all
// others: a rule for [FirstOf].
func RejectKinds(feedback string, kinds ...string) PermissionHandler {
	return decideKinds(kinds, func() *Decision { return Reject(feedback) })
}

func decideKinds(kinds []string, decide func() *Decision) PermissionHandler {
	return func(_ context.Context, req *PermissionRequest) (*Decision, error) {
		if slices.Contains(kinds, req.Kind) {
			return decide(), nil
		}
		return nil, ErrAbstain
	}
}

// ApproveIf approves the requests for which f returns true once, and rejects all others.
func ApproveIf(f func(*PermissionRequest) bool) PermissionHandler {
	return func(ctx context.Context, req *PermissionRequest) (*Decision, error) {
		if f(req) {
			return ApproveOnce(), nil
		}
		return DenyAll(ctx, req)
	}
}

// FirstOf asks handlers in turn until one does not abstain. When all do, so does it.
func FirstOf(handlers ...PermissionHandler) PermissionHandler {
	return func(ctx context.Context, req *PermissionRequest) (*Decision, error) {
		for _, h := range handlers {
			d, err := h(ctx, req)
			if !errors.Is(err, ErrAbstain) {
				return d, err
			}
		}
		return nil, ErrAbstain
	}
}

// ApproveOnce approves this one request.
func ApproveOnce() *Decision {
	return &Decision{Variant: &cliv1.PermissionDecision_ApproveOnce{
		ApproveOnce: &cliv1.PermissionDecisionApproveOnce{},
	}}
}

// ApproveForSession approves this request and equal requests for the rest of the session: the
// same commands, the same tool, all reading or writing, the URL's origin. Set Approval in the
// decision to approve something else. A request without such an approval, for example a hook's,
// is denied; see [PermissionRequest.Kind].
func ApproveForSession() *Decision {
	return &Decision{Variant: &cliv1.PermissionDecision_ApproveForSession{
		ApproveForSession: &cliv1.PermissionDecisionApproveForSession{},
	}}
}

// Reject denies the request. The agent receives the feedback unless it is empty.
func Reject(feedback string) *Decision {
	r := &cliv1.PermissionDecisionReject{}
	if feedback != "" {
		r.Feedback = &feedback
	}
	return &Decision{Variant: &cliv1.PermissionDecision_Reject{Reject: r}}
}

// UserNotAvailable denies the request because no user is available.
func UserNotAvailable() *Decision {
	return &Decision{Variant: &cliv1.PermissionDecision_UserNotAvailable{
		UserNotAvailable: &cliv1.PermissionDecisionUserNotAvailable{},
	}}
}

// permissionKind is the kind of a request in the CLI's words.
func permissionKind(req *cliv1.PermissionRequest) string {
	if text := req.GetUnrecognized(); text != "" {
		var head struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal([]byte(text), &head) // without a kind it has none
		return head.Kind
	}
	m := req.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("variant"))
	if field == nil {
		return ""
	}
	return strings.ReplaceAll(string(field.Name()), "_", "-")
}
