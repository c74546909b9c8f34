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
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A message that the CLI accepted is in its memory only until it is taken up, and one
// that was sent may not even have been read when the runtime ends. Which of them became
// part of the conversation is found in the history, when the session is loaded again.

// Doubted returns SEND_IN_DOUBT for a message that was accepted and is known to be lost.
func (s *Session) Doubted(messageID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn.LostMessage(messageID)
}

// GiveUp notes that the bridge stops trying to load the session, because of an error, and resolves
// the messages that a load would have resolved. The session is still loaded when a call needs it.
func (s *Session) GiveUp(ctx context.Context, err error) {
	if lock(ctx, s.gate) != nil {
		return
	}
	defer unlock(s.gate)
	var found prompts.Settlement
	if s.State() == Unloaded {
		found = s.prompts.LookUp(ctx, nil, cmp.Or(err, errNotLoaded))
	}
	s.mu.Lock()
	s.carryOut(s.turn.Confirm(s.journal.Last()))
	s.prompts.Settle(locked{s}, found)
	s.mu.Unlock()
	s.prompts.Flush()
}

// errNotLoaded is why GiveUp knows nothing if its caller does not say.
var errNotLoaded = errors.New("the session is not loaded")

// ErrUnsettled is in what a send fails with of which it is not known whether the CLI took
// it: the history may tell, once it can be read.
var ErrUnsettled = errors.New("whether the message was taken up is not known")

// settleTimeout bounds loading a session to see what became of a message.
const settleTimeout = time.Minute

// unconfirmed resolves a send during which the runtime ended: if the history has the message,
// it was sent, and its turn was lost.
func (s *Session) unconfirmed(ctx context.Context, rt Runtime, m Message, before journal.Position, cause error) (Sent, error) {
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
	w := s.unregisteredWaiter()
	w.state.Finish(turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()})
	return Sent{MessageID: ids[0], Result: m.result(ids), At: at, Waiter: w}, nil
}

// inHistory looks for a message in what happened after a position, by what it says. It returns
// its ids, as many as it is messages, and where the last of them is; nil if it is not there.
func (s *Session) inHistory(m Message, after journal.Position) (ids []string, at journal.Position) {
	texts := m.texts()
	s.journal.Each(func(r *journal.Record) bool {
		if len(ids) == len(texts) {
			return false
		}
		later := r.Pos.Epoch > after.Epoch || r.Pos.Seq > after.Seq
		if !later || r.Type != "user.message" || r.Agent != "" {
			return true
		}
		var d struct{ MessageID string }
		if event.Data(r, &d) && prompts.Content(r) == texts[len(ids)] {
			ids, at = append(ids, d.MessageID), r.Pos
		}
		return true
	})
	if len(ids) < len(texts) {
		return nil, journal.Position{}
	}
	return ids, at
}

// texts are the texts by which the history shows a message. There are none of one that
// the CLI puts into words of its own, or that only has the agent go on.
func (m Message) texts() []string {
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
