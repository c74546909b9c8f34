package copilot_test

import (
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The methods of an outcome can be called without a check for nil, and an outcome without a status is no success.
func TestOutcome(t *testing.T) {
	t.Parallel()
	lost := &bridgev1.TurnOutcome{
		Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, Text: "half",
		Error: &bridgev1.TurnError{ErrorType: "runtime_lost", Message: "The CLI ended. Send it again."},
	}
	for name, tc := range map[string]struct {
		outcome             *copilot.Outcome
		status, text, cause string
		err, printed        string
	}{
		"nil": {nil, "unspecified", "", "",
			"copilot: there is no outcome: the call that returned it has failed", "unspecified"},
		"empty": {&copilot.Outcome{}, "unspecified", "", "", "copilot: turn unspecified", "unspecified"},
		"completed": {&copilot.Outcome{Proto: &bridgev1.TurnOutcome{
			Status: bridgev1.TurnStatus_TURN_STATUS_COMPLETED, Text: "hi",
		}}, "completed", "hi", "", "", "completed: hi"},
		"lost": {&copilot.Outcome{Proto: lost}, "runtime_lost", "half", "The CLI ended. Send it again.",
			"copilot: turn runtime_lost: runtime_lost: The CLI ended. Send it again.",
			"runtime_lost: The CLI ended. Send it again."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text string
			if err := tc.outcome.Err(); err != nil {
				text = err.Error()
			}
			o := tc.outcome
			if string(o.Status()) != tc.status || o.Text() != tc.text || o.Error().GetMessage() != tc.cause || text != tc.err {
				t.Errorf("%s, %q, %v, %q", o.Status(), o.Text(), o.Error(), text)
			}
			if o.String() != tc.printed {
				t.Errorf("prints %q, want %q", o, tc.printed)
			}
		})
	}
}
