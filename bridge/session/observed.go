package session

import (
	"cmp"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
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
	s.prompts.TurnBegun(locked{s})
	s.measure.began = time.Now()
	if of == nil && s.measure.own == nil {
		s.measure.own = s.observer.Turn(context.Background(), s.id, s.tenant, observe.Remote{})
	}
}

// measured tells the observer of a turn's end. The caller holds mu.
func (s *Session) measured(out turn.Outcome) {
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
