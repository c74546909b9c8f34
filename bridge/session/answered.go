package session

import (
	"bytes"
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A participant whose stream broke cannot know whether its answer arrived, and gives it
// once more when it is back. The same answer of the same participant is no second one.

// maxAnswered bounds the answers that a session remembers: those that a stream may have had
// under way, and some more.
const maxAnswered = 64

// given is an answer that a participant gave.
type given struct {
	p           *callback.Pending
	participant string
	reply       callback.Reply
	done        chan struct{} // closes when it is known what became of it
	at          journal.Position
	err         error
}

// answering notes an answer that is being given. over tells what became of it.
func (s *Session) answering(p *callback.Pending, participant string, reply callback.Reply) (over func(journal.Position, error)) {
	if participant == "" {
		return func(journal.Position, error) {}
	}
	a := &given{p: p, participant: participant, reply: reply, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
	if len(s.answers) > maxAnswered {
		s.answers = s.answers[1:]
	}
	return func(at journal.Position, err error) {
		a.at, a.err = at, err
		close(a.done)
	}
}

// lastAnswer is the newest answer to a callback, if the participant gave it.
func (s *Session) lastAnswer(id, participant string) *given {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.answers) - 1; i >= 0; i-- {
		if a := s.answers[i]; a.p.ID == id {
			if participant == "" || a.participant != participant {
				return nil
			}
			return a
		}
	}
	return nil
}

// Asked returns a callback that waits, or that the participant has answered.
func (s *Session) Asked(id, participant string) (*callback.Pending, error) {
	p, err := s.pending.Get(id)
	if fault.ReasonOf(err) == fault.CallbackResolved {
		if a := s.lastAnswer(id, participant); a != nil {
			return a.p, nil
		}
	}
	return p, err
}

// again returns what became of the answer that this one repeats; cause if it does not.
func (s *Session) again(ctx context.Context, id, participant string, reply callback.Reply, cause error) (journal.Position, error) {
	a := s.lastAnswer(id, participant)
	if a == nil || fault.ReasonOf(cause) != fault.CallbackResolved || !sameReply(a.reply, reply) {
		return journal.Position{}, cause
	}
	select {
	case <-a.done:
		return a.at, a.err
	case <-ctx.Done():
		return journal.Position{}, Classify(ctx.Err(), "")
	}
}

func sameReply(a, b callback.Reply) bool {
	if a.Error != nil && b.Error != nil {
		return *a.Error == *b.Error
	}
	return a.Error == b.Error && bytes.Equal(a.Members, b.Members)
}

// AnswerOf finds, in the journal, the event that says that a callback is over.
func (s *Session) AnswerOf(ctx context.Context, id string) (at journal.Position, ok bool) {
	s.each(ctx, journal.Position{}, func(rec *journal.Record) bool {
		var d struct{ RequestID string }
		if callback.Ends(rec.Type) && dataOf(rec, &d) && d.RequestID == id {
			at, ok = rec.Pos, true
		}
		return !ok
	})
	return at, ok
}
