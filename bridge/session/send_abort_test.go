package session

import (
	"errors"
	"slices"
	"testing"

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
