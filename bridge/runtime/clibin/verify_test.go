//go:build unix

package clibin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// TestPins holds the table of this repository to its form, and to have the pinned version for
// every platform that the CLI is published for.
func TestPins(t *testing.T) {
	t.Parallel()
	table, err := defaultPins()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range table {
		name := p.Platform + "@" + p.Version
		if seen[name] || SupportOf(p.Version) != Supported || !strings.HasPrefix(p.Integrity, "sha512-") ||
			len(p.Integrity) != 95 {
			t.Errorf("%s: %+v", name, p)
		}
		seen[name] = true
		for _, sum := range []string{p.Executable, p.Unpacked} {
			if sum != "" && len(sum) != 64 || p.Platform == "linux-x64" && sum == "" {
				t.Errorf("%s: digest %q", name, sum)
			}
		}
	}
	for _, os := range []string{"linux", "linuxmusl", "darwin", "win32"} {
		for _, arch := range []string{"x64", "arm64"} {
			if !seen[os+"-"+arch+"@"+PinnedVersion] {
				t.Errorf("version %s for %s-%s is missing", PinnedVersion, os, arch)
			}
		}
	}
	if !seen["linux-x64@"+OldestVersion] {
		t.Errorf("version %s is missing", OldestVersion)
	}
}

// forge overwrites a part of a file with content of the same length and resets its time, as an attacker would.
func forge(t *testing.T, path, from, to string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), from) || len(from) != len(to) {
		t.Fatalf("%q is not in %s, or not as long as %q", from, path, to)
	}
	for _, err := range []error{
		os.Chmod(path, 0o700), os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o700),
		os.Chmod(path, info.Mode()), os.Chtimes(path, info.ModTime(), info.ModTime()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// settle has the changes of a file so long ago that its digest is remembered: the test cannot set
// the time at which the kernel says that it changed, so it writes the memory as it would be later.
func (l *Locator) settle(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := sumFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := identify(info)
	if err := writeAtomic(l.memoryOf(path), hash(text)+" "+sum+"\n"); err != nil {
		t.Fatal(err)
	}
}

// TestChangedExecutable changes an executable, in the private copy, on PATH and at an explicit path, without
// changing its size and time. The locator rejects it, except at an explicit path, and never runs it to identify
// it.
func TestChangedExecutable(t *testing.T) {
	t.Parallel()
	for _, source := range []Source{SourceCache, SourcePath, SourceExplicit, SourceEnv} {
		for _, verify := range []Verify{"", VerifyAll, VerifyNone} {
			t.Run(fmt.Sprintf("%s %s", source, verify), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				path := w.path("bin", "copilot")
				if source == SourceCache {
					w.npm(t)
				} else {
					w.cli(t, "1.0.92", "bin", "copilot")
					write(t, w.path("bin", "package.json"), `{"name":"@github/copilot-x","version":"1.0.92"}`, 0o600)
				}
				l := w.locator()
				l.Verify = verify
				switch source {
				case SourceExplicit:
					l.Explicit = path
				case SourceEnv:
					w.env[PathEnv] = path
				}
				bin, err := l.Locate(t.Context())
				if err != nil || bin.Trust != TrustPinned || bin.Source != source || !l.Unchanged(t.Context(), bin) {
					t.Fatalf("before: %+v, %v", bin, err)
				}
				l.settle(t, bin.Path)
				forge(t, bin.Path, "exit 9", "exit 8")
				if l.Unchanged(t.Context(), bin) {
					t.Error("the change is not seen")
				}
				bin, err = l.Locate(t.Context())
				given := source == SourceExplicit || source == SourceEnv
				if verify == VerifyNone || given && verify == "" {
					if err != nil || bin.Trust != TrustChanged {
						t.Errorf("after: %+v, %v", bin, err)
					}
				} else if fault.ReasonOf(err) != fault.CLIUnverified || !strings.Contains(err.Error(), "was changed") {
					t.Errorf("after: %+v, %v", bin, err)
				}
			})
		}
	}
}

// TestUnknownExecutable has a CLI on PATH of which no digest is known: that of its version, or that of its platform.
func TestUnknownExecutable(t *testing.T) {
	t.Parallel()
	another := Pin{Version: "1.0.102", Platform: platforms()[0], Executable: hash("another")}
	unmeasured := Pin{Version: "1.0.104", Platform: platforms()[0]}
	for trust, pins := range map[Trust]Pins{TrustUnknown: {another}, TrustUnmeasured: {another, unmeasured}} {
		for _, verify := range []Verify{VerifyFound, VerifyNone, VerifyAll} {
			w := newWorld(t)
			w.cli(t, "1.0.104", "bin", "copilot")
			w.pins = pins
			l := w.locator()
			l.Verify = verify
			bin, err := l.Find(t.Context())
			if verify == VerifyAll {
				if fault.ReasonOf(err) != fault.CLIUnverified || !strings.Contains(err.Error(), "--install-cli") {
					t.Errorf("%s, %s: %+v, %v", trust, verify, bin, err)
				}
			} else if err != nil || bin.Trust != trust || bin.Version != "1.0.104" {
				t.Errorf("%s, %s: %+v, %v", trust, verify, bin, err)
			}
		}
	}
}

