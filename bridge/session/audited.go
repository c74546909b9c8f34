package session

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// auditTrail records the decisions and actions of callers in a session. It has no state.
type auditTrail struct {
	log             audit.Sink
	session, tenant string
}

// bulk reports whether a method transfers data for the CLI: file access and model requests. Such callbacks
// involve no decision and are not audited.
func bulk(method string) bool {
	return strings.HasPrefix(method, "sessionFs.") || strings.HasPrefix(method, "llmInference.")
}

// decided records a participant's answer to a callback, after the CLI has taken it. at is when the answer claimed the
// callback, so that the entry's time precedes all effects of the answer.
func (t auditTrail) decided(ctx context.Context, p *callback.Pending, at time.Time, participant string, reply callback.Reply) {
	if t.log != audit.Discard && !bulk(p.Kind.Method) {
		e := t.entry(p, "callback.answer", decision(reply), participant)
		e.At = at
		t.log.Record(ctx, e)
	}
}

// defaulted records that the bridge answered a callback with the default answer.
func (t auditTrail) defaulted(p *callback.Pending, outcome bridgev1.CallbackOutcome) {
	if bulk(p.Kind.Method) {
		return
	}
	how := strings.ToLower(strings.TrimPrefix(outcome.String(), "CALLBACK_OUTCOME_"))
	t.log.Record(audit.ByBridge(context.Background(), t.tenant), t.entry(p, "callback.default", how, ""))
}

func (t auditTrail) entry(p *callback.Pending, action, decision, participant string) audit.Entry {
	return audit.Entry{
		Action: action, Outcome: audit.Done, Session: t.session, Owner: t.tenant,
		Callback: p.ID, Kind: observe.Kind(p.Kind.Type.String()),
		Subject: subject(p), Decision: decision, Participant: participant,
	}
}

// subject returns the name of the thing that a callback asks about, such as a tool or a kind of permission. It
// never returns arguments.
func subject(p *callback.Pending) string {
	if p.Kind.Method == callback.PermissionRequested {
		var d struct{ PermissionRequest struct{ Kind string } }
		_ = json.Unmarshal(p.Params, &d) // unknown params have no kind
		return d.PermissionRequest.Kind
	}
	for _, name := range []string{p.Tool, p.Hook, p.Command} {
		if name != "" {
			return name
		}
	}
	return ""
}

// verdicts are the words that an entry may have as its decision. Free text of a caller is not among them.
var verdicts = map[string]bool{
	"approve-once": true, "approve-for-session": true, "approve-for-location": true, "approve-permanently": true,
	"approve-read-only-for-session": true, "reject": true, "user-not-available": true,
	"accept": true, "decline": true, "cancel": true, "allow": true, "deny": true, "ask": true, "token": true,
	"cancelled": true, "none": true, "headers": true,
	"success": true, "failure": true, "rejected": true, "denied": true, "yes": true, "no": true, "yes_always": true,
}

// decision returns an answer's verdict in one word.
func decision(r callback.Reply) string {
	if r.Error != nil {
		return "error"
	}
	var d struct {
		Error    json.RawMessage
		Approved *bool
		Handled  *bool
		Result   json.RawMessage
		Output   json.RawMessage
		Action   string
	}
	if json.Unmarshal(r.Members, &d) != nil {
		return "answer"
	}
	var inner struct{ Kind, Action, ResultType, PermissionDecision, Decision string }
	for _, part := range []json.RawMessage{d.Result, d.Output} {
		_ = json.Unmarshal(part, &inner) // a JSON string has none of these members
	}
	for _, word := range []string{
		inner.Kind, inner.Action, inner.ResultType, inner.PermissionDecision, inner.Decision, d.Action,
	} {
		if verdicts[word] {
			return word
		}
	}
	switch {
	case len(d.Error) > 0:
		return "error"
	case d.Approved != nil && *d.Approved:
		return "approve"
	case d.Approved != nil:
		return "reject"
	}
	return "answer"
}

// did records an action of ctx's caller on the session, with its error if it failed.
func (t auditTrail) did(ctx context.Context, action string, err error) {
	e := audit.Entry{Action: action, Outcome: audit.Done, Session: t.session, Owner: t.tenant}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, fault.Name(fault.ReasonOf(err))
	}
	t.log.Record(ctx, e)
}
