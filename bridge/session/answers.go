package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// holdLoaded returns the runtime that has the session, which stays loaded until release is called. It returns nil if no
// runtime has it, or if callers may not use the session.
func holdLoaded(l *Loader) (rt Runtime, release func()) {
	release = l.Hold() // before the state is read, so that the session is not unloaded in between
	l.mu.Lock()
	rt, ok := l.runtime, l.state == Loaded && l.usable() == nil
	l.mu.Unlock()
	if !ok {
		release()
		return nil, nil
	}
	return rt, release
}

// startAnswer makes a call that answers a callback in the runtime that has the session, without waiting for the reply.
// done, which must not block, receives what calls.call returns. startAnswer returns false, and does not call done, if
// the call must be made with In, which waits: no runtime has the session, or the runtime cannot take the call now.
func startAnswer(
	l *Loader, method string, params jsonobj.Object, limit time.Duration, done func(json.RawMessage, journal.Position, error),
) bool {
	rt, release := holdLoaded(l)
	if rt == nil {
		return false
	}
	params.SetString("sessionId", l.cfg.calls.id)
	err := rt.Start(context.Background(), method, params.JSON(), limit, func(result json.RawMessage, err error) {
		release()
		if err != nil {
			done(nil, journal.Position{}, Classify(err, method))
			return
		}
		done(result, l.cfg.journal.Last(), nil)
	}, rpcconn.Priority())
	if err != nil {
		release()
	}
	return err == nil
}
