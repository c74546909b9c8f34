package session

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// mortal is a runtime that may end.
type mortal struct {
	*puppet
	ended atomic.Bool
}

func (m *mortal) Err() error {
	if m.ended.Load() {
		return errors.New("killed")
	}
	return nil
}

// TestTurnOfALostLoad: a runtime that is to load the session may go on with a turn, write that down and end before it has
// loaded the session. Readers who get that from the history are told of the end of the turn, and once.
func TestTurnOfALostLoad(t *testing.T) {
	t.Parallel()
	line := func(n int, eventType string) string {
		return fmt.Sprintf(`{"type":%q,"id":"00000000-0000-4000-8000-00000000000%d","data":{"interactionId":"i%[2]d"}}`, eventType, n)
	}
	old, begun := line(1, "user.message"), line(2, "assistant.turn_start")
	for name, tc := range map[string]struct {
		live   string       // what the first load receives
		fails  fault.Reason // of reading the history
		ends   bool         // the runtime ends when the history was read
		has    bool         // the history has the turn in the next load
		prompt bool         // of the outbox, which readers do not know of, began it
		told   int
	}{
		"killed before the history is read":  {live: begun, fails: fault.RuntimeLost, has: true, told: 1},
		"killed behind that":                 {live: begun, ends: true, has: true, told: 1},
		"nothing is written":                 {live: begun, fails: fault.RuntimeLost},
		"no turn has begun":                  {live: line(3, "session.resume"), fails: fault.RuntimeLost, has: true},
		"the runtime goes on":                {live: begun, fails: fault.CLIProtocolError, has: true},
		"the end of the prompt's is another": {live: begun, fails: fault.RuntimeLost, has: true, prompt: true, told: 1},
	} {
		loads := 0
		m := &mortal{puppet: &puppet{}}
		var s *Session
		m.answer = func(method string) (string, error) {
			switch method {
			case "session.resume":
				if loads++; loads == 1 {
					s.had(tc.live, false)
				}
			case "session.getMessages":
				if loads == 1 && tc.fails != fault.None {
					return "", fault.New(tc.fails, "no")
				}
				events := []string{old}
				if loads > 1 && tc.prompt {
					events = append(events, strings.Replace(firstMessage, "0001", "0004", 1))
				}
				if loads > 1 && tc.has {
					events = append(events, begun)
				}
				m.ended.Store(loads == 1 && tc.ends)
				return `{"events":[` + strings.Join(events, ",") + `]}`, nil
			}
			return `{}`, nil
		}
		s = onStock(t, &stock{rt: m})
		s.had(old, false)
		s.update(func() { s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST) })
		if tc.prompt {
			n := acknowledged(t, s, "p")
			s.prompts.outbox.Accepted(n, []string{"m0"}, s.journal.Last(), func(bool, bool, error) {})
		}
		before := s.journal.Last()
		for range 2 {
			_, _ = s.loader.Load(t.Context()) // the first one fails, or its runtime has ended
			if s.turns.Running() {
				t.Errorf("%s: a turn runs behind load %d", name, loads)
			}
		}
		if told := s.endsSince(before); told != tc.told || loads != 2 {
			t.Errorf("%s: readers are told of %d ends, not %d, in %d loads", name, told, tc.told, loads)
		}
	}
}

// endsSince counts the ends of turns that readers behind a position are told.
func (s *Session) endsSince(at journal.Position) (n int) {
	r, err := s.journal.NewReader(at, true, func() {})
	if err != nil {
		panic(err) // of a test
	}
	defer r.Close()
	for records, gap := r.Next(nil, 1<<20); len(records) > 0 || gap != nil; records, gap = r.Next(nil, 1<<20) {
		for _, rec := range records {
			if over, is := rec.Note.(TurnOver); is && over.IDs == nil {
				n++
			}
		}
	}
	return n
}
