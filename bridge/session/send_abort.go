package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Aborted is the result of an abort.
type Aborted struct {
	// Running reports that there was a turn, or a prompt, to end.
	Running bool
	// Result is the CLI's result; nil if no runtime has the session.
	Result json.RawMessage
	// At is the journal's end when the CLI replied.
	At journal.Position
}

// Abort stops the running turn and what is queued. params are those of session.abort; they may be nil.
func (sd *Sender) Abort(ctx context.Context, params jsonobj.Object) (out Aborted, err error) {
	if err := sd.s.loader.Usable(); err != nil {
		return out, err
	}
	sd.s.prompts.beginAbort(ctx)
	defer sd.s.prompts.endAbort()
	given := sd.s.prompts.acknowledged()
	loaded, err := sd.s.loader.abortable(ctx)
	switch {
	case err != nil:
		return out, err
	case !loaded:
		running, err := sd.s.prompts.abort(ctx, given, sd.s.prompts.awaitStored)
		return Aborted{Running: running, At: sd.s.journal.Last()}, err
	}
	running := sd.s.turns.Running()
	result, at, err := sd.s.loader.abort(ctx, params)
	if err != nil {
		return Aborted{Running: running, At: at}, err
	}
	if _, err = sd.s.prompts.abort(ctx, given, sd.s.prompts.tryStored); err == nil {
		err = sd.s.awaitStored(ctx) // else the next owner would not know of it
	}
	return Aborted{running, result, at}, err
}

// abortable reports whether a runtime has the session, so that an abort needs a call of the CLI. It waits for a load in
// progress, because the load may continue the turn of an earlier runtime. If callbacks of such a turn are pending and no
// load is in progress, abortable loads the session: only the CLI can end their turn.
func (l *Loader) abortable(ctx context.Context) (bool, error) {
	if l.State() == Loaded {
		return true, nil
	}
	if err := l.lifecycle.acquire(ctx); err != nil {
		return false, err
	}
	defer l.lifecycle.release()
	l.s.mu.Lock()
	state, err := l.state, l.usable()
	continues := len(l.awaited) > 0 || l.s.callbacks.Registry().Len() > 0
	l.s.prompts.leavesUnseen = err == nil && state != Loaded && !continues
	l.s.mu.Unlock()
	if err != nil || state == Loaded || !continues {
		return state == Loaded, err
	}
	_, err = l.load(ctx)
	return err == nil, err
}

// abort calls session.abort. If the runtime ends during the call, the session's next runtime may continue the turn, so
// abort repeats the call there; a second abort does no harm.
func (l *Loader) abort(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	result, at, err := l.Do(ctx, "session.abort", params)
	if fault.ReasonOf(err) == fault.RuntimeLost && l.Usable() == nil {
		return l.Do(ctx, "session.abort", params)
	}
	return result, at, err
}
