package chaos

import (
	"context"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// restTries is how often a session is brought to rest: faults of the fake CLI's script
	// may still strike.
	restTries = 30
	// catchUp is how long a reader may take to come to the end.
	catchUp = 20 * time.Second
)

// settle ends the faults, brings everything to rest, and checks the invariants.
func (w *world) settle(r *Report) {
	w.logf("settling")
	if !w.callsEnd() {
		return
	}
	for _, c := range w.sessions {
		w.bringToRest(c)
	}
	if !w.callsEnd() {
		return
	}
	w.readersEnd()
	if w.ctx.Err() == nil {
		w.check(r)
	}
}

// callsEnd waits for all calls to end: they have a deadline of their own, which none should
// come to.
func (w *world) callsEnd() bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.calls.Wait()
	}()
	select {
	case <-ended:
		return true
	case <-time.After(2 * w.callTimeout()):
		w.violated("calls do not end, not even at their deadline")
		w.cancel()
		<-ended
		return false
	}
}

// bringToRest ends what goes on in a session, and has a last turn complete.
func (w *world) bringToRest(to *conversation) {
	for try := range restTries {
		if w.ctx.Err() != nil || w.rested(to, w.callers[try%len(w.callers)]) {
			return
		}
		w.pause(time.Duration(20+20*try) * time.Millisecond)
	}
	w.violated("session %s does not come to rest", to.id)
}

func (w *world) rested(to *conversation, c *caller) bool {
	err := w.callNow("Abort", func(ctx context.Context) error {
		_, err := c.sessions.Abort(ctx, &bridgev1.AbortRequest{SessionId: to.id})
		return err
	})
	switch reasonOf(err) {
	case "SESSION_NOT_FOUND":
		w.reopen(c, to, true)
		return false
	case "CREDENTIALS_NEEDED":
		w.provide(to)
		return false
	}
	if err != nil {
		return false
	}
	p, text := w.say(to, final, false)
	var status bridgev1.TurnStatus
	err = w.callNow("SendAndWait", func(ctx context.Context) error {
		r, err := c.sessions.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{RequestId: "final-" + p.word, SessionId: to.id, Prompt: text})
		p.ended(r.GetOutcome())
		status = r.GetOutcome().GetStatus()
		return err
	})
	if reasonOf(err) == "CREDENTIALS_NEEDED" {
		w.provide(to)
	}
	w.logf("session %d: the last turn ended: %v, %v", to.n, status, errOrOK(err))
	return err == nil && status == bridgev1.TurnStatus_TURN_STATUS_COMPLETED
}

// readersEnd has all who read come to the end, those too that had stopped, and then stop.
func (w *world) readersEnd() {
	ctx, cancel := context.WithTimeout(w.ctx, catchUp)
	defer cancel()
	ends := map[string]place{}
	for _, c := range w.sessions {
		_ = w.callNow("GetSession", func(ctx context.Context) error {
			r, err := w.callers[0].sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: c.id})
			ends[c.id] = placeOf(r.GetSession().GetPosition())
			return err
		})
	}
	for _, r := range w.readers {
		close(r.unstop)
	}
	for _, f := range w.followers() {
		end := ends[f.session]
		if !f.reached(ctx, end, f.over) && w.ctx.Err() == nil {
			f.mu.Lock()
			f.violated("has not come to %v within %v", end, catchUp)
			f.mu.Unlock()
		}
	}
	for _, r := range w.readers {
		r.end()
		<-r.over
	}
	for _, p := range w.participants {
		p.end()
		<-p.over
	}
}

// follower is a track and what ends with it.
type follower struct {
	*track
	over <-chan struct{}
}

func (w *world) followers() (all []follower) {
	for _, r := range w.readers {
		all = append(all, follower{r.track, r.over})
	}
	for _, p := range w.participants {
		all = append(all, follower{p.track, p.over})
	}
	return all
}
