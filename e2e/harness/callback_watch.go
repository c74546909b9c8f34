package harness

import (
	"slices"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CallbackWatch follows the callbacks of a session by a subscription.
type CallbackWatch struct {
	st *Scripted

	Mu      sync.Mutex
	changed chan struct{}
	asked   []*bridgev1.Callback
	over    []*bridgev1.CallbackResolved
	waiting map[string]bool
	Restart []*bridgev1.RuntimeRestarted
	Closed  *bridgev1.SubscriptionClosed
	events  []string
	turns   []*bridgev1.TurnOutcome
}

// Callbacks begins to follow the callbacks of a session, the ones that are pending
// already included. It returns when the stream is open.
func (st *Scripted) Callbacks(id string) *CallbackWatch {
	st.T.Helper()
	w := &CallbackWatch{st: st, changed: make(chan struct{}), waiting: map[string]bool{}}
	stream, err := st.Dial().EventStreams().Subscribe(st.Ctx, &bridgev1.SubscribeRequest{
		Sessions:  []*bridgev1.SessionCursor{{SessionId: id, Start: bridgev1.StreamStart_STREAM_START_END}},
		Callbacks: true,
	})
	if err != nil {
		st.T.Fatalf("subscribe: %v", err)
	}
	frame, err := stream.Recv()
	if err != nil || frame.GetStarted() == nil {
		st.T.Fatalf("the first frame of the subscription is %v, %v", frame, err)
	}
	w.take(frame)
	go func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				return // the test's end, or the session's
			}
			w.take(frame)
		}
	}()
	return w
}

func (w *CallbackWatch) take(frame *bridgev1.SubscribeResponse) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, cb := range frame.GetStarted().GetPendingCallbacks() {
		w.ask(cb)
	}
	if r := frame.GetCallbackRequested(); r != nil {
		w.ask(r.GetCallback())
	}
	if r := frame.GetCallbackResolved(); r != nil {
		w.over = append(w.over, r)
		delete(w.waiting, r.GetCallbackId())
	}
	if r := frame.GetRuntimeRestarted(); r != nil {
		w.Restart = append(w.Restart, r)
	}
	if c := frame.GetClosed(); c != nil {
		w.Closed = c
	}
	if e := frame.GetTurnEnded(); e != nil {
		w.turns = append(w.turns, e.GetOutcome())
	}
	for _, ev := range frame.GetEvents().GetEvents() {
		w.events = append(w.events, ev.GetEvent().GetEventType())
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *CallbackWatch) ask(cb *bridgev1.Callback) {
	w.asked = append(w.asked, cb)
	w.waiting[cb.GetCallbackId()] = true
}

// await waits for something to hold of what was seen.
func (w *CallbackWatch) await(what string, holds func(*CallbackWatch) bool) {
	w.st.T.Helper()
	for {
		w.Mu.Lock()
		ok, changed := holds(w), w.changed
		w.Mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-w.st.Ctx.Done():
			w.st.T.Fatalf("waited in vain for %s", what)
		}
	}
}

// Requested waits for the first callback of a kind.
func (w *CallbackWatch) Requested(kind bridgev1.CallbackKind) (cb *bridgev1.Callback) {
	w.st.T.Helper()
	w.await("a callback of kind "+kind.String(), func(w *CallbackWatch) bool {
		i := slices.IndexFunc(w.asked, func(cb *bridgev1.Callback) bool { return cb.GetKind() == kind })
		if i >= 0 {
			cb = w.asked[i]
		}
		return i >= 0
	})
	return cb
}

// Resolved waits for the end of a callback.
func (w *CallbackWatch) Resolved(id string) (over *bridgev1.CallbackResolved) {
	w.st.T.Helper()
	w.await("the end of callback "+id, func(w *CallbackWatch) bool {
		i := slices.IndexFunc(w.over, func(r *bridgev1.CallbackResolved) bool { return r.GetCallbackId() == id })
		if i >= 0 {
			over = w.over[i]
		}
		return i >= 0
	})
	return over
}

// Restarted waits for the session's runtime to have ended.
func (w *CallbackWatch) Restarted() (r *bridgev1.RuntimeRestarted) {
	w.st.T.Helper()
	w.await("the runtime's end", func(w *CallbackWatch) bool {
		if len(w.Restart) > 0 {
			r = w.Restart[0]
		}
		return r != nil
	})
	return r
}

// Turn waits for the end of the n-th turn that ends, the first being 1.
func (w *CallbackWatch) Turn(n int) (out *bridgev1.TurnOutcome) {
	w.st.T.Helper()
	w.await("the turn's end", func(w *CallbackWatch) bool {
		if len(w.turns) >= n {
			out = w.turns[n-1]
		}
		return out != nil
	})
	return out
}

// Ended waits for the end of the session's use.
func (w *CallbackWatch) Ended() (c *bridgev1.SubscriptionClosed) {
	w.st.T.Helper()
	w.await("the session's end", func(w *CallbackWatch) bool {
		c = w.Closed
		return c != nil
	})
	return c
}
