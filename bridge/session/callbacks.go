package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// answerTimeout bounds how long the CLI may take to accept an answer. It does not end
// with the caller: an answer half given would be in doubt.
const answerTimeout = 30 * time.Second

// Requested is the note that a callback waits for an answer.
type Requested struct{ Pending *callback.Pending }

// Size is about how much memory the note keeps.
func (r Requested) Size() int { return len(r.Pending.Params) }

// Resolved is the note that a callback is over.
type Resolved struct {
	ID   string
	Kind *callback.Kind
	// Offered are the participants it was offered to.
	Offered     []string
	Outcome     bridgev1.CallbackOutcome
	Participant string
}

// asked registers the callback that an event asks. The caller holds mu.
func (s *Session) asked(k *callback.Kind, rec *journal.Record) {
	data := event.Raw(rec)
	var d struct {
		RequestID, ToolName, CommandName, Command string
		Traceparent, Tracestate                   string
	}
	if json.Unmarshal(data, &d) != nil || d.RequestID == "" {
		return
	}
	if d.CommandName == "" { // a queued one is there as it was typed
		d.CommandName, _, _ = strings.Cut(strings.TrimPrefix(d.Command, "/"), " ")
	}
	p := &callback.Pending{ID: d.RequestID, Kind: k, Params: data, Tool: d.ToolName, Command: d.CommandName, Agent: rec.Agent, Pos: rec.Pos,
		Trace: observe.Remote{Traceparent: d.Traceparent, Tracestate: d.Tracestate}}
	s.register(p, s.history.reading)
}

// register adds a callback and offers it to those who handle it. What nobody handles is
// answered at once, unless it was asked in the past. The caller holds mu.
func (s *Session) register(p *callback.Pending, past bool) {
	p.Created = time.Now()
	p.Deadline = p.Created.Add(s.timeout)
	if limit := p.Kind.Limit; limit > 0 && limit < s.timeout {
		p.Deadline = p.Created.Add(limit)
	}
	to, handled := s.roster.Handlers(p, &s.config)
	kind := p.Kind.Type.String()
	p.Span = s.observer.Callback(s.turnSpan(), p.Trace, s.id, s.tenant, p.ID, kind)
	if !s.pending.Add(p, s.expire) {
		p.Span.EndCallback("overflow")
		if _, err := s.pending.Get(p.ID); err != nil {
			s.observer.CallbackOver(kind, "overflow", 0)
			s.host.Go(func(ctx context.Context) { s.fallback(ctx, p, callback.Overflow) })
		}
		return
	}
	s.pending.Offer(p.ID, to...)
	s.host.Keep(s)
	s.journal.Note(Requested{p})
	if p.Reply != nil {
		s.roster.TellAsked(to)
	}
	if !handled && !past {
		s.host.Go(func(ctx context.Context) { s.giveUp(ctx, p.ID, callback.Unhandled) })
	}
}

// settled ends the callback that an event says is over, unless an answer of ours is
// what ended it. The caller holds mu.
func (s *Session) settled(rec *journal.Record) {
	var d struct{ RequestID string }
	if !event.Data(rec, &d) {
		return
	}
	if p, err := s.pending.Claim(d.RequestID); err == nil {
		s.over(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN, "")
	}
}

// withdrawAborted ends what the session's own agent waits for when its turn has been
// aborted: CLI 1.0.81 does not tell the end of tool calls then. The caller holds mu.
func (s *Session) withdrawAborted() {
	s.withdraw(func(p *callback.Pending) bool {
		return p.Kind.Survives && p.Agent == ""
	}, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
}

// over removes a callback and tells everybody. A request that has not been answered is
// answered now, since it occupies a worker of the connection.
func (s *Session) over(p *callback.Pending, outcome bridgev1.CallbackOutcome, participant string) {
	if _, ok := s.pending.Done(p.ID); !ok {
		return
	}
	s.notifyFinished(p, outcome, participant)
}

// notifyFinished tells everybody that a callback is over which has just been removed.
func (s *Session) notifyFinished(p *callback.Pending, outcome bridgev1.CallbackOutcome, participant string) {
	p.Span.EndCallback(outcome.String())
	s.observer.CallbackOver(p.Kind.Type.String(), outcome.String(), time.Since(p.Created))
	s.journal.Note(Resolved{
		ID: p.ID, Kind: p.Kind, Offered: s.pending.Offered(p), Outcome: outcome, Participant: participant,
	})
	if p.Reply != nil {
		p.Reply(callback.Reply{Error: &callback.ReplyError{Code: callback.DefaultErrorCode, Message: p.Kind.Method + ": nobody answers any more"}})
	}
}

// expire answers a callback whose time is up.
func (s *Session) expire(id string) {
	s.host.Go(func(ctx context.Context) { s.giveUp(ctx, id, callback.TimedOut) })
}

// giveUp gives a callback the bridge's own answer.
func (s *Session) giveUp(ctx context.Context, id string, why callback.Why) {
	p, err := s.pending.Claim(id)
	if err != nil {
		return // somebody was faster
	}
	outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED
	if why == callback.TimedOut {
		outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT
	}
	s.fallback(ctx, p, why)
	s.audit.defaulted(p, outcome)
	s.over(p, outcome, "")
}

// fallback sends the bridge's own answer.
func (s *Session) fallback(ctx context.Context, p *callback.Pending, why callback.Why) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, _, err := s.answer(ctx, p, p.Kind.Fallback(p, why)); err != nil {
		s.host.Logger().Warn("callback not answered", "session_id", s.id, "callback_id", p.ID, "method", p.Kind.Method, "error", err)
	}
}

