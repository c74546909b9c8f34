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
		"sessions":                                    {exitUsage, "", "want a command: list, show"},
		"sessions --help":                             {exitOK, "export", ""},
		"sessions copy x":                             {exitUsage, "", `no command "copy"`},
		"sessions exprot x":                           {exitUsage, "", "did you mean export?"},
		"sessions export":                             {exitUsage, "", "want SESSION"},
		"sessions export x y":                         {exitUsage, "", `unexpected argument "y"`},
		"sessions export x --id y":                    {exitUsage, "", "unknown flag: --id"},
		"sessions import x --output y":                {exitUsage, "", "unknown flag: --output"},
		"sessions export" + to + " -- -x":             {exitFailed, "", "-x"},
		"sessions export x --output " + taken + to:    {exitFailed, "", "choose another one with --output"},
		"sessions export none --output " + empty + to: {exitFailed, "", "NotFound: Session not found: none\nFind its id with: copilot-grpc sessions list\n"},
		"sessions export --output -" + to + " none":   {exitFailed, "", "NotFound"},
		"sessions import " + taken + to:               {exitFailed, "", "InvalidArgument: invalid session archive"},
		"sessions import " + empty + to:               {exitFailed, "", "no such file"},
		"sessions export --help":                      {exitOK, "--output", ""},
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
