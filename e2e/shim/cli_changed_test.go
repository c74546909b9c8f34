package shim

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// TestChangedPrivateCopy has another program in the place of the private copy of the CLI. Nothing
// runs it, not even to ask for its version, and the server, doctor and the shim say why.
func TestChangedPrivateCopy(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the executables of this platform are not in the table")
	}
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	home := harness.RealDir(t)
	dir := filepath.Join(home, ".cache", "copilot-grpc", "cli", clibin.PinnedVersion, "node_modules", "@github",
		"copilot-linux-x64")
	marker := filepath.Join(home, "executed")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, dir, map[string]string{
		"package.json": `{"name":"@github/copilot-linux-x64","version":"` + clibin.PinnedVersion + `"}`,
		"copilot":      "#!/bin/sh\ntouch " + marker + "\n",
	})
	if err := os.Chmod(filepath.Join(dir, "copilot"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"doctor", "--start", "--listen", "unix:" + filepath.Join(home, "s")},
		{"shim", "--headless", "--stdio"},
		{"shim", "--version"},
		{"demo"},
	} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home}
		said, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(said), "was changed after its installation") {
			t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program was executed")
	}
}

// TestChangedUnpackedFiles changes a file that the real CLI has unpacked and that it executes at
// its start: the next start sets it aside and unpacks it again.
func TestChangedUnpackedFiles(t *testing.T) {
	t.Parallel()
	_, shim := standIns(t)
	home := harness.RealDir(t)
	start := func() {
		t.Helper()
		if answers, err := exchange(t, home, nil, shim, []string{"ping"}); err != nil ||
			!strings.Contains(answers[1], "pong") {
			t.Fatalf("%v, %v", answers, err)
		}
	}
	start()
	cache := filepath.Join(home, ".cache", "copilot-grpc", "pkg")
	found, err := filepath.Glob(filepath.Join(cache, "*", "*", "index.js"))
	if err != nil || len(found) != 1 {
		t.Fatalf("unpacked: %q, %v", found, err)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	// Of the same length, with the same times: it would end the CLI.
	changed := bytes.Repeat([]byte(" "), len(text))
	copy(changed, "process.exit(42);")
	for _, err := range []error{
		os.Chmod(found[0], 0o600), os.WriteFile(found[0], changed, 0o600), os.Chmod(found[0], info.Mode()),
		os.Chtimes(found[0], info.ModTime(), info.ModTime()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	start()
	if now, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the changed file is still there (%v)", err)
	}
	if aside, err := filepath.Glob(filepath.Join(cache, ".changed-*", "index.js")); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
}