// TestDowngradedCopy puts another published version in the place of the private copy.
func TestDowngradedCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.npm(t)
	old := w.cli(t, OldestVersion, "old", "copilot")
	l := w.locator()
	bin, err := l.Locate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, bin.Path); err != nil {
		t.Fatal(err)
	}
	if bin, err := l.Locate(t.Context()); fault.ReasonOf(err) != fault.CLIUnverified {
		t.Errorf("Locate = %+v, %v", bin, err)
	}
}

// TestInstallOfAnotherPackage has npm install what was not published: nothing gets into place.
func TestInstallOfAnotherPackage(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*world){
		"another integrity":  func(w *world) { write(t, w.path("integrity"), "sha512-bad", 0o600) },
		"another executable": func(w *world) { forge(t, w.path("template"), "exit 9", "exit 8") },
		"not in the table":   func(w *world) { w.pins = Pins{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.npm(t)
			spoil(w)
			if bin, err := w.locator().Locate(t.Context()); fault.ReasonOf(err) != fault.CLIUnverified {
				t.Errorf("Locate = %+v, %v", bin, err)
			}
			left, _ := filepath.Glob(w.path("cache", "cli", "*"))
			if len(left) != 1 || left[0] != w.path("cache", "cli", "."+PinnedVersion+".lock") {
				t.Errorf("left in place: %v", left)
			}
		})
	}
}

// TestInstalledWithoutDigest has a platform of which only the package's integrity is known.
func TestInstalledWithoutDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.npm(t)
	for i := range w.pins {
		w.pins[i].Executable = ""
	}
	l := w.locator()
	for range 2 {
		bin, err := l.Locate(t.Context())
		if err != nil || bin.Trust != TrustInstalled {
			t.Fatalf("Locate = %+v, %v", bin, err)
		}
	}
	bin, _ := l.Locate(t.Context())
	forge(t, bin.Path, "exit 9", "exit 8")
	if bin, err := l.Locate(t.Context()); fault.ReasonOf(err) != fault.CLIUnverified {
		t.Errorf("changed: %+v, %v", bin, err)
	}
}

// unpacks is a program that unpacks one file, app.js, as the CLI does: not again where it is.
const unpacks = `#!/bin/sh
[ "$1" = --version ] && { echo "GitHub Copilot CLI 1.0.92."; exit 0; }
dir="$COPILOT_PKG_CACHE_HOME/pkg/any/1.0.92"
[ -e "$dir/.extraction-complete" ] && exit 0
mkdir -p "$dir/sub" && echo good > "$dir/sub/app.js" && echo x > "$dir/.extraction-complete"
`

// TestChangedUnpackedFiles changes what was unpacked, while several servers start: it is set aside
// and unpacked again, once.
func TestChangedUnpackedFiles(t *testing.T) {
	t.Parallel()
	good := hash(hash("good\n") + " - sub/app.js\n")
	for name, pinned := range map[string]string{"pinned": good, "as it was unpacked": ""} {
		for change, spoil := range map[string]func(t *testing.T, dir string){
			"content": func(t *testing.T, dir string) { forge(t, filepath.Join(dir, "sub", "app.js"), "good", "evil") },
			"mode": func(t *testing.T,
				dir string) {
				check(t, os.Chmod(filepath.Join(dir, "sub", "app.js"), 0o700))
			},
			"added":   func(t *testing.T, dir string) { write(t, filepath.Join(dir, "index.js"), "evil", 0o600) },
			"removed": func(t *testing.T, dir string) { check(t, os.Remove(filepath.Join(dir, "sub", "app.js"))) },
			"a link":  func(t *testing.T, dir string) { check(t, os.Symlink("/etc", filepath.Join(dir, "etc"))) },
		} {
			t.Run(name+" "+change, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				path := write(t, w.path("x", "copilot"), unpacks, 0o755)
				w.pins = Pins{{Version: "1.0.92", Platform: platforms()[0], Executable: hash(unpacks),
					Unpacked: pinned}}
				l := w.locator()
				l.Explicit = path
				bin, err := l.Find(t.Context())
				check(t, err)
				_, err = l.Unpack(t.Context(), bin)
				check(t, err)
				unpacked := w.path("cache", "pkg", "any", "1.0.92")
				if info, err := os.Stat(filepath.Join(unpacked, "sub", "app.js")); err != nil ||
					info.Mode()&0o222 != 0 {
					t.Errorf("%v, %v: the file may be written", info, err)
				}
				spoil(t, unpacked)
				var starts sync.WaitGroup
				for range 4 {
					starts.Go(func() {
						if _, err := l.Unpack(t.Context(), bin); err != nil {
							t.Error(err)
						}
					})
				}
				starts.Wait()
				if sum, err := l.treeDigest(t.Context(), unpacked); err != nil || sum != good {
					t.Errorf("digest %s, %v; want %s", sum, err, good)
				}
				if aside, _ := filepath.Glob(w.path("cache", "pkg", asidePrefix+"*")); len(aside) != 1 {
					t.Errorf("set aside: %v", aside)
				}
			})
		}
	}
}

