package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// AnswerTimeout bounds how long the CLI may take to accept an answer. It does not end
// with the caller: an answer half given would be in doubt.
const AnswerTimeout = 30 * time.Second

// Callbacks are the pending callbacks of the session. It registers the CLI's requests, offers them to their handlers, runs
// the chain of hooks, delivers answers to the CLI, and sends the default answer if no handler answers.
//
// A method says when its caller holds the session's lock; all other methods are called without it. The registry has its own
// lock, which a goroutine that holds the session's may take. Each default answer has a goroutine of the host, which ends
// when the CLI has the answer, or after AnswerTimeout.
type Callbacks struct {
	s        *Session
	observer *observe.Observer
	registry *callback.Registry
}

// Registry returns the pending callbacks.
func (d *Callbacks) Registry() *callback.Registry { return d.registry }

// requested registers the callback that an event asks. The caller holds the lock.
func (d *Callbacks) requested(k *callback.Kind, rec *journal.Record) {
	p := asked(k, rec)
	if p.ID == "" {
		return
	}
	d.register(p, d.s.ingester.reading)
}

// asked returns the callback that an event asks; without an id if the event has none.
func asked(k *callback.Kind, rec *journal.Record) *callback.Pending {
	p := &callback.Pending{Kind: k, Params: event.Raw(rec), Agent: rec.Agent, Pos: rec.Pos}
	queued := ""
	for m, err := range translate.Members(p.Params) {
		if err != nil {
			return &callback.Pending{}
		}
		switch string(m.Name) {
		case "requestId":
			p.ID = jsonobj.Text(m.Value)
		case "toolName":
			p.Tool = jsonobj.Text(m.Value)
		case "commandName":
			p.Command = jsonobj.Text(m.Value)
		case "command":
			queued = jsonobj.Text(m.Value)
		case "traceparent":
			p.Trace.Traceparent = jsonobj.Text(m.Value)
		case "tracestate":
			p.Trace.Tracestate = jsonobj.Text(m.Value)
		}
	}
	if p.Command == "" { // a queued one is there as it was typed
		p.Command, _, _ = strings.Cut(strings.TrimPrefix(queued, "/"), " ")
	}
	return p
}

// register adds a callback and offers it to its handlers. Without a handler the bridge answers at once, except
// for callbacks of the past. The caller holds the lock.
func (d *Callbacks) register(p *callback.Pending, past bool) {
	p.Created = time.Now()
	timeout := d.s.loader.timeout
	p.Deadline = p.Created.Add(timeout)
	if limit := p.Kind.Limit; limit > 0 && limit < timeout {
		p.Deadline = p.Created.Add(limit)
	}
	to, handled := d.handlers(p)
	kind := p.Kind.Type.String()
	p.Span = d.observer.Callback(d.s.turns.trace.asking(p), p.Trace, d.s.id, d.s.tenant, p.ID, kind)
	if !d.registry.Add(p, d.expire) {
		p.Span.EndCallback("overflow", time.Now())
		if _, err := d.registry.Get(p.ID); err != nil {
			d.observer.CallbackOver(p.Span, kind, "overflow", 0)
			d.s.host.Go(func(context.Context) { d.fallback(p, callback.Overflow, func(error) {}) })
		}
		return
	}
	d.registry.Offer(p.ID, to...)
	d.s.markDirty()
	d.s.journal.Note(Requested{p})
	d.s.host.CallbackRequested(p)
	if p.Reply != nil {
		d.s.roster.TellAsked(to)
	}
	if !handled && !past {
		d.s.host.Go(func(context.Context) { d.giveUp(p.ID, callback.Unhandled, func() {}) })
	}
}

// handlers returns the participants that handle a callback, and whether it has any handler. The caller holds the lock.
func (d *Callbacks) handlers(p *callback.Pending) (to []string, handled bool) {
	to, handled = d.s.roster.Handlers(p, &d.s.settings.State)
	return to, handled || p.For == roster.Everybody && d.s.watched().Handles(p)
}

// covers reports whether the session itself or a caller of WatchPending handles a callback, so that callers of Resolve may
// answer it. The caller holds the lock.
func (d *Callbacks) covers(p *callback.Pending) bool {
	own := &d.s.settings.State
	if p.Kind.Method == callback.ToolRequested {
		return slices.ContainsFunc(own.Tools, func(t config.Tool) bool { return t.Name == p.Tool })
	}
	return p.For == roster.Everybody && d.s.roster.CommandOwner(p) == nil && (own.Handling.Handles(p) || d.s.watched().Handles(p))
}

// over ends the callback with an id, for which the CLI does not wait, and reports whether it did. While an answer is being
// delivered, that answer ends the callback, also if nothing is known of its end.
func (d *Callbacks) over(id string) bool {
	p := d.registry.ClaimOver(id)
	if p != nil {
		d.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
	}
	return p != nil
}

