package terminal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slowNPM is an npm that has downloaded 95 MB when it waits, and fails when it is let go.
const slowNPM = `#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --prefix ] && prefix=$2; shift; done
truncate -s 95M "$prefix/part"
until [ -e "$HOME/go" ]; do sleep 0.05; done
echo "npm ERR! no network" >&2
exit 1
`

// On a terminal, serve shows how far the installation of the CLI is, and leaves a clean line when it ends; into a file it
// writes its log alone. The caller that waits is told, too.
func TestServeShowsTheInstallation(t *testing.T) {
	t.Parallel()
	p := sits(newServer(t), 80, 24)
	if err := os.WriteFile(filepath.Join(p.dir, "npm"), []byte(slowNPM), 0o700); err != nil {
		t.Fatal(err)
	}
	caller := sits(p.Daemon, 80, 24)
	const serve = "XDG_CACHE_HOME=$PWD/cache HOME=$PWD copilot-grpc serve --install-cli --listen unix:other --data-dir data"
	p.types(serve)
	p.waits("Ctrl-C stops the server")
	caller.types("T=unix:" + filepath.Join(p.dir, "other"))
	caller.types("copilot-grpc run Hello --target $T")
	p.waits("Copilot CLI [########--------] 95 of about 190 MB on disk, ", " MB/s, ")
	caller.waits("installing the Copilot CLI (about 190 MB, once)")
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	caller.waits("npm ERR! no network")
	p.presses("C-c")
	if screen := p.waits("msg=stopped", "@"); strings.Contains(screen, "on disk") {
		t.Errorf("the line is still there:\n%s", screen)
	}
	p.types("clear; " + serve + " 2> log")
	caller.types("clear; until copilot-grpc server --target $T > found 2>&1; do sleep 0.1; done; " +
		"copilot-grpc run Hello --target $T; echo told $?")
	caller.matches(`npm ERR! no network(?s:.*)\ntold 4`)
	p.presses("C-c")
	p.types("clear; grep -c 'MB on disk' log; grep -c 'about 190 MB, once' log")
	p.matches(`(?m)^0\n[1-9]`)
}
