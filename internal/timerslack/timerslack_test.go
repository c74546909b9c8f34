package timerslack

import (
	"strings"
	"testing"
	"time"
)

// Only a program that serves gets another slack, and only a valid one.
func TestWanted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args     []string
		variable string
		want     time.Duration
	}{
		"a server":                      {[]string{"copilot-grpc", "serve"}, "", Default},
		"a shim":                        {[]string{"copilot-grpc", "shim", "--stdio"}, "", Default},
		"a shim with the CLI's name":    {[]string{"/usr/bin/copilot", "--stdio"}, "", Default},
		"another slack":                 {[]string{"copilot-grpc", "serve"}, "10ms", 10 * time.Millisecond},
		"the kernel's":                  {[]string{"copilot-grpc", "serve"}, "50us", Kernel},
		"none":                          {[]string{"copilot-grpc", "serve"}, "0", 0},
		"too much":                      {[]string{"copilot-grpc", "serve"}, "1s", 0},
		"no duration":                   {[]string{"copilot-grpc", "serve"}, "much", 0},
		"a command that does not serve": {[]string{"copilot-grpc", "version"}, "", 0},
		"no command":                    {[]string{"copilot-grpc"}, "", 0},
		"no arguments":                  {nil, "", 0},
	} {
		if got := Wanted(test.args, test.variable); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// An invalid value is an error that names the variable and the value.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"0", "-1ms", "1s", "much"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), Variable+`="`+bad+`"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
