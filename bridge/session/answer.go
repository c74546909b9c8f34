package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// answerTries bounds the runtimes that an answer is given to.
const answerTries = 3

// answer hands an answer to the CLI, and reports whether it was still wanted. A runtime that
// ends at that moment takes the answer along; whoever gave it is done with it. Where the
// callback outlives the runtime, the successor is given the answer.
func (s *Session) answer(ctx context.Context, p *callback.Pending, r callback.Reply) (accepted bool, at journal.Position, err error) {
	if p.Reply != nil {
		p.Reply(r)
		return true, s.journal.Last(), nil
	}
	params, err := jsonobj.Parse(r.Members)
	if err != nil {
		return false, at, fault.Wrap(err, fault.Internal, "answer of callback %q", p.ID)
	}
	params.SetString("requestId", p.ID)
	try := 1
	for ; ; try++ {
		var rt Runtime
		accepted, at, rt, err = s.answerIn(ctx, p, params)
		if !p.Kind.Survives || fault.ReasonOf(err) != fault.RuntimeLost || try == answerTries || !awaitEnd(ctx, rt) {
			break
		}
	}
	if try > 1 && err == nil && !accepted {
		// The runtime that ended may have taken it in before: then the history has it.
		if end, ok := s.AnswerOf(ctx, p.ID); ok {
			return true, end, nil
		}
	}
	return accepted, at, err
}

// answerIn is answer in the runtime that has the session, which it returns.
func (s *Session) answerIn(ctx context.Context, p *callback.Pending, params jsonobj.Object) (accepted bool, at journal.Position, in Runtime, err error) {
	var result json.RawMessage
	err = s.retried(ctx, func(rt Runtime) (err error) {
		in = rt
		result, at, err = s.call(ctx, rt, p.Kind.AnswerMethod, params, rpcconn.Priority())
		return err
	})
	if err != nil {
		return false, at, in, err
	}
	var ok struct{ Success *bool }
	refused := json.Unmarshal(result, &ok) == nil && ok.Success != nil && !*ok.Success
	return !refused, at, in, nil
}

// awaitEnd waits until the sessions of a runtime that ends know it, and reports whether they do.
// Nil is one that ended before it had a session.
func awaitEnd(ctx context.Context, rt Runtime) bool {
	if rt == nil {
		return ctx.Err() == nil
	}
	select {
	case <-rt.Ended():
		return true
	case <-ctx.Done():
		return false
	}
}
