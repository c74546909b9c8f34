//go:build unix

package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

const (
	tooOld, tested, pinned, newer = "1.0.80", "1.0.92", clibin.PinnedVersion, "1.0.106"
	// oneCLI limits the wait for the CLI of a row.
	oneCLI = 20 * time.Second
)

// cliWorld is a machine: a PATH, a cache directory, and the table of what was published.
type cliWorld struct {
	t    *testing.T
	dir  string
	env  map[string]string
	pins clibin.Pins
}

func newCLIWorld(t *testing.T) *cliWorld {
	t.Helper()
	dir, err := filepath.EvalSymlinks(shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &cliWorld{t: t, dir: dir, pins: clibin.Pins{}}
	w.env = map[string]string{"PATH": w.path("bin") + ":" + w.path("sys")}
	for _, tool := range []string{"mkdir", "cp", "chmod", "cat"} {
		w.must(os.MkdirAll(w.path("sys"), 0o755))
		w.must(os.Symlink("/bin/"+tool, w.path("sys", tool)))
	}
	return w
}

func (w *cliWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *cliWorld) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// bin returns the path of copilot on PATH, cli that of a CLI elsewhere, copy that of the private copy.
func (w *cliWorld) bin() string { return w.path("bin", "copilot") }
func (w *cliWorld) cli() string { return w.path("elsewhere", "copilot") }
func (w *cliWorld) copy() string {
	return w.path("cache", "cli", pinned, "node_modules", "@github", "copilot-"+platform(), "copilot")
}

func platform() string {
	return goruntime.GOOS + "-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[goruntime.GOARCH]
}

// text returns a program that is the fake CLI of a version.
func (w *cliWorld) text(version, script string) string {
	exe, err := os.Executable()
	w.must(err)
	return fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --version ] && { echo 'GitHub Copilot CLI %s.'; exit 0; }\n"+
		"FAKECOPILOT_SCRIPT='%s' GORACE=atexit_sleep_ms=0 %s=1 exec %q \"$@\"\n", version, script, fakeCLIEnv, exe)
}

// program writes the fake CLI of a version, which was published if it is one of the tested.
func (w *cliWorld) program(path, version string) {
	text := w.text(version, fmt.Sprintf(`{"version":%q}`, version))
	w.file(path, text, 0o755)
	if clibin.SupportOf(version) == clibin.Supported {
		w.publish(version, text)
	}
}

func (w *cliWorld) publish(version, text string) {
	sum := sha256.Sum256([]byte(text))
	w.pins = append(w.pins, clibin.Pin{Version: version, Platform: platform(), Integrity: "sha512-good",
		Executable: hex.EncodeToString(sum[:])})
}

func (w *cliWorld) file(path, text string, mode os.FileMode) {
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path)
	w.must(os.WriteFile(path, []byte(text), mode))
}

// npm puts an npm on PATH that installs the pinned version.
func (w *cliWorld) npm() {
	text := w.text(pinned, `{}`)
	w.publish(pinned, text)
	w.file(w.path("template"), text, 0o755)
	w.file(w.path("bin", "npm"), fmt.Sprintf(`#!/bin/sh
[ "$2" = -g ] && { cp %[1]q/template %[1]q/bin/copilot; exit; }
while [ $# -gt 0 ]; do [ "$1" = --prefix ] && prefix=$2; shift; done
dir="$prefix/node_modules/@github/copilot-%[2]s"
mkdir -p "$dir" && cp %[1]q/template "$dir/copilot" && chmod 755 "$dir/copilot"
echo '{"packages":{"node_modules/@github/copilot-%[2]s":{"integrity":"sha512-good"}}}' > "$prefix/node_modules/.package-lock.json"
`, w.dir, platform()), 0o755)
}

