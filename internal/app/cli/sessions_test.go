package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSessionsCommand(t *testing.T) {
	t.Parallel()
	target := server(t)
	dir := t.TempDir()
	taken, empty := filepath.Join(dir, "taken"), filepath.Join(dir, "new.tar.gz")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := " --target " + target
	for args, want := range map[string]result{
		"sessions":                                    {exitUsage, "", `want "sessions export SESSION"`},
		"sessions export":                             {exitUsage, "", `want "sessions export SESSION"`},
		"sessions copy x":                             {exitUsage, "", `want "sessions export SESSION"`},
		"sessions export x y":                         {exitUsage, "", `unexpected argument "y"`},
		"sessions export x --id y":                    {exitUsage, "", "--id for import"},
		"sessions import x --output y":                {exitUsage, "", "--output is for export"},
		"sessions export x --output " + taken + to:    {exitFailed, "", "choose another one with --output"},
		"sessions export none --output " + empty + to: {exitFailed, "", "NotFound: Session not found: none"},
		"sessions export --output -" + to + " none":   {exitFailed, "", "NotFound"},
		"sessions import " + taken + to:               {exitFailed, "", "InvalidArgument: invalid session archive"},
		"sessions import " + empty:                    {exitFailed, "", "no such file"},
		"sessions --help":                             {exitOK, "--output", ""},
	} {
		got := run(t, nil, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) ||
			!strings.Contains(got.stderr, want.stderr) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v: %v", left, err)
	}
}
