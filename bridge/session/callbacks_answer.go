package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// answerTries bounds the number of runtimes that receive the same answer.
const answerTries = 3

// give delivers an answer to the CLI. done is called once, as that of Resolve, and receives whether the CLI accepted the
// answer. If the runtime ends during the call and the callback survives runtimes, give delivers the answer to the
// successor; the participant does not repeat it.
func (d *Callbacks) give(
	ctx context.Context, p *callback.Pending, r callback.Reply, done func(accepted bool, at journal.Position, err error),
) {
	if p.Reply != nil {
		p.Reply(r)
		done(true, d.s.journal.Last(), nil)
		return
	}
	params, err := jsonobj.Parse(r.Members)
	if err != nil {
		done(false, journal.Position{}, fault.Wrap(err, fault.Internal, "answer of callback %q", p.ID))
		return
	}
	params.SetString("requestId", p.ID)
	d.deliver(&answerAttempt{
		ctx: ctx, p: p, params: params, limit: time.Now().Add(AnswerTimeout), since: d.s.journal.Appended(), done: done,
	})
}

// answerAttempt is an answer on its way to the CLI.
type answerAttempt struct {
	ctx    context.Context
	p      *callback.Pending
	params jsonobj.Object
	limit  time.Time
	// since is the journal's end when the answer came.
	since journal.Position
	// tries counts the runtimes that have received the answer.
	tries int
	done  func(accepted bool, at journal.Position, err error)
}

// deliver gives the answer to the runtime that has the session.
func (d *Callbacks) deliver(a *answerAttempt) {
	a.tries++
	d.s.loader.answer(a.ctx, a.p.Kind.AnswerMethod, a.params, a.limit, func(e answerReply) {
		accepted := e.Err == nil && !refused(e.Result)
		switch {
		case a.p.Kind.Survives && fault.ReasonOf(e.Err) == fault.RuntimeLost && a.tries < answerTries:
			d.background(a, func(ctx context.Context) {
				switch {
				case !awaitEnd(ctx, e.Ended):
					a.done(false, e.At, e.Err)
				case !d.pending(a.p): // what the successor asks is to be answered anew
					a.done(false, e.At, nil)
				default:
					d.deliver(a)
				}
			})
		case a.tries > 1 && e.Err == nil && !accepted:
			// The runtime that ended may have accepted it: then the history has it, or an earlier one.
			d.background(a, func(ctx context.Context) {
				if end, ok := d.answerSince(ctx, a.p.ID, a.since); ok && !d.registry.Uncertain(a.p) {
					a.done(true, end, nil)
				} else {
					a.done(false, e.At, nil)
				}
			})
		default:
			a.done(accepted, e.At, e.Err)
		}
	})
}

// pending reports whether exactly this callback is pending.
func (d *Callbacks) pending(p *callback.Pending) bool {
	is, _ := d.registry.Get(p.ID) // nil with an error
	return is == p
}

// background runs f, which may block, for an answer on its way, until the answer's time is over.
func (d *Callbacks) background(a *answerAttempt, f func(ctx context.Context)) {
	ok := d.s.host.Go(func(ctx context.Context) {
		ctx, cancel := context.WithDeadline(ctx, a.limit)
		defer cancel()
		f(ctx)
	})
	if !ok {
		a.done(false, journal.Position{}, async.ErrStopping)
	}
}

// refused reports whether the CLI says that it has not accepted an answer.
func refused(result json.RawMessage) bool {
	out, err := jsonobj.Parse(result)
	return err == nil && string(out.Get("success")) == "false"
}

// awaitEnd waits until the sessions of a runtime that ends know it, and reports whether they do.
// A runtime that ended before it had a session has a nil channel.
func awaitEnd(ctx context.Context, ended <-chan struct{}) bool {
	if ended == nil {
		return ctx.Err() == nil
	}
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// AnswerOf finds, in the journal, the event that says that a callback was answered. An abort ends a callback with the same
// event: then the turn ends without the end of the tool call.
func (d *Callbacks) AnswerOf(ctx context.Context, id string) (at journal.Position, ok bool) {
	return d.answerSince(ctx, id, journal.Position{})
}

// answerSince is AnswerOf without the ends up to a position: the CLI may have lost them, and have asked again.
func (d *Callbacks) answerSince(ctx context.Context, id string, since journal.Position) (at journal.Position, ok bool) {
	aborted, call := false, ""
	for rec := range event.Since(ctx, d.s.journal, journal.Position{}) {
		asks, ends := callback.ForEvent(rec.Type) != nil, callback.Ends(rec.Type)
		switch {
		case rec.Type == "abort" && rec.Agent == "":
			aborted = true
			ok = ok && call == "" // the record of an abort comes behind the ends
		case ok && call != "" && rec.Type == "tool.execution_complete" && event.Text(rec, "toolCallId") == call:
			call = ""
		case !asks && !ends || event.Text(rec, "requestId") != id:
		case asks:
			aborted, ok, call = false, false, event.Text(rec, "toolCallId")
		case rec.Pos.Epoch == since.Epoch && !since.Before(rec.Pos):
		default:
			at, ok = rec.Pos, !aborted && !cancelled(rec)
		}
	}
	return at, ok
}

// cancelled reports whether the end of a permission says that its turn was aborted.
func cancelled(end *journal.Record) bool {
	var result struct{ Kind string }
	return json.Unmarshal(event.Member(end, "result"), &result) == nil && result.Kind == "cancelled"
}
