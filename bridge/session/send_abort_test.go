package session

import (
	"errors"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// TestAbortAcrossRuntimes: an abort whose runtime ends is made again in the next one, which may continue the turn. Any other
// error is the caller's.
func TestAbortAcrossRuntimes(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.RuntimeLost, "killed")
	for name, tc := range map[string]struct {
		first  error
		aborts int
		fails  error
	}{
		"done":    {aborts: 1},
		"lost":    {first: lost, aborts: 2},
		"refused": {first: errRefused, aborts: 1, fails: errRefused},
	} {
		p, aborts := &puppet{}, 0
		p.answer = func(method string) (string, error) {
			switch method {
			case "session.abort":
				if aborts++; aborts == 1 && tc.first != nil {
					return "", tc.first
				}
			case "session.getMessages":
				return `{"events":[]}`, nil
			}
			return `{}`, nil
		}
		s := onStock(t, &stock{rt: endedPuppet{p}})
		s.loader.runtime, s.loader.state = endedPuppet{p}, Loaded
		_, _, err := s.loader.abort(t.Context(), nil)
		if !errors.Is(err, tc.fails) || aborts != tc.aborts {
			t.Errorf("%s: %v, aborted %d times; the calls are %v", name, err, aborts, slices.Compact(p.calls))
		}
	}
}

// endedPuppet is a puppet whose process has ended.
type endedPuppet struct{ *puppet }

func (endedPuppet) Ended() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestAbortOfAnUnloadedSession: an abort loads a session only if it has callbacks, whose turn only the CLI can end.
func TestAbortOfAnUnloadedSession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pend  func(*Session)
		loads bool
	}{
		"nothing is pending": {pend: func(*Session) {}},
		"a callback is pending": {loads: true, pend: func(s *Session) {
			s.update(func() {
				s.callbacks.register(&callback.Pending{ID: "p1", Kind: callback.ForEvent(callback.PermissionRequested)}, true)
			})
		}},
		"an earlier process had callbacks": {loads: true, pend: func(s *Session) { s.loader.awaited = []string{"p1"} }},
	} {
		p := &puppet{answer: func(method string) (string, error) {
			if method == "session.getMessages" {
				return `{"events":[]}`, nil
			}
			return `{}`, nil
		}}
		s := onStock(t, &stock{rt: p})
		tc.pend(s)
		if _, err := s.sender.Abort(t.Context(), nil); err != nil || p.called("session.resume") != tc.loads {
			t.Errorf("%s: %v; the calls are %v", name, err, p.calls)
		}
	}
}
