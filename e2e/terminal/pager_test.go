package terminal

import (
	"fmt"
	"strings"
	"testing"
)

// What does not fit the terminal goes to less, or to the pager of PAGER; nothing is lost without one, and a pager that
// ends early is no error.
func TestPager(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	p.types("stty -g > before; copilot-grpc help run; stty -g > after; echo exit $?")
	p.waits("Usage: copilot-grpc run PROMPT", "\n:")
	p.presses("G")
	p.waits("--timeout duration", "(END)")
	p.presses("q")
	p.waits("exit 0")
	p.hasItsTerminalBack()
	for line, shown := range map[string]string{
		"copilot-grpc help version":                                    "Usage: copilot-grpc version",
		"copilot-grpc describe RunRequest --no-pager":                  "options  StreamOptions",
		"PAGER=no-such-pager copilot-grpc describe RunRequest":         "options  StreamOptions",
		"PAGER='head -n 1' copilot-grpc describe SessionConfig":        "message copilot.cli.v1.SessionConfig\n",
		"PAGER=true copilot-grpc describe SessionConfig":               "",
		"PAGER=false copilot-grpc describe SessionConfig":              "",
		"COPILOT_GRPC_NO_PAGER=true PAGER=false copilot-grpc help run": "--token",
		"TERM=dumb copilot-grpc help run":                              "--token",
	} {
		ended := strings.ReplaceAll(line, "'", "")
		p.types(fmt.Sprintf("clear; %s; echo '%s' ended with $?", line, ended))
		p.waits(shown, ended+" ended with 0")
	}
}
