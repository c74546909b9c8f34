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

// versionTimeout bounds the run of an unknown program with --version. A first start unpacks 235 MB.
const versionTimeout = 60 * time.Second

var (
	errSelf          = errors.New("this is copilot-grpc itself")
	errNotExecutable = errors.New("not executable")
)

// resolve converts a path to a Binary: it follows links and replaces npm's start script by the program that the
// script starts.
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
		return Binary{}, errSelf
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
		return Binary{}, errNotExecutable
	}
	bin.Version = packageVersion(filepath.Dir(abs))
	return bin, nil
}

// isSelf prevents the bridge from starting itself if it is installed under the CLI's name.
func isSelf(info os.FileInfo) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	own, err := os.Stat(self)
	return err == nil && os.SameFile(info, own)
}

// isNodeScript reports whether a file is a script for node.
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

// platformBinary searches for the platform package like node: in node_modules of dir and of all its parents. This
// covers flat, nested, global and linked installations.
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

// platforms returns npm's names of this platform, the most likely one first.
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

// packageVersion returns the version in the package.json beside the program if it is the CLI's.
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

// versionLine matches the output of the CLI and of no other program with its name.
var versionLine = regexp.MustCompile(`GitHub Copilot CLI v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]*[0-9A-Za-z])?)`)

// askVersion runs the program with --version in a minimal environment.
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
		env = append(env, PkgCacheEnv+"="+cache) // otherwise it unpacks into home, and again next time
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
	return "", fmt.Errorf("%q does not identify itself as the GitHub Copilot CLI (%w)", bin.Path, exit)
}

// quietEnv is the environment of a run that must not leave files.
func (l *Locator) quietEnv(home string) []string {
	return []string{"HOME=" + home, "COPILOT_HOME=" + home, "PATH=" + l.getenv("PATH"), "TERM=dumb"}
}
