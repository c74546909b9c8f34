package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// restoreTimeout bounds putting a provider's headers back after a turn.
const restoreTimeout = time.Minute

// headersReplaced reports whether a turn runs whose headers replace the provider's. The caller
// holds the lock.
func (sd *Sender) headersReplaced() bool { return sd.replacedIn != nil }

// runtimeEnded notes that no runtime has the session. The caller holds the lock.
func (sd *Sender) runtimeEnded() { sd.replacedIn = nil }

// takeHeaders takes the provider's headers away once the running turn has ended: the headers of a message take the place
// of the provider's, and the CLI only knows how to merge. The next message waits until the turn has ended and the headers
// are back.
func (sd *Sender) takeHeaders(ctx context.Context, rt Runtime) error {
	if err := sd.s.turns.AwaitRest(ctx); err != nil {
		return err
	}
	err := sd.reconfigure(ctx, rt, true)
	if err != nil {
		sd.s.mu.Lock()
		sd.replacedIn = nil
		sd.s.mu.Unlock()
	}
	return err
}

// restoreAfter gives the provider's headers back, and sending free, when a turn has ended or
// the runtime has.
func (sd *Sender) restoreAfter(w *turn.Waiter, rt Runtime) {
	sd.s.host.Go(func(ctx context.Context) {
		defer sd.s.prompts.sending.release()
		select {
		case <-w.Done():
		case <-rt.Ended(): // the message may be sent to another runtime, which needs sending
		case <-ctx.Done():
		}
		sd.restoreHeaders(ctx, rt)
	})
}

// restoreHeaders gives the provider's headers back.
func (sd *Sender) restoreHeaders(ctx context.Context, rt Runtime) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	sd.s.mu.Lock()
	current := sd.replacedIn == rt
	sd.s.mu.Unlock()
	if !current {
		return // the next runtime gets the whole configuration anyway
	}
	if err := sd.reconfigure(ctx, rt, false); err != nil && !errors.Is(err, errLeft) {
		sd.s.host.Logger().Error("restoring the provider's headers failed", "session_id", sd.s.id, "error", err)
	}
}

// errLeft is the cause of an error about a runtime that no longer has the session.
var errLeft = errors.New("it was loaded in another one, or ended")

// reconfigure gives a runtime the session's whole configuration, without the provider's headers if they are replaced, while nothing
// else changes the session in the runtime. A runtime that the session has left meanwhile gets nothing: it would load the session.
func (sd *Sender) reconfigure(ctx context.Context, rt Runtime, replaced bool) error {
	return sd.s.loader.exclusive(ctx, func() error {
		sd.s.mu.Lock()
		has, err := sd.s.loader.runtime == rt && (replaced || sd.replacedIn == rt), sd.s.loader.usable()
		if sd.replacedIn = nil; has && replaced {
			sd.replacedIn = rt
		}
		sd.s.mu.Unlock()
		if !has {
			return cmp.Or[error](err, fault.Wrap(errors.Join(errLeft, rpcconn.ErrNotSent), fault.RuntimeLost, "the session has left the runtime"))
		}
		return sd.s.participants.warmResume(ctx, rt, nil)
	})
}

// callAgain gives a runtime a prompt for which w waits, and returns the CLI's answer.
func (sd *Sender) callAgain(
	ctx context.Context, rt Runtime, method string, params jsonobj.Object, w *turn.Waiter,
) (Sent, error) {
	return async.Wait(ctx, func(done func(Sent, error)) {
		sent := &Sent{Waiter: sd.s.turns.waiter(w)}
		params.SetString("sessionId", sd.s.id)
		sd.give(ctx, rt, method, params.JSON(), sent, func(err error) { done(*sent, err) })
	})
}
