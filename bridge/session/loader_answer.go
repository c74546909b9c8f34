package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// answerReply is the end of a call that answers a callback.
type answerReply struct {
	Result json.RawMessage
	// At is the journal's end when the CLI replied.
	At  journal.Position
	Err error
	// Ended is closed when the runtime has ended and its sessions know it; nil if no runtime has had the session.
	Ended <-chan struct{}
}

// holdLoaded returns the runtime that has the session, which stays loaded until letGo is called. It returns nil if no
// runtime has it, or if callers may not use the session.
func (l *Loader) holdLoaded() Runtime {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.state != Loaded || l.usable() != nil {
		return nil
	}
	l.uses++
	return l.runtime
}

// answer makes a call that answers a callback in the runtime that has the session, which it loads if need be. The call
// ends at the time limit. done, which must not block, is called once. If the runtime loses the session before it receives
// the call, answer makes the call in the next one.
func (l *Loader) answer(
	ctx context.Context, method string, params jsonobj.Object, limit time.Time, done func(answerReply),
) {
	rt := l.holdLoaded()
	if rt == nil {
		l.answerLater(ctx, method, params, limit, done)
		return
	}
	params.SetString("sessionId", l.s.id)
	end := func(result json.RawMessage, err error) {
		d := answerReply{Result: result, At: l.s.journal.Last(), Err: Classify(err, method), Ended: rt.Ended()}
		l.letGo()
		if mayHaveMoved(d.Err) {
			l.answerLater(ctx, method, params, limit, done)
			return
		}
		done(d)
	}
	if err := rt.Start(ctx, method, params.JSON(), max(time.Until(limit), 1), end, rpcconn.Priority()); err != nil {
		end(nil, err)
	}
}

// answerLater is answer on a goroutine that loads the session first.
func (l *Loader) answerLater(
	ctx context.Context, method string, params jsonobj.Object, limit time.Time, done func(answerReply),
) {
	started := l.s.host.Go(func(bridge context.Context) {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
		defer cancel()
		defer context.AfterFunc(bridge, cancel)()
		var d answerReply
		d.Err = l.in(ctx, func(rt Runtime) (err error) {
			d.Ended = rt.Ended()
			d.Result, d.At, err = l.s.call(ctx, rt, method, params, rpcconn.Priority())
			return err
		})
		done(d)
	})
	if !started {
		done(answerReply{Err: async.ErrStopping})
	}
}

// mayHaveMoved reports whether a call failed because the runtime no longer has the session, as far as the error says.
func mayHaveMoved(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == fault.SessionNotFound || reason == fault.RuntimeLost && errors.Is(err, rpcconn.ErrNotSent)
}