// config returns the configuration that flags say, and its Spawner in this world.
func (w *cliWorld) config(flags string) (Config, *runtime.Spawner, error) {
	c := DefaultConfig()
	c.DataDir, c.Listen = "", []string{"unix:" + w.path("s")}
	c.Home, c.UserHome, c.NoLogin = w.path("home"), w.path("user"), true
	loader := setting.NewLoader(c.Table(), EnvPrefix)
	values := map[string]string{}
	for flag := range strings.FieldsSeq(flags) {
		name, value, _ := strings.Cut(flag, "=")
		if value == "" {
			value = "true"
		}
		values[EnvPrefix+strings.ToUpper(strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_"))] =
			strings.NewReplacer("CLI", w.cli(), "PATH", w.bin()).Replace(value)
	}
	if err := loader.Load(func(name string) string { return values[name] }, "", nil); err != nil {
		return c, nil, err
	}
	if err := c.Validate(); err != nil {
		return c, nil, err
	}
	s := c.NewRunner(slog.New(slog.DiscardHandler), nil).(*runtime.Spawner)
	s.Locator.CacheDir, s.Locator.Pins = w.path("cache"), w.pins
	s.Locator.Getenv = func(name string) string { return w.env[name] }
	return c, s, nil
}

// cliSaid is what a server of a configuration says of its CLI.
type cliSaid struct {
	used, version string
	reason        fault.Reason
	log           string   // warnings and errors at the start, one a line
	info          []string // GetServerInfo
	doctor        []runtime.Finding
}

// serve starts a server and asks everything that it says of the CLI.
func (w *cliWorld) serve(flags string) cliSaid {
	w.t.Helper()
	c, s, err := w.config(flags)
	w.must(err)
	out := cliSaid{doctor: Diagnose(w.t.Context(), c, false, WithRunner(s))}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	a, err := New(w.t.Context(), c, WithRunner(s), WithLogger(logger), WithProbe())
	w.must(err)
	ctx, stop := context.WithTimeout(w.t.Context(), oneCLI)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if _, err = a.bridge.Runtimes.Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		out.reason = fault.ReasonOf(err)
	}
	for a.observing.probe.err() == errNotProbed && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // the probe has no signal
	}
	info, err := a.bridge.Runtimes.GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	w.must(err)
	out.version, out.info = info.GetCliVersion(), info.GetCliWarnings()
	stop()
	if err := <-ended; err != nil {
		w.t.Error(err)
	}
	for line := range strings.Lines(log.String()) {
		if m := regexp.MustCompile(`msg="copilot CLI found" path=(\S+)`).FindStringSubmatch(line); m != nil {
			out.used = m[1]
		}
		// What a killed server has left running is of another test, or of another program on this machine.
		left := strings.Contains(line, "that a killed")
		if !left && (strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")) {
			out.log += line
		}
	}
	return out
}

// cliRow is a combination of what PATH has and of settings, and what follows from it.
type cliRow struct {
	path  string // what PATH has
	flags string // with CLI and PATH for paths
	// reason is why calls fail; 0 if they succeed, with the executable used of that version.
	reason        fault.Reason
	used, version string
	// warns is in the log at the start, in doctor, and, if info, in GetServerInfo.
	warns string
	info  bool
	// mended is the flags, or the command, that the error's remedy names. Afterwards calls succeed.
	mended string
}

const (
	newerSaid  = "newer than " + pinned
	installing = "npm install -g @github/copilot@" + pinned
)

