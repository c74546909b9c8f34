package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A message that the CLI accepted is in its memory only until it is taken up, and one
// that was sent may not even have been read when the runtime ends. Which of them became
// part of the conversation is found in the history, when the session is loaded again.

// maxDoubted bounds the lost messages that are remembered, for callers that ask again.
const maxDoubted = 1024

// inDoubt puts a waiter in doubt if its message was accepted and not seen since. The
// caller holds mu.
func (w *Waiter) inDoubt() bool {
	w.doubt = w.doubt || (w.accepted || w.entry != 0) && !w.begun && !w.all
	return w.doubt && !w.begun
}

// errNotTaken says that a message was accepted and lost.
func errNotTaken(id string) error {
	return fault.New(fault.SendInDoubt, "the runtime ended before it was seen to take the message up; the history does not have it").
		With("message_id", id)
}

// notTaken ends the waiting for a message that was lost.
func (t *turn) notTaken(w *Waiter) {
	t.finish(w, Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, Err: errNotTaken(w.messageID)})
}

// settle ends the doubt about messages that are not in the outbox: what the history has been
// seen to have was taken up, and its turn was lost; the rest is lost. The caller holds mu.
func (s *Session) settle() {
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()}
	for _, w := range s.turn.snapshot() {
		switch {
		case !w.doubt || w.entry != 0:
		case w.begun:
			s.turn.finish(w, out)
		case !w.known:
			w.note(out)
			w.settled = true
		default:
			s.forgetMessage(w.messageID)
			s.turn.notTaken(w)
		}
	}
}

// forgetMessage remembers that a message was lost. The caller holds mu.
func (s *Session) forgetMessage(id string) {
	if id == "" {
		return
	}
	s.doubted = append(s.doubted, id)
	if len(s.doubted) > maxDoubted {
		s.doubted = s.doubted[1:]
	}
}

// Doubted returns SEND_IN_DOUBT for a message that was accepted and is known to be lost.
func (s *Session) Doubted(messageID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.doubted {
		if id == messageID {
			return errNotTaken(id)
		}
	}
	return nil
}

// GiveUp notes that nobody goes on trying to load the session, because of an error: what that
// would have settled is settled without. It is still loaded when somebody needs it.
func (s *Session) GiveUp(ctx context.Context, err error) {
	if lock(ctx, s.gate) != nil {
		return
	}
	defer unlock(s.gate)
	var found settlement
	if s.State() == Unloaded {
		found = s.lookUp(ctx, nil, cmp.Or(err, errNotLoaded))
	}
	s.mu.Lock()
	s.settle()
	s.settlePrompts(found)
	s.mu.Unlock()
	s.flushPrompts()
}

// errNotLoaded is why GiveUp knows nothing if its caller does not say.
var errNotLoaded = errors.New("the session is not loaded")

// ErrUnsettled is in what a send fails with of which it is not known whether the CLI took
// it: the history may tell, once it can be read.
var ErrUnsettled = errors.New("whether the message was taken up is not known")

// settleTimeout bounds loading a session to see what became of a message.
const settleTimeout = time.Minute

// unsure settles a send during which the runtime ended: if the history has the message,
// it was sent, and its turn was lost.
func (s *Session) unsure(ctx context.Context, rt Runtime, m Message, before journal.Position, cause error) (Sent, error) {
	_, answered := errors.AsType[*rpcconn.Error](cause)
	if fault.ReasonOf(cause) != fault.RuntimeLost || answered || errors.Is(cause, rpcconn.ErrNotSent) {
		return Sent{}, cause
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	unknown := fault.Wrap(errors.Join(ErrUnsettled, cause), fault.SendInDoubt, "the runtime ended before it replied, and the history cannot be read")
	in := fault.Wrap(cause, fault.SendInDoubt, "the runtime ended before it replied, and the history does not have the message")
	select {
	case <-rt.Ended(): // only then is it known that the session is to be loaded
	case <-ctx.Done():
		return Sent{}, unknown
	}
	if _, err := s.Loaded(ctx); err != nil {
		return Sent{}, unknown
	}
	ids, at := s.inHistory(m, before)
	if ids == nil {
		return Sent{}, in
	}
	w := &Waiter{s: s, done: make(chan struct{})}
	w.out = Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()}
	close(w.done)
	return Sent{MessageID: ids[0], Result: m.result(ids), At: at, Waiter: w}, nil
}

// inHistory looks for a message in what happened after a position, by what it says. It returns
// its ids, as many as it is messages, and where the last of them is; nil if it is not there.
func (s *Session) inHistory(m Message, after journal.Position) (ids []string, at journal.Position) {
	prompts := m.prompts()
	s.journal.Each(func(r *journal.Record) bool {
		if len(ids) == len(prompts) {
			return false
		}
		later := r.Pos.Epoch > after.Epoch || r.Pos.Seq > after.Seq
		if !later || r.Type != "user.message" || r.Agent != "" {
			return true
		}
		var d struct{ MessageID string }
		if event.Data(r, &d) && contentOf(r) == prompts[len(ids)] {
			ids, at = append(ids, d.MessageID), r.Pos
		}
		return true
	})
	if len(ids) < len(prompts) {
		return nil, journal.Position{}
	}
	return ids, at
}

// prompts are the texts by which the history shows a message. There are none of one that
// the CLI puts into words of its own, or that only has the agent go on.
func (m Message) prompts() []string {
	switch m.Method {
	case "", "session.send":
		return []string{m.Params.String("prompt")}
	case "session.sendMessages":
		var messages []struct{ Prompt string }
		if json.Unmarshal(m.Params.Get("messages"), &messages) != nil {
			return nil
		}
		var texts []string
		for _, one := range messages {
			texts = append(texts, one.Prompt)
		}
		return texts
	}
	return nil
}

// result is what the CLI answers to a message with these ids.
func (m Message) result(ids []string) json.RawMessage {
	var result jsonobj.Object
	if m.Method == "session.sendMessages" {
		text, _ := json.Marshal(ids) // strings always encode
		result.Set("messageIds", text)
	} else {
		result.SetString("messageId", ids[0])
	}
	return result.JSON()
}

// contentOf is the text of a user's message.
func contentOf(rec *journal.Record) string {
	var d struct{ Content json.RawMessage }
	var text string
	if !event.Data(rec, &d) || json.Unmarshal(d.Content, &text) != nil {
		return ""
	}
	return text
}
