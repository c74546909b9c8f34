package main

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
	w.rec.logf("settling")
	if !w.calls.end() {
		return
	}
	for _, c := range w.sessions {
		w.bringToRest(c)
	}
	if !w.calls.end() {
		return
	}
	w.readersEnd()
	if w.ctx.Err() == nil {
		w.check(r)
	}
}

// bringToRest ends what goes on in a session, and has a last turn complete.
func (w *world) bringToRest(to *conversation) {
	for try := range restTries {
		if w.ctx.Err() != nil || w.rested(to, w.callers[try%len(w.callers)]) {
			return
		}
		pause(w.ctx, time.Duration(20+20*try)*time.Millisecond)
	}
	w.rec.violated("session %s does not come to rest", to.id)
}

func (w *world) rested(to *conversation, c *caller) bool {
	err := w.calls.do("Abort", func(ctx context.Context) error {
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
	err = w.calls.do("SendAndWait", func(ctx context.Context) error {
		r, err := c.sessions.SendAndWait(ctx,
			&bridgev1.SendAndWaitRequest{RequestId: "final-" + p.word, SessionId: to.id, Prompt: text})
		p.ended(r.GetOutcome())
		status = r.GetOutcome().GetStatus()
		return err
	})
	if reasonOf(err) == "CREDENTIALS_NEEDED" {
		w.provide(to)
	}
	w.rec.logf("session %d: the last turn ended: %v, %v", to.n, status, errOrOK(err))
	return err == nil && status == bridgev1.TurnStatus_TURN_STATUS_COMPLETED
}

// readersEnd has all who read come to the end, those too that had stopped, and then stop.
func (w *world) readersEnd() {
	ctx, cancel := context.WithTimeout(w.ctx, catchUp)
	defer cancel()
	ends := map[string]place{}
	for _, c := range w.sessions {
		_ = w.calls.do("GetSession", func(ctx context.Context) error {
			r, err := w.callers[0].sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: c.id})
			ends[c.id] = placeOf(r.GetSession().GetPosition())
			return err
		})
	}
	w.audience.stop(ctx, ends)
}