// cliRows is the table of docs/configuration.md: which CLI is used, and what the server says of it.
var cliRows = []cliRow{
	{path: "none", used: "copy", version: pinned},
	{path: "none", flags: "--install-cli", used: "copy", version: pinned},
	{path: "none", flags: "--tested-cli-only", used: "copy", version: pinned},
	{path: "none", flags: "--verify-cli=all", used: "copy", version: pinned},
	{path: "none", flags: "--no-install", reason: fault.CLINotFound, warns: "--no-install", mended: "--verify-cli=found"},
	{path: "none", flags: "--no-install", reason: fault.CLINotFound, warns: installing, mended: installing},
	{path: "none", flags: "--no-install --install-cli", reason: fault.CLINotFound, warns: "without --no-install",
		mended: "--install-cli"},

	{path: "tested", used: "bin", version: tested},
	{path: "tested", flags: "--install-cli", used: "copy", version: pinned},
	{path: "tested", flags: "--tested-cli-only", used: "bin", version: tested},
	{path: "tested", flags: "--verify-cli=all", used: "bin", version: tested},
	{path: "tested", flags: "--verify-cli=none", used: "bin", version: tested},

	{path: "changed", reason: fault.CLIUnverified, warns: "--install-cli", mended: "--install-cli"},
	{path: "changed", reason: fault.CLIUnverified, warns: installing, mended: installing},
	{path: "changed", reason: fault.CLIUnverified, warns: "--cli", mended: "--cli=PATH"},
	{path: "changed", flags: "--install-cli", used: "copy", version: pinned},
	{path: "changed", flags: "--verify-cli=all", reason: fault.CLIUnverified, warns: "--install-cli",
		mended: "--verify-cli=all --install-cli"},
	{path: "changed", flags: "--verify-cli=none", used: "bin", version: tested, warns: "differs", info: true},

	{path: "newer", used: "bin", version: newer, warns: newerSaid, info: true},
	{path: "newer", flags: "--install-cli", used: "copy", version: pinned},
	{path: "newer", flags: "--install-cli --tested-cli-only --verify-cli=all", used: "copy", version: pinned},
	{path: "newer", flags: "--tested-cli-only", reason: fault.CLIUnsupported, warns: newerSaid,
		mended: "--tested-cli-only --install-cli"},
	{path: "newer", flags: "--tested-cli-only", reason: fault.CLIUnsupported, warns: installing, mended: installing},
	{path: "newer", flags: "--verify-cli=all", reason: fault.CLIUnverified, warns: "not in the table",
		mended: "--verify-cli=all --install-cli"},
	{path: "newer", flags: "--verify-cli=none", used: "bin", version: newer, warns: newerSaid, info: true},
	{path: "newer", flags: "--no-install", used: "bin", version: newer, warns: newerSaid, info: true},
	{path: "newer protocol", reason: fault.CLIUnsupported, warns: "protocol 4", mended: "--install-cli"},
	{path: "newer that crashes", reason: fault.CLIStartFailed, warns: newerSaid, mended: "--install-cli"},

	{path: "older", reason: fault.CLIUnsupported, warns: "--install-cli", mended: "--install-cli"},
	{path: "older", reason: fault.CLIUnsupported, warns: installing, mended: installing},
	{path: "older", flags: "--install-cli", used: "copy", version: pinned},
	{path: "older", flags: "--tested-cli-only", reason: fault.CLIUnsupported, warns: installing,
		mended: "--tested-cli-only --install-cli"},
	{path: "older", flags: "--verify-cli=none", reason: fault.CLIUnsupported, warns: installing, mended: "--install-cli"},
	{path: "older", flags: "--verify-cli=all", reason: fault.CLIUnverified, warns: installing, mended: "--install-cli"},

	{path: "broken", used: "copy", version: pinned, warns: "does not identify itself"},
	{path: "broken", flags: "--install-cli", used: "copy", version: pinned},
	{path: "broken", flags: "--no-install", reason: fault.CLINotFound, warns: installing, mended: installing},
	{path: "not executable", used: "copy", version: pinned, warns: "not executable"},
	{path: "not executable", flags: "--tested-cli-only", used: "copy", version: pinned, warns: "not executable"},
	{path: "not executable", flags: "--no-install", reason: fault.CLINotFound, warns: installing, mended: installing},

	{path: "newer", flags: "--cli=CLI", used: "cli", version: tested},
	{path: "older", flags: "--cli=CLI --verify-cli=all", used: "cli", version: tested},
	{path: "tested", flags: "--cli=CLI/newer", used: "cli/newer", version: newer, warns: newerSaid, info: true},
	{path: "tested", flags: "--cli=CLI/newer --tested-cli-only", reason: fault.CLIUnsupported, warns: newerSaid,
		mended: "--tested-cli-only --install-cli"},
	{path: "tested", flags: "--cli=CLI/newer --verify-cli=all", reason: fault.CLIUnverified, warns: "leave out --cli",
		mended: "--verify-cli=all --install-cli"},
	{path: "tested", flags: "--cli=CLI/older", reason: fault.CLIUnsupported, warns: "leave out --cli",
		mended: "--install-cli"},
	{path: "tested", flags: "--cli=CLI/missing", reason: fault.CLINotFound, warns: "leave it out"},
	{path: "tested", flags: "--cli=CLI/locked", reason: fault.CLINotFound, warns: "chmod +x", mended: "chmod"},
	{path: "tested", flags: "--cli=CLI/broken", reason: fault.CLIStartFailed, warns: "does not report the version",
		mended: "--install-cli"},
}

// onPath puts on PATH what a row has there, and CLIs elsewhere.
func (w *cliWorld) onPath(what string) {
	w.npm()
	w.program(w.path("elsewhere", "copilot"), tested)
	switch what {
	case "tested", "newer", "older":
		w.program(w.bin(), map[string]string{"tested": tested, "newer": newer, "older": tooOld}[what])
	case "changed":
		w.file(w.bin(), w.text(tested, `{"version":"`+tested+`"}`)+"# changed\n", 0o755)
	case "newer protocol":
		w.file(w.bin(), w.text(newer, `{"version":"`+newer+`","protocol":4}`), 0o755)
	case "newer that crashes":
		w.file(w.bin(), w.text(newer, `{"start":{"crash":true,"exitCode":3}}`), 0o755)
	case "broken":
		w.file(w.bin(), "#!/bin/sh\nexit 1\n", 0o755)
	case "not executable":
		w.file(w.bin(), "#!/bin/sh\n", 0o644)
	}
}

