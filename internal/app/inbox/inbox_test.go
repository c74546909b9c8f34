package inbox

import (
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// asked is a command that waits for a permission.
func asked(id, command string) copilot.PendingChange {
	return copilot.PendingChange{Callback: &copilot.Callback{ID: id, SessionID: "s", Proto: &bridgev1.Callback{
		CallbackId: id, Request: &bridgev1.Callback_Permission{Permission: &cliv1.PermissionRequestedData{
			PermissionRequest: &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Shell{
				Shell: &cliv1.PermissionRequestShell{FullCommandText: command},
			}},
		}},
	}}}
}

// closed is the end of a callback that somebody has answered.
func closed(id, by string) copilot.PendingChange {
	change := asked(id, "")
	change.Ended, change.Resolved = true, &bridgev1.CallbackResolved{
		CallbackId: id, AnsweredBy: by, Outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED,
	}
	return change
}

func TestList(t *testing.T) {
	t.Parallel()
	var l list
	if got, want := l.take(asked("a", "one\n\x1b[2J")), "[1] Run a command\n  Session: s\n  | one\n  | ␛[2J\n  y approves once"; !strings.HasPrefix(got, want) {
		t.Errorf("the question is %q, want %q", got, want)
	}
	l.take(asked("b", "two"))
	for name, tc := range map[string]struct{ line, id, err string }{
		"number":            {"2: y", "b", ""},
		"number with hash":  {" #1: n no", "a", ""},
		"no number":         {"y", "", "2 questions wait"},
		"of no question":    {"3: y", "", "question 3 does not wait"},
		"too large":         {"99999999999999999999: y", "", "question 99999999999999999999 does not wait"},
		"not a decision":    {"1: perhaps", "", "y approves once"},
		"not even a number": {": y", "", "2 questions wait"},
	} {
		e, answer, err := l.answer(tc.line)
		switch {
		case tc.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.err)):
			t.Errorf("%s: error %v, want %q", name, err, tc.err)
		case tc.err == "" && (err != nil || answer == nil || e.change.ID != tc.id):
			t.Errorf("%s: answers %v, %v", name, e.change, err)
		}
	}
	if got := l.take(closed("a", "ann\x1b[2J")); got != "[1] is closed: answered by ann␛[2J\n" {
		t.Errorf("the end: %q", got)
	}
	if got := l.take(closed("a", "ann")); got != "" {
		t.Errorf("a second end: %q", got)
	}
	if e, answer, err := l.answer("y"); err != nil || answer == nil || e.number != 2 {
		t.Errorf("the only question: %v, %v", e, err)
	}
	l.take(closed("b", ""))
	if _, _, err := l.answer("y"); err == nil {
		t.Error("an answer to nothing is taken")
	}
	if got := l.take(asked("c", "three")); !strings.HasPrefix(got, "[3] ") {
		t.Errorf("a number is used twice: %q", got)
	}
}

// A line that is not taken is told of, an empty one is not.
func TestLineThatIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line terminal.Line
		want string
	}{
		{terminal.Line{Err: terminal.ErrLineTooLong}, terminal.ErrLineTooLong.Error() + "\n"},
		{terminal.Line{Text: "y"}, "nothing waits for an answer\n"},
		{terminal.Line{Text: " "}, ""},
	} {
		if got := new(list).line(t.Context(), tc.line, nil); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.line, got, tc.want)
		}
	}
}
