package session

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/audit"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/observe"
)

// turnMeasure is what the observer is told of the turn that runs.
type turnMeasure struct {
	began time.Time
	own   *observe.Span // of a turn that no message of this process began
}

// turnSpan is the span of the turn: of its first message, as far as that is known, or its own.
// The caller holds mu.
func (s *Session) turnSpan() *observe.Span { return cmp.Or(s.turn.Span(), s.measure.own) }

// turnBegun notes when a turn began. A turn without a message's span gets its own. The caller
// holds mu.
func (s *Session) turnBegun(of *observe.Span) {
	s.prompts.delivery.turnBegun()
	s.measure.began = time.Now()
	if of == nil && s.measure.own == nil {
		s.measure.own = s.observer.Turn(context.Background(), s.id, s.tenant, observe.Remote{})
	}
}

// measured tells the observer of a turn's end. The caller holds mu.
func (s *Session) measured(out Outcome) {
	took := time.Duration(0)
	if !s.measure.began.IsZero() {
		took = time.Since(s.measure.began)
	}
	status := out.Status.String()
	s.observer.TurnOver(status, took)
	s.measure.own.EndTurn(status)
	s.measure = turnMeasure{}
}

// spanOf begins the span of a message, and gives the message its context to take along. What
// the caller has named is left as it is where there is no trace of ours.
func (s *Session) spanOf(ctx context.Context, params *jsonobj.Object) *observe.Span {
	named := observe.Remote{Traceparent: params.String("traceparent"), Tracestate: params.String("tracestate")}
	span := s.observer.Turn(ctx, s.id, s.tenant, named)
	if named.Traceparent == "" || span.Own() {
		putTrace(params, span.Remote())
	}
	return span
}

// traced is a copy of the parameters of a create or resume with the trace context of the
// call that asks for it, unless they or the configuration name one.
func (s *Session) traced(ctx context.Context, params jsonobj.Object) jsonobj.Object {
	s.mu.Lock()
	named := s.config.Object.String("traceparent")
	s.mu.Unlock()
	params = params.Clone()
	if named == "" && params.String("traceparent") == "" {
		putTrace(&params, observe.Of(ctx))
	}
	return params
}

// putTrace puts a trace context into parameters.
func putTrace(params *jsonobj.Object, r observe.Remote) {
	if r.Traceparent == "" {
		return
	}
	params.SetString("traceparent", r.Traceparent)
	params.Set("tracestate", nil)
	if r.Tracestate != "" {
		params.SetString("tracestate", r.Tracestate)
	}
}

// bulk are the methods by which the CLI has its callers do its reading, writing and
// thinking: nobody decides anything there.
func bulk(method string) bool {
	return strings.HasPrefix(method, "sessionFs.") || strings.HasPrefix(method, "llmInference.")
}

// decided keeps who answered a callback, how and when: before the CLI heard of it, and so
// before anything that it did in consequence.
func (s *Session) decided(ctx context.Context, p *callback.Pending, at time.Time, participant string, reply callback.Reply) {
	if !bulk(p.Kind.Method) {
		e := s.entry(p, "callback.answer", decision(reply), participant)
		e.At = at
		s.audit.Record(ctx, e)
	}
}

// defaulted keeps that the bridge answered in everybody's place.
func (s *Session) defaulted(p *callback.Pending, outcome bridgev1.CallbackOutcome) {
	if bulk(p.Kind.Method) {
		return
	}
	how := strings.ToLower(strings.TrimPrefix(outcome.String(), "CALLBACK_OUTCOME_"))
	s.audit.Record(caller.With(context.Background(), caller.Caller{Tenant: s.tenant, Name: audit.Bridge}),
		s.entry(p, "callback.default", how, ""))
}

func (s *Session) entry(p *callback.Pending, action, decision, participant string) audit.Entry {
	return audit.Entry{
		Action: action, Outcome: audit.Done, Session: s.id, Owner: s.tenant, Callback: p.ID, Kind: observe.Kind(p.Kind.Type.String()),
		Subject: subject(p), Decision: decision, Participant: participant,
	}
}

// subject is what a callback is about: a name, never what goes with it.
func subject(p *callback.Pending) string {
	if p.Kind.Method == callback.PermissionRequested {
		var d struct{ PermissionRequest struct{ Kind string } }
		_ = json.Unmarshal(p.Params, &d) // what is not understood has no kind
		return d.PermissionRequest.Kind
	}
	for _, name := range []string{p.Tool, p.Hook, p.Command} {
		if name != "" {
			return name
		}
	}
	return ""
}

// verdicts are the words that a decision may be kept as: what a caller writes elsewhere, or
// makes up, is not among them.
var verdicts = map[string]bool{
	"approve-once": true, "approve-for-session": true, "approve-for-location": true, "approve-permanently": true,
	"approve-read-only-for-session": true, "reject": true, "user-not-available": true,
	"accept": true, "decline": true, "cancel": true, "allow": true, "deny": true, "ask": true, "token": true, "cancelled": true, "none": true, "headers": true,
	"success": true, "failure": true, "rejected": true, "denied": true, "yes": true, "no": true, "yes_always": true,
}

// decision is what an answer comes to, in one word.
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
		_ = json.Unmarshal(part, &inner) // a text has none of these
	}
	for _, word := range []string{inner.Kind, inner.Action, inner.ResultType, inner.PermissionDecision, inner.Decision, d.Action} {
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

// audited keeps that a caller did something to the session, or tried to.
func (s *Session) audited(ctx context.Context, action string, err error) {
	e := audit.Entry{Action: action, Outcome: audit.Done, Session: s.id, Owner: s.tenant}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, fault.Name(fault.ReasonOf(err))
	}
	s.audit.Record(ctx, e)
}