// given replaces the variants of CLI in flags by the paths of programs that it writes.
func (w *cliWorld) given(flags string) string {
	name := regexp.MustCompile(`CLI/(\w+)`).FindStringSubmatch(flags)
	if name == nil {
		return flags
	}
	path := w.path("elsewhere", name[1], "copilot")
	switch name[1] {
	case "newer":
		w.program(path, newer)
	case "older":
		w.program(path, tooOld)
	case "locked":
		w.program(path, tested)
		w.must(os.Chmod(path, 0o644))
	case "broken":
		w.file(path, "#!/bin/sh\nexit 1\n", 0o755)
	}
	return strings.ReplaceAll(flags, name[0], path)
}

// TestWhichCLIIsUsed: each combination of what PATH has and of settings leads to one CLI or to one error. The log at
// the start, doctor and GetServerInfo say the same, and the remedy that an error names mends it.
func TestWhichCLIIsUsed(t *testing.T) {
	t.Parallel()
	for _, row := range cliRows {
		t.Run(strings.TrimSpace(row.path+" "+row.flags+" "+row.mended), func(t *testing.T) {
			t.Parallel()
			w := newCLIWorld(t)
			w.onPath(row.path)
			flags := w.given(row.flags)
			got := w.serve(flags)
			if got.reason != row.reason || got.version != row.version {
				t.Fatalf("%s, version %q; want %s, %q: %+v", fault.Name(got.reason), got.version, fault.Name(row.reason),
					row.version, got)
			}
			w.checkUsed(row, got)
			checkSaid(t, row, got)
			if row.reason != 0 && row.mended != "" {
				w.mend(flags, row.mended)
			}
		})
	}
}

func (w *cliWorld) checkUsed(row cliRow, got cliSaid) {
	w.t.Helper()
	name, variant, _ := strings.Cut(row.used, "/")
	want := map[string]string{"bin": w.bin(), "copy": w.copy(), "cli": w.path("elsewhere", variant, "copilot"),
		"": got.used}[name]
	if got.used != want {
		w.t.Errorf("used is %q, want %q", got.used, want)
	}
}

// checkSaid compares the log, doctor and GetServerInfo with a row.
func checkSaid(t *testing.T, row cliRow, got cliSaid) {
	t.Helper()
	if row.warns == "" && got.log != "" || !strings.Contains(got.log, row.warns) {
		t.Errorf("the start says %q, want %q", got.log, row.warns)
	}
	if row.info != (len(got.info) > 0) || row.info && !strings.Contains(got.info[0], row.warns) {
		t.Errorf("GetServerInfo says %q", got.info)
	}
	// doctor starts nothing without --start: it cannot see what only the handshake tells.
	handshake := row.reason == fault.CLIStartFailed || strings.Contains(row.path, "protocol")
	if Grave(got.doctor) != (row.reason != 0 && !handshake) {
		t.Errorf("doctor says %+v", got.doctor)
	}
	text := ""
	for _, f := range got.doctor {
		if f.Level != runtime.LevelOK && (f.Remedy == "" || strings.Contains(f.Remedy, "follow the text")) {
			t.Errorf("doctor has no remedy for %+v", f)
		}
		text += f.Text + "; " + f.Remedy + "\n"
	}
	if !handshake && !strings.Contains(text, row.warns) {
		t.Errorf("doctor says %q, want %q", text, row.warns)
	}
}

// mend does what a remedy says, and has calls succeed.
func (w *cliWorld) mend(flags, remedy string) {
	w.t.Helper()
	switch remedy {
	case installing:
		w.file(w.bin(), w.text(pinned, `{}`), 0o755)
	case "chmod":
		w.must(os.Chmod(w.path("elsewhere", "locked", "copilot"), 0o755))
	default:
		flags = remedy
	}
	if got := w.serve(flags); got.reason != 0 {
		w.t.Errorf("after %q: %+v", remedy, got)
	}
}

// Settings that contradict each other are refused with words.
func TestCLISettingsRefused(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--cli=CLI --install-cli":      "exclude each other",
		"--dial=a:1 --install-cli":     "exclude each other",
		"--verify-cli=some":            "found, all, none",
		"--install-cli=perhaps":        "true or false",
		"--tested-cli-only=newer-than": "true or false",
	} {
		if _, _, err := newCLIWorld(t).config(flags); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}
