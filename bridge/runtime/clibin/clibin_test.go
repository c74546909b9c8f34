//go:build unix

package clibin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version string
		want    Support
	}{
		{"", Unsupported}, {"0.0.1", Unsupported}, {"1.0.80", Unsupported}, {"1.0", Unsupported},
		{"1.0.x", Unsupported}, {"1.0.-5", Unsupported}, {"1.0.81-1", Unsupported},
		{"1.0.81", Supported}, {"1.0.92", Supported}, {"v1.0.102", Supported}, {"1.0.102-2", Supported},
		{"1.0.103-0", Newer}, {"1.0.103", Newer}, {"1.1.0", Newer}, {"2.0.0", Newer},
	} {
		if got := SupportOf(tc.version); got != tc.want {
			t.Errorf("SupportOf(%q) = %v, want %v", tc.version, got, tc.want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	explicit := w.cli(t, "1.0.90", "x", "copilot")
	env := w.cli(t, "1.0.91", "e", "copilot")
	onPath := w.cli(t, "1.0.92", "bin", "copilot")
	w.env[PathEnv] = env
	l := w.locator()
	l.Explicit = explicit

	check := func(path, version string, source Source) {
		t.Helper()
		bin, err := l.Locate(t.Context())
		if err != nil || bin.Path != path || bin.Version != version || bin.Source != source {
			t.Errorf("Locate = %+v, %v; want %s from %s", bin, err, path, source)
		}
	}
	check(explicit, "1.0.90", SourceExplicit)
	l.Explicit = ""
	check(env, "1.0.91", SourceEnv)
	delete(w.env, PathEnv)
	check(onPath, "1.0.92", SourcePath)
	if err := os.Remove(onPath); err != nil {
		t.Fatal(err)
	}
	w.npm(t)
	l.Pins = w.pins
	private := w.path("cache", "cli", PinnedVersion, "node_modules", "@github", "copilot-"+platforms()[0], "copilot")
	check(private, PinnedVersion, SourceCache)
}

// A named executable is used or rejected, and never replaced by another.
func TestNamedExecutablesDoNotFallThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cli(t, "1.0.92", "bin", "copilot")
	w.npm(t)
	plain := write(t, w.path("plain"), "text", 0o644)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"missing": w.path("nope"), "directory": w.dir, "not executable": plain, "this program": self,
	} {
		for _, source := range []Source{SourceExplicit, SourceEnv} {
			l := &Locator{CacheDir: w.path("cache"), Getenv: func(n string) string {
				if n == PathEnv && source == SourceEnv {
					return path
				}
				return w.env[n]
			}}
			if source == SourceExplicit {
				l.Explicit = path
			}
			bin, err := l.Locate(t.Context())
			if fault.ReasonOf(err) != fault.CLINotFound || !strings.Contains(err.Error(), path) {
				t.Errorf("%s by %s: %+v, %v", name, source, bin, err)
			}
		}
	}
}

func TestPathSkipsOtherProgramsAndItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.path("a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, w.path("a", "copilot")); err != nil {
		t.Fatal(err)
	}
	write(t, w.path("b", "copilot"), "#!/bin/sh\necho copilot version v1.34.0\n", 0o755)
	w.env["PATH"] = strings.Join([]string{"relative", w.path("a"), w.path("b"), w.env["PATH"]}, ":")
	if bin, err := w.locator().Find(t.Context()); fault.ReasonOf(err) != fault.CLINotFound {
		t.Errorf("Find = %+v, %v", bin, err)
	}
	right := w.cli(t, "1.0.95", "bin", "copilot")
	if bin, err := w.locator().Find(t.Context()); err != nil || bin.Path != right {
		t.Errorf("Find = %+v, %v; want %s", bin, err, right)
	}
}

func TestStartScriptIsReplacedByTheProgram(t *testing.T) {
	t.Parallel()
	const script = "#!/usr/bin/env node\nimport 'x'\n"
	platform := "copilot-" + platforms()[0]
	for name, modules := range map[string][]string{
		"flat":   {"node_modules"},
		"nested": {"node_modules", "@github", "copilot", "node_modules"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			loader := write(t, w.path("node_modules", "@github", "copilot", "npm-loader.js"), script, 0o755)
			if err := os.MkdirAll(w.path("bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(loader, w.path("bin", "copilot")); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(append(append([]string{w.dir}, modules...), "@github", platform)...)
			want := write(t, filepath.Join(dir, "copilot"), "not run", 0o755)
			write(t, filepath.Join(dir, "package.json"), `{"name":"@github/`+platform+`","version":"1.0.99"}`, 0o644)
			w.pins = Pins{{Version: "1.0.99", Platform: platforms()[0], Executable: hash("not run")}}
			bin, err := w.locator().Find(t.Context())
			if err != nil || bin.Path != want || bin.Version != "1.0.99" || bin.Script {
				t.Errorf("Find = %+v, %v; want %s", bin, err, want)
			}
		})
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		loader := write(t, w.path("pkg", "npm-loader.js"), script, 0o755)
		write(t, w.path("pkg", "package.json"), `{"name":"@github/copilot","version":"1.0.98"}`, 0o644)
		l := w.locator()
		l.Explicit = loader
		if bin, err := l.Find(t.Context()); err != nil || bin.Path != loader || !bin.Script || bin.Version != "1.0.98" {
			t.Errorf("Find = %+v, %v", bin, err)
		}
	})
}

func TestInstallOnceForAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.npm(t)
	abandoned := w.path("cache", "cli", ".tmp-"+PinnedVersion+"-1")
	write(t, filepath.Join(abandoned, "half"), "", 0o600)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if bin, err := w.locator().Locate(t.Context()); err != nil || bin.Source != SourceCache {
				t.Errorf("Locate = %+v, %v", bin, err)
			}
		})
	}
	wg.Wait()
	calls, err := os.ReadFile(w.path("npm-calls"))
	if err != nil || bytes.Count(calls, []byte("\n")) != 1 {
		t.Errorf("npm was called as %q, %v; want once", calls, err)
	}
	for _, want := range []string{"--ignore-scripts", "@github/copilot@" + PinnedVersion} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("npm was called as %q, without %s", calls, want)
		}
	}
	if left, _ := filepath.Glob(w.path("cache", "cli", ".tmp-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInstallFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.locator().Locate(t.Context())
	if fault.ReasonOf(err) != fault.CLINotFound || !strings.Contains(err.Error(), "npm") {
		t.Errorf("without npm: %v", err)
	}
	w.npm(t)
	write(t, w.path("npm-fails"), "", 0o600)
	_, err = w.locator().Locate(t.Context())
	if fault.ReasonOf(err) != fault.CLIInstallFailed || !strings.Contains(err.Error(), "no network") {
		t.Errorf("with a failing npm: %v", err)
	}
	if _, err := os.Stat(w.path("cache", "cli", PinnedVersion)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed installation was moved into place: %v", err)
	}
	l := w.locator()
	l.NoInstall = true
	if _, err := l.Locate(t.Context()); fault.ReasonOf(err) != fault.CLINotFound {
		t.Errorf("NoInstall: %v", err)
	}
}

func TestUnpackOnce(t *testing.T) {
	t.Setenv("PLANTED_SECRET", "leak")
	w := newWorld(t)
	l := w.locator()
	l.Explicit = w.cli(t, "1.0.97", "x", "copilot")
	bin, err := l.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unpack := func() {
		t.Helper()
		if dir, err := l.Unpack(t.Context(), bin); err != nil || dir != w.path("cache") {
			t.Fatalf("Unpack = %q, %v", dir, err)
		}
	}
	count := func() int {
		out, _ := os.ReadFile(w.path("cache", "count"))
		return bytes.Count(out, []byte("x"))
	}
	unpack()
	unpack()
	if n := count(); n != 1 {
		t.Errorf("unpacked %d times, want once", n)
	}
	if env, _ := os.ReadFile(w.path("cache", "env")); bytes.Contains(env, []byte("PLANTED_SECRET")) {
		t.Error("the CLI was run with our environment")
	}
	if err := os.RemoveAll(w.path("cache", "pkg", "any")); err != nil {
		t.Fatal(err)
	}
	unpack()
	if n := count(); n != 2 {
		t.Errorf("unpacked %d times after the cache was cleared, want twice", n)
	}
}

func TestUnpackFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bin := Binary{Path: write(t, w.path("broken"), "#!/bin/sh\necho out of space >&2; exit 4\n", 0o755)}
	if _, err := w.locator().Unpack(t.Context(), bin); err == nil || !strings.Contains(err.Error(), "out of space") {
		t.Errorf("Unpack = %v", err)
	}
}

func TestLockWaitsAndCanBeCancelled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := acquire(ctx, path); !errors.Is(err, cause) {
		t.Errorf("acquire of a held lock = %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := acquire(t.Context(), path)
	if err != nil {
		t.Fatalf("acquire after release: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []Progress
		l := &Locator{Progress: func(p Progress) { got = append(got, p) }}
		failure := errors.New("x")
		bytes := int64(0)
		size := func() int64 { bytes += 10; return bytes }
		err := l.report(Progress{Stage: StageInstall, Text: "working", Expected: 30}, size, func() error {
			time.Sleep(2500 * time.Millisecond)
			return failure
		})
		if !errors.Is(err, failure) || len(got) != 4 {
			t.Fatalf("report = %v with %+v", err, got)
		}
		want := []Progress{{}, {Elapsed: time.Second, Bytes: 10}, {Elapsed: 2 * time.Second, Bytes: 20},
			{Elapsed: 2500 * time.Millisecond, Done: true, Err: failure}}
		for i := range want {
			want[i].Stage, want[i].Text, want[i].Expected = StageInstall, "working", 30
		}
		if !slices.Equal(got, want) {
			t.Errorf("progress = %+v, want %+v", got, want)
		}
	})
}
