package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Abortable reports whether a runtime has the session, so that an abort needs a call of the CLI. It waits for a load in
// progress, because the load may continue the turn of an earlier runtime. If callbacks of such a turn are pending and no
// load is in progress, Abortable loads the session: only the CLI can end their turn.
func (l *Loader) Abortable(ctx context.Context) (bool, error) {
	if err := l.Usable(); err != nil {
		return false, err
	}
	if l.State() == Loaded {
		return true, nil
	}
	if err := l.acquire(ctx); err != nil {
		return false, err
	}
	defer l.release()
	l.s.mu.Lock()
	state, err := l.state, l.usable()
	continues := l.awaited || l.s.callbacks.Registry().Len() > 0
	l.s.mu.Unlock()
	if err != nil || state == Loaded || !continues {
		return state == Loaded, err
	}
	_, err = l.load(ctx)
	return err == nil, err
}

// Abort calls session.abort. If the runtime ends during the call, the session's next runtime may continue the turn, so
// Abort repeats the call there; a second abort does no harm.
func (l *Loader) Abort(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	result, at, err := l.Do(ctx, "session.abort", params)
	if fault.ReasonOf(err) == fault.RuntimeLost && l.Usable() == nil {
		return l.Do(ctx, "session.abort", params)
	}
	return result, at, err
}
