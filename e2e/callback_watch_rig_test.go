package e2e

import (
	"slices"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// callbackWatch follows the callbacks of a session by a subscription.
type callbackWatch struct {
	st *stage

	mu      sync.Mutex
	changed chan struct{}
	asked   []*bridgev1.Callback
	over    []*bridgev1.CallbackResolved
	waiting map[string]bool
	restart []*bridgev1.RuntimeRestarted
	closed  *bridgev1.Closed
	events  []string
	turns   []*bridgev1.TurnOutcome
}

// callbacks begins to follow the callbacks of a session, the ones that are pending
// already included. It returns when the stream is open.
func (st *stage) callbacks(id string) *callbackWatch {
	st.t.Helper()
	w := &callbackWatch{st: st, changed: make(chan struct{}), waiting: map[string]bool{}}
	stream, err := st.dial().EventStreams().Subscribe(st.ctx, &bridgev1.SubscribeRequest{
		Sessions:  []*bridgev1.SessionCursor{{SessionId: id, Start: bridgev1.Start_START_TAIL}},
		Callbacks: true,
	})
	if err != nil {
		st.t.Fatalf("subscribe: %v", err)
	}
	frame, err := stream.Recv()
	if err != nil || frame.GetAttached() == nil {
		st.t.Fatalf("the first frame of the subscription is %v, %v", frame, err)
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

func (w *callbackWatch) take(frame *bridgev1.SubscribeResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cb := range frame.GetAttached().GetPendingCallbacks() {
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
		w.restart = append(w.restart, r)
	}
	if c := frame.GetClosed(); c != nil {
		w.closed = c
	}
	if e := frame.GetTurnEnded(); e != nil {
		w.turns = append(w.turns, e.GetOutcome())
	}
	for _, ev := range frame.GetEvents().GetEvents() {
		w.events = append(w.events, ev.GetEvent().GetType())
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *callbackWatch) ask(cb *bridgev1.Callback) {
	w.asked = append(w.asked, cb)
	w.waiting[cb.GetCallbackId()] = true
}

// await waits for something to hold of what was seen.
func (w *callbackWatch) await(what string, holds func(*callbackWatch) bool) {
	w.st.t.Helper()
	for {
		w.mu.Lock()
		ok, changed := holds(w), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-w.st.ctx.Done():
			w.st.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// requested waits for the first callback of a kind.
func (w *callbackWatch) requested(kind bridgev1.CallbackKind) (cb *bridgev1.Callback) {
	w.st.t.Helper()
	w.await("a callback of kind "+kind.String(), func(w *callbackWatch) bool {
		i := slices.IndexFunc(w.asked, func(cb *bridgev1.Callback) bool { return cb.GetKind() == kind })
		if i >= 0 {
			cb = w.asked[i]
		}
		return i >= 0
	})
	return cb
}

// resolved waits for the end of a callback.
func (w *callbackWatch) resolved(id string) (over *bridgev1.CallbackResolved) {
	w.st.t.Helper()
	w.await("the end of callback "+id, func(w *callbackWatch) bool {
		i := slices.IndexFunc(w.over, func(r *bridgev1.CallbackResolved) bool { return r.GetCallbackId() == id })
		if i >= 0 {
			over = w.over[i]
		}
		return i >= 0
	})
	return over
}

// restarted waits for the session's runtime to have ended.
func (w *callbackWatch) restarted() (r *bridgev1.RuntimeRestarted) {
	w.st.t.Helper()
	w.await("the runtime's end", func(w *callbackWatch) bool {
		if len(w.restart) > 0 {
			r = w.restart[0]
		}
		return r != nil
	})
	return r
}

// turn waits for the end of the n-th turn that ends, the first being 1.
func (w *callbackWatch) turn(n int) (out *bridgev1.TurnOutcome) {
	w.st.t.Helper()
	w.await("the turn's end", func(w *callbackWatch) bool {
		if len(w.turns) >= n {
			out = w.turns[n-1]
		}
		return out != nil
	})
	return out
}

// ended waits for the end of the session's use.
func (w *callbackWatch) ended() (c *bridgev1.Closed) {
	w.st.t.Helper()
	w.await("the session's end", func(w *callbackWatch) bool {
		c = w.closed
		return c != nil
	})
	return c
}
