package sim

import (
	"maps"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// shutSession has a caller end the work of the session, which stays open.
func (w *world) shutSession() {
	w.mu.Lock()
	if w.clients.changing || !w.disk.known || w.deletion.underway > 0 {
		w.mu.Unlock()
		return
	}
	for _, p := range w.prompts {
		p.disconnected = p.disconnected || !p.over
	}
	w.disconnects++
	w.disconnecting++
	w.stop.called = true
	l, crashes := w.life, w.crashes
	w.mu.Unlock()
	w.do(func() error {
		_, _, err := l.s.Loader().Shutdown(l.ctx, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.note("the session is shut down: %v", err)
		w.disconnecting--
		if err != nil {
			if reason := fault.ReasonOf(err); w.crashes != crashes || w.isGone(err) || reason == fault.RuntimeLost || reason == fault.SessionNotFound {
				return nil
			}
			return err
		}
		w.stop.done, w.stop.called = true, true
		if c := w.cli; c != nil && c.shut && l.s.Loader().State() == session.Loaded {
			w.failures = append(w.failures, "a session is loaded in a process that has shut it down")
		}
		return nil
	})
}

// shutSession has a process end the work of a session, and complete its record. It takes messages until the session is destroyed, and
// ignores them.
func (c *cli) shutdown(r request) {
	if c.phase == aborting {
		c.reply(c.abort, `{}`)
	}
	c.emit("session.shutdown", `{"shutdownType":"routine"}`, -1)
	c.write()
	c.models = c.forgetModels()
	lost := map[string]bool{}
	for id := range c.questions {
		lost[id] = true
	}
	maps.Copy(lost, c.lost)
	c.phase, c.queue, c.steering, c.turn, c.calls, c.cancelled = idle, nil, nil, nil, nil, nil
	c.questions, c.lost, c.stuck, c.resumed, c.aborted, c.stops, c.shut = map[string]*toolCall{}, lost, false, false, false, false, true
	c.reply(r, `{}`)
}
