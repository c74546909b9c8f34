package callbacks

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// answerTries bounds the number of runtimes that receive the same answer.
const answerTries = 3

// answer delivers an answer to the CLI, and reports whether the CLI accepted it. If the runtime ends during the
// call and the callback survives runtimes, answer delivers it to the successor; the participant does not repeat
// it. again reports that the answer went to a runtime before, which may have accepted it.
func (d *Desk) answer(ctx context.Context, p *callback.Pending, r callback.Reply, again bool) (
	accepted bool, at journal.Position, err error) {
	if p.Reply != nil {
		p.Reply(r)
		return true, d.cfg.Journal.Last(), nil
	}
	params, err := jsonobj.Parse(r.Members)
	if err != nil {
		return false, at, fault.Wrap(err, fault.Internal, "answer of callback %q", p.ID)
	}
	params.SetString("requestId", p.ID)
	try := 1
	for ; ; try++ {
		var ended <-chan struct{}
		accepted, at, ended, err = d.answerOnce(ctx, p, params)
		if !p.Kind.Survives || fault.ReasonOf(err) != fault.RuntimeLost || try == answerTries || !awaitEnd(ctx, ended) {
			break
		}
	}
	if (again || try > 1) && err == nil && !accepted {
		// The runtime that ended may have taken it in before: then the history has it.
		if end, ok := d.AnswerOf(ctx, p.ID); ok {
			return true, end, nil
		}
	}
	return accepted, at, err
}

// answerOnce is answer in the runtime that has the session. ended is closed when that has ended.
func (d *Desk) answerOnce(ctx context.Context, p *callback.Pending, params jsonobj.Object) (
	accepted bool, at journal.Position, ended <-chan struct{}, err error) {
	result, at, ended, err := d.cfg.Answer(ctx, p.Kind.AnswerMethod, params)
	if err != nil {
		return false, at, ended, err
	}
	return !refused(result), at, ended, nil
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

// AnswerOf finds, in the journal, the event that says that a callback is over.
func (d *Desk) AnswerOf(ctx context.Context, id string) (at journal.Position, ok bool) {
	event.Scan(ctx, d.cfg.Journal, journal.Position{}, func(rec *journal.Record) bool {
		var end struct{ RequestID string }
		if callback.Ends(rec.Type) && event.Data(rec, &end) && end.RequestID == id {
			at, ok = rec.Pos, true
		}
		return !ok
	})
	return at, ok
}
