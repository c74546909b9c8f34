//go:build unix

package runtime

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func levels(found []Finding) map[string]Level {
	m := map[string]Level{}
	for _, f := range found {
		m[f.Subject] = f.Level
	}
	return m
}

// copilotOf writes a program that says it is the CLI of that version.
func copilotOf(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copilot")
	text := "#!/bin/sh\necho '" + version + "'\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDiagnoseSpawner(t *testing.T) {
	t.Parallel()
	npm := filepath.Join(t.TempDir(), "npm")
	if err := os.WriteFile(npm, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(path string) func(string) string {
		return func(name string) string { return map[string]string{"PATH": path}[name] }
	}
	cache := t.TempDir()
	for name, tc := range map[string]struct {
		locator clibin.Locator
		want    map[string]Level
	}{
		"good": {
			clibin.Locator{Explicit: copilotOf(t, "GitHub Copilot CLI 1.0.102."), CacheDir: cache},
			map[string]Level{"copilot CLI": LevelOK, "cache directory": LevelOK},
		},
		"newer": {
			clibin.Locator{Explicit: copilotOf(t, "GitHub Copilot CLI 1.2.0."), CacheDir: cache},
			map[string]Level{"copilot CLI": LevelWarning, "cache directory": LevelOK},
		},
		"too old": {
			clibin.Locator{Explicit: copilotOf(t, "GitHub Copilot CLI 1.0.3."), CacheDir: cache},
			map[string]Level{"copilot CLI": LevelError, "cache directory": LevelOK},
		},
		"something else": {
			clibin.Locator{Explicit: copilotOf(t, "copilot version v1.34.0"), CacheDir: cache},
			map[string]Level{"copilot CLI": LevelWarning, "cache directory": LevelOK},
		},
		"wrong path": {
			clibin.Locator{Explicit: "/nonexistent", CacheDir: cache, Getenv: env("")},
			map[string]Level{"copilot CLI": LevelError, "cache directory": LevelOK},
		},
		"nothing, no npm": {
			clibin.Locator{CacheDir: cache, Getenv: env("")},
			map[string]Level{"copilot CLI": LevelError, "cache directory": LevelOK},
		},
		"nothing, but npm": {
			clibin.Locator{CacheDir: cache, Getenv: env(filepath.Dir(npm))},
			map[string]Level{"copilot CLI": LevelWarning, "cache directory": LevelOK},
		},
		"no cache": {
			clibin.Locator{Explicit: copilotOf(t, "GitHub Copilot CLI 1.0.102."),
				CacheDir: filepath.Join(file, "cache")},
			map[string]Level{"copilot CLI": LevelOK, "cache directory": LevelWarning},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := (&Spawner{Locator: tc.locator}).Diagnose(t.Context())
			got := levels(found)
			for subject, level := range tc.want {
				if got[subject] != level {
					t.Errorf("%s is %q, want %q: %+v", subject, got[subject], level, found)
				}
			}
			tested := levels((&Spawner{Locator: tc.locator, TestedOnly: true}).Diagnose(t.Context()))
			if name == "newer" && tested["copilot CLI"] != LevelError {
				t.Errorf("a newer version that is refused: %v", tested)
			}
			for _, f := range found {
				if f.Text == "" || (f.Level != LevelOK) != (f.Remedy != "") {
					t.Errorf("a finding without text, or whose remedy does not fit: %+v", f)
				}
			}
		})
	}
}

func TestDiagnoseDialer(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{})
	t.Cleanup(cli.Close)
	address := serve(t, func(c net.Conn) { cli.Serve(c, true) })
	got := levels((&Dialer{Address: address, Token: "x"}).Diagnose(t.Context()))
	if len(got) != 1 || got["copilot server"] != LevelOK {
		t.Errorf("Diagnose = %v", got)
	}
	got = levels((&Dialer{Address: "127.0.0.1:1"}).Diagnose(t.Context()))
	if got["copilot server"] != LevelError || got["connection token"] != LevelWarning {
		t.Errorf("Diagnose = %v", got)
	}
	if got := InProcess(nil).Diagnose(t.Context()); len(got) != 1 || got[0].Level != LevelOK {
		t.Errorf("Diagnose = %v", got)
	}
}

// TestChangedBetweenStarts replaces the executable while the Spawner remembers it: the next start
// judges it anew, in place of running another program unseen.
func TestChangedBetweenStarts(t *testing.T) {
	t.Parallel()
	path := copilotOf(t, "GitHub Copilot CLI 1.0.102.")
	s := &Spawner{Locator: clibin.Locator{Explicit: path, CacheDir: t.TempDir()}}
	logger := slog.New(slog.DiscardHandler)
	if l, err := s.launch(t.Context(), logger); err != nil || l.bin.Version != "1.0.102" {
		t.Fatalf("launch = %+v, %v", l, err)
	}
	if err := os.Rename(copilotOf(t, "GitHub Copilot CLI 1.0.3."), path); err != nil {
		t.Fatal(err)
	}
	if l, err := s.launch(t.Context(), logger); fault.ReasonOf(err) != fault.CLIUnsupported {
		t.Errorf("launch = %+v, %v", l, err)
	}
	s.Locator.Verify = clibin.VerifyAll
	if l, err := s.launch(t.Context(), logger); fault.ReasonOf(err) != fault.CLIUnverified {
		t.Errorf("launch = %+v, %v", l, err)
	}
}