// Withdraw ends pending callbacks.
func (d *Callbacks) Withdraw(which func(*callback.Pending) bool, outcome bridgev1.CallbackOutcome) {
	for _, p := range d.registry.List() {
		if which(p) {
			d.finish(p, outcome)
		}
	}
}

// withdrawAborted ends what the session's own agent waits for when its turn has been aborted: the CLI does not tell the
// end of its questions then, and CLI 1.0.81 not that of tool calls either.
func (d *Callbacks) withdrawAborted() {
	d.Withdraw(func(p *callback.Pending) bool {
		return p.Kind.OfTurn && p.Agent == ""
	}, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
}

// finish removes a callback and tells its watchers. A request that has not been answered is
// answered now, since it occupies a worker of the connection.
func (d *Callbacks) finish(p *callback.Pending, outcome bridgev1.CallbackOutcome) {
	if d.registry.Done(p) {
		d.notifyFinished(p, outcome, "", Answerer{})
	}
}

// notifyFinished reports the end of a callback, which was just removed, to metrics, readers and the CLI.
func (d *Callbacks) notifyFinished(
	p *callback.Pending, outcome bridgev1.CallbackOutcome, participant string, by Answerer,
) {
	p.Span.EndCallback(outcome.String(), p.EndedAt)
	d.observer.CallbackOver(p.Span, p.Kind.Type.String(), outcome.String(), p.EndedAt.Sub(p.Created))
	note := Resolved{
		ID: p.ID, Kind: p.Kind, Offered: d.registry.Offered(p), Outcome: outcome, Participant: participant, By: by,
	}
	d.s.journal.Note(note)
	d.s.host.CallbackResolved(note)
	if p.Reply != nil {
		p.Reply(callback.Reply{Error: &callback.ReplyError{Code: callback.DefaultErrorCode, Message: p.Kind.Method + ": the callback ended without an answer"}})
	}
}

// expire answers a callback whose time is up.
func (d *Callbacks) expire(id string) {
	d.s.host.Go(func(context.Context) { d.giveUp(id, callback.TimedOut, func() {}) })
}

// giveUp gives a callback the bridge's own answer, and calls done when the callback is over.
func (d *Callbacks) giveUp(id string, why callback.Why, done func()) {
	p, err := d.registry.Claim(id)
	if err != nil { // another answer was faster
		done()
		return
	}
	outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED
	if why == callback.TimedOut {
		outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT
	}
	d.fallback(p, why, func(err error) {
		if err != nil {
			d.registry.Unreached(p)
		}
		d.s.audit.defaulted(p, outcome)
		d.finish(p, outcome)
		if err != nil {
			d.s.reconciler.pendingSoon()
		}
		done()
	})
}

// fallback sends the bridge's own answer, and calls done when the CLI has it, or with the reason why that is not known.
func (d *Callbacks) fallback(p *callback.Pending, why callback.Why, done func(error)) {
	d.give(context.Background(), p, p.Kind.Fallback(p, why), func(_ bool, _ journal.Position, err error) {
		if err != nil {
			d.s.host.Logger().Warn("answering a callback failed", "session_id", d.s.id, "callback_id", p.ID, "method", p.Kind.Method, "error", err)
		}
		done(err)
	})
}

// AskMethod registers a request of the CLI and waits for its answer. It runs on one of the
// connection's workers; the context ends with the connection.
func (d *Callbacks) AskMethod(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == callback.HooksInvoke {
		return d.askHooks(ctx, id, params)
	}
	return d.ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(method), Params: params})
}

// ask registers a callback and waits for its answer.
func (d *Callbacks) ask(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
	answer := make(chan callback.Reply, 1)
	p.Reply = func(r callback.Reply) {
		select {
		case answer <- r:
		default: // the first answer counts
		}
	}
	d.s.update(func() { d.register(p, false) })
	select {
	case r := <-answer:
		if r.Error != nil {
			return nil, &rpcconn.Error{Code: int64(r.Error.Code), Message: r.Error.Message}
		}
		return r.Members, nil
	case <-ctx.Done():
		d.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
		return nil, ctx.Err()
	}
}

// Resolve answers a callback. reply must fit the callback's kind. done is called once with the position of the answer,
// before or after Resolve returns, also after the end of ctx, and perhaps by the goroutine that reads the runtime's
// connection: it must not block. In a cluster done waits for the storage of what the CLI has said of the answer: the next
// owner of the session would have the CLI ask again. The answer goes to the CLI before Resolve returns, unless the session
// must be loaded for it.
func (d *Callbacks) Resolve(
	ctx context.Context, id string, by callback.Responder, reply callback.Reply, done func(journal.Position, error),
) {
	p, err := d.claim(id, by, reply)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	a := givenAnswer{by, reply, time.Now()}
	d.give(ctx, p, reply, func(accepted bool, at journal.Position, err error) {
		if err = d.afterAnswer(ctx, p, a, accepted, at, err); err != nil || !p.Kind.Survives {
			done(at, err)
			return
		}
		d.s.whenStored(func(err error) { done(at, err) })
	})
}

