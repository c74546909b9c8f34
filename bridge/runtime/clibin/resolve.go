package clibin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// versionTimeout bounds asking an unknown program for its version. A first
// start unpacks 235 MB.
const versionTimeout = 60 * time.Second

// resolve turns a path into a Binary: links followed, npm's start script
// replaced by the program it would start.
func resolve(path string) (Binary, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return Binary{}, err
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return Binary{}, err
	case !info.Mode().IsRegular():
		return Binary{}, errors.New("not a regular file")
	case isSelf(info):
		return Binary{}, errors.New("this is copilot-grpc itself")
	}
	bin := Binary{Path: abs}
	if isNodeScript(abs) {
		dir := filepath.Dir(abs)
		if real, ok := platformBinary(dir); ok {
			return resolve(real)
		}
		bin.Script = true
	}
	if runtime.GOOS != "windows" && info.Mode()&0o111 == 0 {
		return Binary{}, errors.New("not executable")
	}
	bin.Version = packageVersion(filepath.Dir(abs))
	return bin, nil
}

// isSelf prevents the bridge from starting itself when it is installed under
// the name of the CLI.
func isSelf(info os.FileInfo) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	own, err := os.Stat(self)
	return err == nil && os.SameFile(info, own)
}

// isNodeScript tells whether a file is to be run by node.
func isNodeScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return bytes.HasPrefix(line, []byte("#!")) && bytes.Contains(line, []byte("node"))
}

// platformBinary looks for the platform package as node would: in node_modules
// of dir and of every directory above it. That covers flat, nested, global and
// linked installations.
func platformBinary(dir string) (string, bool) {
	for {
		for _, platform := range platforms() {
			path := filepath.Join(dir, "node_modules", "@github", "copilot-"+platform, executableName())
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, true
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// platforms returns npm's names of this platform, the likelier one first.
func platforms() []string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	switch runtime.GOOS {
	case "windows":
		return []string{"win32-" + arch}
	case "linux":
		if loaders, _ := filepath.Glob("/lib/ld-musl-*.so.1"); len(loaders) > 0 {
			return []string{"linuxmusl-" + arch, "linux-" + arch}
		}
		return []string{"linux-" + arch, "linuxmusl-" + arch}
	}
	return []string{runtime.GOOS + "-" + arch}
}

func executableName() string {
	if runtime.GOOS == "windows" {
		return "copilot.exe"
	}
	return "copilot"
}

// packageVersion returns the version in the package.json beside the program if
// that is the CLI's.
func packageVersion(dir string) string {
	raw, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return ""
	}
	var p struct{ Name, Version string }
	if json.Unmarshal(raw, &p) != nil || !strings.HasPrefix(p.Name, "@github/copilot") {
		return ""
	}
	return p.Version
}

// versionLine is how the CLI, and no other program of that name, answers.
var versionLine = regexp.MustCompile(`GitHub Copilot CLI v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]*[0-9A-Za-z])?)`)

// askVersion runs the program with --version, with nothing of our environment
// but what it takes to run.
func (l *Locator) askVersion(ctx context.Context, bin Binary) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	home, err := os.MkdirTemp("", "copilot-grpc-version-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	env := l.quietEnv(home)
	if cache, err := l.Dir(); err == nil {
		env = append(env, PkgCacheEnv+"="+cache) // else it unpacks into home, and again next time
	}
	out, exit, err := process.Run(ctx, process.Options{
		Path: bin.Path, Args: []string{"--version", "--no-auto-update"}, Env: env,
	})
	if err != nil {
		return "", err
	}
	if m := versionLine.FindStringSubmatch(out); m != nil {
		return m[1], nil
	}
	return "", fmt.Errorf("%q does not say that it is the GitHub Copilot CLI (%w)", bin.Path, exit)
}

// quietEnv is the environment of a run that must leave nothing behind.
func (l *Locator) quietEnv(home string) []string {
	return []string{"HOME=" + home, "COPILOT_HOME=" + home, "PATH=" + l.getenv("PATH"), "TERM=dumb"}
}