// TestFilesInUse has CLIs run from what was unpacked: the files by which they say so are no change.
func TestFilesInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := write(t, w.path("x", "copilot"), unpacks, 0o755)
	good := hash(hash("good\n") + " - sub/app.js\n")
	w.pins = Pins{{Version: "1.0.92", Platform: platforms()[0], Executable: hash(unpacks), Unpacked: good}}
	l := w.locator()
	l.Explicit = path
	bin, err := l.Find(t.Context())
	check(t, err)
	for _, name := range []string{"inuse.7.lock", "inuse.7.hold"} {
		_, err = l.Unpack(t.Context(), bin)
		check(t, err)
		write(t, w.path("cache", "pkg", "any", "1.0.92", name), "7", 0o600)
	}
	_, err = l.Unpack(t.Context(), bin)
	check(t, err)
	if aside, _ := filepath.Glob(w.path("cache", "pkg", asidePrefix+"*")); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}

// TestWrapperSharesTheFiles has a script in no table start the program whose files are there: they
// stay where they are, since the program may be running.
func TestWrapperSharesTheFiles(t *testing.T) {
	t.Parallel()
	good := hash(hash("good\n") + " - sub/app.js\n")
	w := newWorld(t)
	path := write(t, w.path("x", "copilot"), unpacks, 0o755)
	wrapper := write(t, w.path("y", "copilot"), "#!/bin/sh\nexec "+path+" \"$@\"\n", 0o755)
	w.pins = Pins{{Version: "1.0.92", Platform: platforms()[0], Executable: hash(unpacks), Unpacked: good}}
	for _, explicit := range []string{path, wrapper, path} {
		l := w.locator()
		l.Explicit = explicit
		bin, err := l.Find(t.Context())
		check(t, err)
		_, err = l.Unpack(t.Context(), bin)
		check(t, err)
	}
	if aside, _ := filepath.Glob(w.path("cache", "pkg", asidePrefix+"*")); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}

// TestUnpacksSomethingElse has an executable of the table unpack what it never did.
func TestUnpacksSomethingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := write(t, w.path("x", "copilot"), unpacks, 0o755)
	w.pins = Pins{{Version: "1.0.92", Platform: platforms()[0], Executable: hash(unpacks), Unpacked: hash("else")}}
	l := w.locator()
	l.Explicit = path
	bin, err := l.Find(t.Context())
	check(t, err)
	for range 2 {
		if _, err := l.Unpack(t.Context(), bin); fault.ReasonOf(err) != fault.CLIUnverified {
			t.Errorf("Unpack = %v", err)
		}
	}
}

// TestDigestIsRemembered reads a file again only after something of it has changed.
func TestDigestIsRemembered(t *testing.T) {
	t.Parallel()
	l := newWorld(t).locator()
	reads, at, content := 0, "1", "a"
	digest := func(age time.Duration) string {
		sum, err := l.remembered("/some/file",
			func() (fingerprint, error) { return fingerprint{at, time.Now().Add(-age)}, nil },
			func() (string, error) { reads++; return content, nil })
		check(t, err)
		return sum
	}
	for i, step := range []struct {
		at, content string
		age         time.Duration
		want        string
		reads       int
	}{
		{"1", "a", 0, "a", 1},
		{"1", "b", 0, "b", 2},           // a change within the clock's resolution is seen
		{"1", "b", time.Minute, "b", 3}, // and from here on remembered
		{"1", "c", time.Minute, "b", 3},
		{"2", "c", time.Minute, "c", 4},
		{"2", "d", time.Minute, "c", 4},
	} {
		at, content = step.at, step.content
		if got := digest(step.age); got != step.want || reads != step.reads {
			t.Errorf("step %d: %q after %d reads, want %q after %d", i, got, reads, step.want, step.reads)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrintTree prints the digest for a line of pins.txt: what COPILOT_UNPACKED_DIR has.
func TestPrintTree(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("COPILOT_UNPACKED_DIR")
	if dir == "" {
		t.Skip("COPILOT_UNPACKED_DIR is not set")
	}
	sum, err := (&Locator{CacheDir: t.TempDir()}).treeDigest(t.Context(), dir)
	check(t, err)
	t.Log(sum)
}

// TestRealPins has the real CLI unpack itself and compares with the table.
func TestRealPins(t *testing.T) {
	t.Parallel()
	path := os.Getenv(PathEnv)
	if path == "" {
		t.Skipf("%s is not set", PathEnv)
	}
	if _, err := exec.LookPath(path); err != nil {
		t.Fatal(err)
	}
	l := &Locator{Explicit: path, CacheDir: t.TempDir()}
	bin, err := l.Find(t.Context())
	check(t, err)
	if bin.Trust == TrustUnmeasured {
		t.Skip("no executables were measured on this platform")
	}
	if bin.Trust != TrustPinned {
		t.Errorf("%+v is not in the table", bin)
	}
	_, err = l.Unpack(t.Context(), bin)
	check(t, err)
}
