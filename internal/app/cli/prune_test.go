package cli

import (
	"strings"
	"testing"
)

func TestPruneCommand(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	for args, want := range map[string]result{
		"sessions prune":                             {exitUsage, "", "want --idle"},
		"sessions prune --idle 720h" + to:            {exitOK, "", ""},
		"sessions prune --idle soon":                 {exitUsage, "", "soon"},
		"sessions prune --idle 720h all":             {exitUsage, "", `unexpected argument "all"`},
		"sessions prune --idle 1s" + to:              {exitFailed, "", "idle_for is 1s, not between 1m0s and"},
		"sessions prune --idle 720h --max 1001" + to: {exitFailed, "", "max_sessions is 1001, not between 1 and 1000"},
		"sessions prune --idle 720h --dry-run" + to:  {exitOK, "", ""},
		"sessions prune --help":                      {exitOK, "--dry-run", ""},
	} {
		got := run(t, nil, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) ||
			!strings.Contains(got.stderr, want.stderr) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
