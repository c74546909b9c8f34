package sim

import (
	"fmt"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// stream is what the stream of a participant is told.
type stream struct {
	placed         bool  // it has its place
	ended          error // the cause with which it was ended
	expected, told int   // requests that were put to the participant, and how often it was told
}

// joining are the parameters with which the stream of a participant joins.
func (w *world) joining(s *seat) (session.Joining, *stream) {
	st := &stream{}
	learn := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
	j := session.Joining{Token: s.token, Brings: w.brings(s), OnPlaced: func(_ *session.Session, _ session.Joined) { learn(func() { st.placed = true }) }}
	j.Replace = func(cause error) { learn(func() { st.ended = cause }) }
	j.Asked = func() { learn(func() { st.told++ }) }
	return j, st
}

// resume has another stream of a participant take the place of the one that it has. n says whether it is another caller with a
// token that the bridge has from an earlier request.
func (w *world) resume(s *seat, n int) {
	w.mu.Lock()
	old, token := s.stream, s.token
	w.mu.Unlock()
	if n%4 == 0 {
		j, _ := w.joining(s)
		j.Reclaim, j.Identity = true, "another"
		l := w.life
		w.do(func() error {
			if _, err := l.s.Participants().Join(l.ctx, j); fault.ReasonOf(err) != fault.ParticipantNotFound && fault.ReasonOf(err) != fault.SessionNotFound {
				return fmt.Errorf("another caller gets the place of a participant: %w", err)
			}
			return nil
		})
		return
	}
	p, l := s.participant, w.life
	w.join(s)
	w.mu.Lock()
	taken := w.lives(l) && s.token == token && s.stream != old
	wrong := taken && old.ended != roster.ErrReplaced
	w.mu.Unlock()
	if wrong {
		w.fail("the stream of a participant ends with %v when another one takes its place", old.ended)
	}
	if taken {
		w.mu.Lock()
		w.losesOwner(p.ID, false)
		w.mu.Unlock()
		l.s.Participants().Lost(p, roster.ErrReplaced)
		synctest.Wait()
	}
}

// checkStreams: the streams of participants are told of what is put to them.
func (w *world) checkStreams() {
	if len(w.seats) == 0 && w.watching == unwatched {
		return
	}
	shown := w.s.Participants().Count()
	usable := w.s.Loader().Usable() == nil
	handled := w.s.Participants().Handles(askUser)
	w.mu.Lock()
	sure, handlers := w.watching != turning, w.variant.own() == 2 || w.watching == watched
	var there []*seat
	for _, s := range w.seats {
		sure = sure && s.presence != joining && !s.unsure
		handlers = handlers || s.handles()
		if st := s.stream; s.presence == present {
			there = append(there, s)
			if st.told < st.expected {
				w.failures = append(w.failures, fmt.Sprintf("the participant %c is told of %d of %d requests", s.tool, st.told, st.expected))
			}
		}
	}
	sure = sure && w.restarts == 0 && w.life.ended == nil && !w.clients.changing
	w.mu.Unlock()
	if sure && handled != (usable && handlers) {
		w.fail("the session handles questions: %v, and has handlers: %v", handled, handlers)
	}
	for _, s := range there {
		if alone, ends := w.s.Participants().Alone(s.participant); sure && (alone != (shown == 1) || ends) {
			w.fail("of %d participants %c is alone: %v, and ends the session: %v", shown, s.tool, alone, ends)
		}
	}
}

// elsewhere has a caller answer a question by the method for its event.
func (w *world) elsewhere(n int) {
	a, _ := w.choose(4 * n)
	if a == nil || a.p.Kind.Method != askUser || w.variant.narrow() {
		return
	}
	w.mu.Lock()
	a.elsewhere = true
	id := a.p.ID
	w.mu.Unlock()
	l := w.life
	w.do(func() error {
		result, _, err := l.s.Loader().Do(l.ctx, inputMethod, text1("requestId", id))
		if o, _ := jsonobj.Parse(result); err == nil && string(o.Get("success")) == "true" {
			l.s.Callbacks().AnsweredElsewhere(id, askUser)
		}
		return nil
	})
}

// inputMethod answers the event of a question.
const inputMethod = "session.ui.handlePendingUserInput"

// takeInput takes the answer to the event of a question. The process does not take back its request.
func (c *cli) takeInput(r request) {
	t := c.questions[r.params.RequestID]
	if t == nil || t.stage != called {
		c.reply(r, `{"success":false}`)
		return
	}
	t.stage = returned
	delete(c.questions, r.params.RequestID)
	if c.lost == nil {
		c.lost = map[string]bool{}
	}
	c.lost[r.params.RequestID] = true
	c.emit("user_input.completed", fmt.Sprintf(`{"requestId":%q}`, r.params.RequestID), -1)
	c.reply(r, `{"success":true}`)
}
