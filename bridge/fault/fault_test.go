package fault_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func TestReasonOf(t *testing.T) {
	t.Parallel()
	inner := fault.New(fault.CLINotFound, "no executable at %q", "/x")
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
	}{
		"nil":       {nil, 0},
		"plain":     {fs.ErrNotExist, 0},
		"direct":    {inner, fault.CLINotFound},
		"wrapped":   {fmt.Errorf("starting: %w", inner), fault.CLINotFound},
		"outermost": {fault.Wrap(inner, fault.CLIStartFailed, "start"), fault.CLIStartFailed},
		"joined":    {errors.Join(fs.ErrClosed, inner), fault.CLINotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fault.ReasonOf(tc.err); got != tc.want {
				t.Errorf("ReasonOf = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWrapKeepsCauseAndText(t *testing.T) {
	t.Parallel()
	err := fault.Wrap(fs.ErrNotExist, fault.CLINotFound, "open %q", "a b")
	if want := `open "a b": file does not exist`; err.Error() != want {
		t.Errorf("Error() = %q, want %q", err.Error(), want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is not reachable with errors.Is")
	}
	if got := fault.Wrap(nil, fault.CLIHung, "no answer").Error(); got != "no answer" {
		t.Errorf("Wrap(nil).Error() = %q", got)
	}
}

// A reason-bearing error is often kept in a variable; decorating it for one
// caller must not show up at the next.
func TestDecoratorsCopy(t *testing.T) {
	t.Parallel()
	base := fault.New(fault.CLICrashLoop, "crash loop").With("profile", "p")
	derived := base.With("attempts", "5").WithField("cli_path").WithRetry(time.Minute)
	if len(base.Metadata) != 1 || base.Field != "" || base.RetryAfter != 0 {
		t.Errorf("the base error changed: %+v", base)
	}
	if derived.Metadata["profile"] != "p" || derived.Metadata["attempts"] != "5" ||
		derived.Field != "cli_path" || derived.RetryAfter != time.Minute {
		t.Errorf("derived = %+v", derived)
	}
}