// Ask registers a request of the CLI and waits for its answer. It runs on one of the
// connection's workers; the context ends with the connection.
func (s *Session) Ask(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == callback.HooksInvoke {
		return s.askHooks(ctx, id, params)
	}
	return s.ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(method), Params: params})
}

// ask registers a callback and waits for its answer.
func (s *Session) ask(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
	answer := make(chan callback.Reply, 1)
	p.Reply = func(r callback.Reply) {
		select {
		case answer <- r:
		default: // the first answer counts
		}
	}
	s.mu.Lock()
	s.register(p, false)
	s.mu.Unlock()
	select {
	case r := <-answer:
		if r.Error != nil {
			return nil, &rpcconn.Error{Code: int64(r.Error.Code), Message: r.Error.Message}
		}
		return r.Members, nil
	case <-ctx.Done():
		s.over(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST, "")
		return nil, ctx.Err()
	}
}

// Resolve answers a callback. reply must fit the callback's kind.
func (s *Session) Resolve(ctx context.Context, id string, by callback.Giver, reply callback.Reply) (journal.Position, error) {
	if err := s.Asking(); err != nil {
		return journal.Position{}, err
	}
	p, err := s.pending.ClaimBy(id, by)
	if err != nil {
		return journal.Position{}, err
	}
	if p.Kind.Method == callback.ModelRequestStart && reply.Error == nil {
		s.models.Taken(id, by.Participant)
	}
	from, claimed := ctx, time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	accepted, at, err := s.answer(ctx, p, reply)
	switch {
	case err != nil:
		s.pending.Release(p)
		return at, err
	case !accepted:
		s.over(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN, "")
		return at, fault.New(fault.CallbackResolved, "callback %q has been withdrawn by the CLI", id).WithField("callback_id").With("callback_id", id)
	}
	if urls := config.ApprovedURLs(p, reply); urls != nil {
		s.mu.Lock()
		s.approved(urls)
		s.mu.Unlock()
	}
	if _, ok := s.pending.Answered(p.ID, at); ok {
		s.audit.decided(from, p, claimed, by.Participant, reply)
		s.notifyFinished(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, by.Participant)
	}
	return at, nil
}

// Pending returns the registry of pending callbacks.
func (s *Session) Pending() *callback.Registry { return s.pending }

// Abstain notes that a participant leaves a callback to others. When all it was offered to
// have, the bridge answers: a hook that was put to one participant has no opinion.
func (s *Session) Abstain(ctx context.Context, id, participant string) (journal.Position, error) {
	p, err := s.pending.Get(id)
	if err != nil {
		return journal.Position{}, err
	}
	all, err := s.pending.Abstain(id, participant)
	if err != nil || !all {
		return s.journal.Last(), err
	}
	if p.For == participant && p.Hook != "" {
		return s.Resolve(ctx, id, callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)})
	}
	if !s.covers(p) {
		s.giveUp(context.WithoutCancel(ctx), id, callback.Abstained)
	}
	return s.journal.Last(), nil
}

// covers reports whether a callback may still be answered when no participant does: by
// whoever calls Resolve, for what the session itself handles.
func (s *Session) covers(p *callback.Pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Kind.Method == callback.ToolRequested {
		return slices.ContainsFunc(s.config.Tools, func(t Tool) bool { return t.Name == p.Tool })
	}
	return p.For == roster.Everybody && !s.roster.OwnsCommand(p) && s.config.Handling.Handles(p)
}

// orphans gives up what nobody handles any longer and what does not outlive its
// handlers: a tool call or a permission may still be answered by somebody else. It is
// done before the CLI learns that nobody handles the kind, after which it might not take
// the answer.
func (s *Session) orphans(ctx context.Context) {
	for _, p := range s.pending.List() {
		s.mu.Lock()
		_, handled := s.roster.Handlers(p, &s.config)
		s.mu.Unlock()
		if !handled && !p.Kind.Survives {
			s.giveUp(ctx, p.ID, callback.Unhandled)
		}
	}
}

// AnsweredElsewhere ends the request of the CLI that was answered by way of the event with
// the request id: the CLI does not take its request back.
func (s *Session) AnsweredElsewhere(requestID, method string) {
	rec, ok := s.journal.Find(func(r *journal.Record) bool {
		var d struct{ RequestID string }
		return callback.Asks(r.Type) == method && event.Data(r, &d) && d.RequestID == requestID
	})
	if !ok {
		return
	}
	asked := event.Raw(rec)
	for _, p := range s.pending.List() {
		if p.Kind.Method == method && sameQuestion(p.Params, asked) {
			if _, err := s.pending.Claim(p.ID); err == nil {
				s.over(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, "")
				return
			}
		}
	}
}

// sameQuestion reports whether a request and an event ask the same: what both say is equal.
func sameQuestion(request, event json.RawMessage) bool {
	var r, e struct{ Question, Summary, ErrorCode string }
	return json.Unmarshal(request, &r) == nil && json.Unmarshal(event, &e) == nil && r == e
}
