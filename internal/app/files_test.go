//go:build unix

package app

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// chmod sets a mode, independently of the umask.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// Files that every user of the machine can change stop the start, with the setting and the
// remedy; lax_permissions makes warnings of them.
func TestOpenFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		open    func(t *testing.T, c *Config)
		setting string
	}{
		"policy": {func(t *testing.T, c *Config) { chmod(t, c.Policy, 0o666) }, "policy"},
		"tokens": {func(t *testing.T,
			c *Config) {
			chmod(t, filepath.Join(filepath.Dir(c.Policy), "tokens.txt"), 0o666)
		}, "policy"},
		"directory": {func(t *testing.T, c *Config) { chmod(t, filepath.Dir(c.Policy), 0o777) }, "policy"},
		"data":      {func(t *testing.T, c *Config) { chmod(t, c.DataDir, 0o777) }, "data_dir"},
		"provider": {func(t *testing.T, c *Config) {
			path := filepath.Join(t.TempDir(), "provider.json")
			if err := os.WriteFile(path, []byte(`{"type":"openai","baseUrl":"http://127.0.0.1:1"}`),
				0o600); err != nil {
				t.Fatal(err)
			}
			chmod(t, path, 0o666)
			c.Providers = map[string]string{"p": path}
		}, "provider"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Config{
				Listen: []string{"127.0.0.1:0"}, DataDir: filepath.Join(t.TempDir(), "data"),
				Policy: writePolicy(t, tenantsPolicy, "acme-owner", "acme-participant", "acme-observer", "rival",
					"thief", "operator"),
			}
			if err := os.Mkdir(c.DataDir, 0o700); err != nil {
				t.Fatal(err)
			}
			tc.open(t, &c)
			var log bytes.Buffer
			logger := WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
			_, err := New(t.Context(), c, WithRunner(fake(t, fakecli.Script{})), logger)
			if err == nil || !strings.Contains(err.Error(), tc.setting) ||
				!strings.Contains(err.Error(), "every user of this machine") ||
				!strings.Contains(err.Error(), "chmod o-w") {
				t.Fatalf("New() = %v, want a refusal that names %s and the remedy", err, tc.setting)
			}
			c.LaxPermissions = true
			a, err := New(t.Context(), c, WithRunner(fake(t, fakecli.Script{})), logger)
			if err != nil {
				t.Fatalf("with lax_permissions: %v", err)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), "level=WARN") ||
				!strings.Contains(log.String(), "every user of this machine") {
				t.Errorf("lax_permissions does not warn: %s", log.String())
			}
		})
	}
}

// A reload does not apply a policy that every user can write.
func TestReloadRefusesAnOpenPolicy(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, nil)
	path := ts.config.Policy
	chmod(t, path, 0o666)
	if err := ts.Reload(ts.config); err == nil || !strings.Contains(err.Error(), "every user of this machine") {
		t.Errorf("Reload() = %v", err)
	}
}

// Doctor tells of open files, and that a socket in a shared directory can be someone else's.
func TestDoctorTellsOfPermissions(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	chmod(t, shared, 0o777|os.ModeSticky)
	data := t.TempDir()
	chmod(t, data, 0o777)
	text := ""
	for _, f := range Diagnose(context.Background(),
		Config{Listen: []string{"unix:" + filepath.Join(shared, "s")}, DataDir: data}, false) {
		text += f.Text + "\n"
	}
	for _, want := range []string{"data_dir: ", "written by every user", "listen: ",
		"make a socket of that name first"} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor does not say %q:\n%s", want, text)
		}
	}
}
