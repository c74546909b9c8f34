package async

import (
	"context"
	"errors"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func TestWait(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	at := func(value int, err error) func(func(int, error)) {
		return func(done func(int, error)) { done(value, err) }
	}
	later := func(done func(int, error)) { go done(2, nil) }
	never := func(func(int, error)) {}
	for name, tc := range map[string]struct {
		ctx   context.Context
		start func(func(int, error))
		value int
		err   error
		why   fault.Reason
	}{
		"it has ended already":      {t.Context(), at(1, nil), 1, nil, fault.None},
		"it fails":                  {t.Context(), at(0, broken), 0, broken, fault.None},
		"it ends later":             {t.Context(), later, 2, nil, fault.None},
		"its caller leaves":         {over, never, 0, context.Canceled, fault.Cancelled},
		"its caller's time is over": {late, never, 0, context.DeadlineExceeded, fault.Timeout},
		"both at once":              {over, at(3, nil), 3, nil, fault.None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, err := Wait(tc.ctx, tc.start)
			if value != tc.value || !errors.Is(err, tc.err) || tc.why != fault.None && fault.ReasonOf(err) != tc.why {
				t.Errorf("got %d, %v", value, err)
			}
		})
	}
}