// givenAnswer is an answer of a caller: whose it is, and when it claimed the callback.
type givenAnswer struct {
	by    callback.Responder
	reply callback.Reply
	at    time.Time
}

// claim claims a callback for an answer.
func (d *Callbacks) claim(id string, by callback.Responder, reply callback.Reply) (*callback.Pending, error) {
	if err := d.s.loader.Answerable(); err != nil {
		return nil, err
	}
	p, err := d.registry.ClaimBy(id, by)
	if err != nil {
		return nil, err
	}
	if p.Kind.Method == callback.ModelRequestStart && reply.Error == nil {
		d.s.models.takenBy(id, by.Participant)
	}
	return p, nil
}

// afterAnswer ends or releases a claimed callback after its answer went to the CLI, or failed to. It does not block.
func (d *Callbacks) afterAnswer(
	ctx context.Context, p *callback.Pending, a givenAnswer, accepted bool, at journal.Position, err error,
) error {
	switch {
	case err != nil:
		if d.registry.Unclaim(p) {
			d.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
		}
		return err
	case !accepted:
		d.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
		return fault.New(fault.CallbackResolved, "callback %q has been withdrawn by the CLI", p.ID).
			WithField("callback_id").With("callback_id", p.ID)
	}
	d.s.update(func() { d.s.settings.approve(config.ApprovedURLs(p, a.reply)) })
	if d.registry.Answered(p, at) {
		d.s.audit.decided(ctx, p, a.at, a.by.Participant, a.reply)
		outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED
		d.notifyFinished(p, outcome, a.by.Participant, d.answerer(ctx, a.by.Participant))
	}
	return nil
}

// answerer names the caller of ctx, by the name of the participant if it has one.
func (d *Callbacks) answerer(ctx context.Context, participant string) Answerer {
	c := caller.From(ctx)
	if participant != "" {
		d.s.mu.Lock()
		name := d.s.roster.Name(participant)
		d.s.mu.Unlock()
		if name != "" {
			return Answerer{Name: name, Tenant: c.Tenant, Public: true}
		}
	}
	return Answerer{Name: c.Name, Tenant: c.Tenant}
}

// Abstain notes that a participant leaves a callback to others. When all participants that it was offered to have
// abstained, the bridge answers: a hook that was put to one participant has no opinion. done is called as that of
// Resolve.
func (d *Callbacks) Abstain(ctx context.Context, id, participant string, done func(journal.Position, error)) {
	p, err := d.registry.Get(id)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	all, err := d.registry.Abstain(id, participant)
	if err != nil || !all {
		done(d.s.journal.Last(), err)
		return
	}
	if p.For == participant && p.Hook != "" {
		d.Resolve(ctx, id, callback.Responder{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)}, done)
		return
	}
	d.s.mu.Lock()
	covered := d.covers(p)
	d.s.mu.Unlock()
	if covered {
		done(d.s.journal.Last(), nil)
		return
	}
	d.giveUp(id, callback.Abstained, func() { done(d.s.journal.Last(), nil) })
}

// orphans sends the default answers for callbacks that have no handler any longer and do not survive their
// handlers, and waits for their ends. Tool calls and permissions stay pending: another caller may answer them. The
// caller calls orphans before it withdraws the handlers from the CLI, which might reject the answers afterwards.
func (d *Callbacks) orphans(ctx context.Context) {
	for _, p := range d.registry.List() {
		d.s.mu.Lock()
		_, handled := d.handlers(p)
		d.s.mu.Unlock()
		if handled || p.Kind.Survives {
			continue
		}
		_, _ = async.Wait(ctx, func(done func(struct{}, error)) {
			d.giveUp(p.ID, callback.Unhandled, func() { done(struct{}{}, nil) })
		})
	}
}

// AnsweredElsewhere ends the request of the CLI that was answered by way of the event with
// the request id: the CLI does not take its request back.
func (d *Callbacks) AnsweredElsewhere(requestID, method string) {
	rec, ok := d.s.journal.Find(func(r *journal.Record) bool {
		var ask struct{ RequestID string }
		return callback.Asks(r.Type) == method && event.Data(r, &ask) && ask.RequestID == requestID
	})
	if !ok {
		return
	}
	asked := event.Raw(rec)
	for _, p := range d.registry.List() {
		if p.Kind.Method == method && sameQuestion(p.Params, asked) {
			if _, err := d.registry.Claim(p.ID); err == nil {
				d.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED)
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
