//go:build unix

package clibin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// fakeCLI is a program that answers --version as the CLI does, and otherwise
// unpacks like it, counting how often.
const fakeCLI = `#!/bin/sh
if [ "$1" = --version ]; then echo "GitHub Copilot CLI %[1]s."; exit 0; fi
[ "$COPILOT_SEA_EXTRACT_ONLY" = 1 ] || exit 9
mkdir -p "$COPILOT_PKG_CACHE_HOME/pkg/any/%[1]s"
echo x >> "$COPILOT_PKG_CACHE_HOME/count"
env > "$COPILOT_PKG_CACHE_HOME/env"
`

// fakeNPM installs fakeCLI as npm would, counting how often.
const fakeNPM = `#!/bin/sh
echo "$@" >> "%[1]s/npm-calls"
[ -e "%[1]s/npm-fails" ] && { echo "npm ERR! no network" >&2; exit 1; }
while [ $# -gt 0 ]; do [ "$1" = --prefix ] && prefix=$2; shift; done
dir="$prefix/node_modules/@github/copilot-%[2]s"
mkdir -p "$dir" && cp "%[1]s/template" "$dir/copilot" && chmod 755 "$dir/copilot"
echo '{"name":"@github/copilot-%[2]s","version":"%[3]s"}' > "$dir/package.json"
integrity=$(cat "%[1]s/integrity")
echo '{"packages":{"node_modules/@github/copilot-%[2]s":{"integrity":"'$integrity'"}}}' > "$prefix/node_modules/.package-lock.json"
`

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// world is a directory with a PATH, and a locator that uses nothing else.
type world struct {
	dir  string
	env  map[string]string
	pins Pins // what was published
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: dir}
	// The system's directories are there for sh, but come last.
	w.env = map[string]string{"PATH": filepath.Join(dir, "bin") + ":" + filepath.Join(dir, "sys")}
	if err := os.MkdirAll(filepath.Join(dir, "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"mkdir", "cp", "chmod", "env", "cat"} {
		if err := os.Symlink(filepath.Join("/bin", tool), filepath.Join(dir, "sys", tool)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *world) locator() *Locator {
	return &Locator{CacheDir: w.path("cache"), Getenv: func(name string) string { return w.env[name] }, Pins: w.pins}
}

func (w *world) cli(t *testing.T, version string, elem ...string) string {
	t.Helper()
	text := fmt.Sprintf(fakeCLI, version)
	w.pins = append(w.pins, Pin{Version: version, Platform: platforms()[0], Executable: hash(text)})
	return write(t, w.path(elem...), text, 0o755)
}

func (w *world) npm(t *testing.T) {
	t.Helper()
	text := fmt.Sprintf(fakeCLI, PinnedVersion)
	w.pins = append(w.pins,
		Pin{Version: PinnedVersion, Platform: platforms()[0], Integrity: "sha512-good", Executable: hash(text)})
	write(t, w.path("integrity"), "sha512-good", 0o600)
	write(t, w.path("template"), text, 0o755)
	write(t, w.path("bin", "npm"), fmt.Sprintf(fakeNPM, w.dir, platforms()[0], PinnedVersion), 0o755)
}
