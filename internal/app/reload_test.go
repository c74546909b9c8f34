package app

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String implements fmt.Stringer.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// reloadable is an app that is not run: what is in force can be looked at all the same.
func reloadable(t *testing.T, c Config) (*App, *logBuffer) {
	t.Helper()
	var out logBuffer
	level := new(slog.LevelVar)
	logger, err := c.NewLogger(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(context.WithoutCancel(t.Context()), c, WithLogger(logger), WithLevel(level))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, &out
}

func base(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := DefaultConfig()
	c.Listen, c.LogFormat = []string{"unix:" + filepath.Join(dir, "s.sock")}, "text"
	return c
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// other changes a value into another good one.
func other(row setting.Row) {
	switch v := row.Value.(type) {
	case *int:
		*v++
	case *int64:
		*v++
	case *bool:
		*v = !*v
	case *time.Duration:
		*v += time.Second
	}
}

// Every live setting is in force after a reload; every other one is named and waits. The settings whose values are
// files have separate tests.
func TestReloadOfEachSetting(t *testing.T) {
	t.Parallel()
	c := base(t)
	c.MaxRuntimeRSS, c.KillRSS = 1<<30, 1<<31
	a, out := reloadable(t, c)
	for _, row := range c.Table().All() {
		next := *a.current.Load().clone()
		changed, _ := next.Table().Lookup(row.Key)
		before, _ := a.current.Load().Table().Lookup(row.Key)
		other(changed)
		if changed.Same(before) || row.Key == "xds" { // that one requires others
			continue
		}
		if err := a.Reload(next); err != nil {
			t.Errorf("%s: %v", row.Key, err)
			continue
		}
		now, _ := a.current.Load().Table().Lookup(row.Key)
		waits := strings.Contains(out.String(), "require a restart\" settings=["+row.Key+"]")
		if now.Same(changed) != row.Live || waits == row.Live {
			t.Errorf("%s: in force %t, said to wait %t", row.Key, now.Same(changed), waits)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// Settings in force in the App are in force in its parts.
func TestReloadReachesTheParts(t *testing.T) {
	t.Parallel()
	c := base(t)
	c.LogLevel = "error"
	a, out := reloadable(t, c)
	next := *c.clone()
	next.LogLevel, next.MaxPromptBytes, next.CallbackTimeout, next.MaxRuntimes, next.MaxAttachmentBytes = "info", 77, time.Hour, 3, 78
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	info, err := a.bridge.Runtimes.GetServerInfo(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := info.GetLimits()
	if l.GetMaxPromptBytes() != 77 || l.GetCallbackTimeout().AsDuration() != time.Hour || l.GetMaxRuntimes() != 3 ||
		l.GetMaxAttachmentBytes() != 78 {
		t.Errorf("limits %v", l)
	}
	for _, want := range []string{"configuration reloaded", "max_prompt_bytes", "log_level"} {
		if !strings.Contains(out.String(), want) { // at INFO, which it was not before
			t.Errorf("%q is missing in %s", want, out.String())
		}
	}
}

// Where anything is wrong, nothing changes, and the log says what it was.
func TestBadReloadChangesNothing(t *testing.T) {
	t.Parallel()
	c := base(t)
	dir := t.TempDir()
	c.Providers = map[string]string{"p": write(t, filepath.Join(dir, "p.json"), `{"baseUrl": "http://a"}`)}
	a, out := reloadable(t, c)
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a bad value":           {func(c *Config) { c.LogLevel = "loud" }, "log_level: "},
		"a bad value, not live": {func(c *Config) { c.Fsync = "often" }, "fsync: "},
		"no file of a provider": {func(c *Config) { c.Providers = map[string]string{"p": filepath.Join(dir, "none")} },
			"provider: "},
		"a bad provider": {func(c *Config) {
			c.Providers = map[string]string{"p": write(t, filepath.Join(dir, "bad"), "{secret-4")}
		}, "provider: "},
		"live with what is not": {func(c *Config) { c.MaxPromptBytes, c.MaxRequestBytes = 20<<20, 30<<20 },
			"max_prompt_bytes: "},
		"a policy without a TLS": {func(c *Config) { c.Listen = []string{"0.0.0.0:1"} }, "listen: "},
	} {
		next := *c.clone()
		next.IdleUnload = 123 * time.Second
		tc.change(&next)
		before := out.String()
		err := a.Reload(next)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q first", name, err, tc.want)
		}
		said := strings.TrimPrefix(out.String(), before)
		if !strings.Contains(said, "reloading the configuration failed") || strings.Contains(said, "secret-4") {
			t.Errorf("%s: the log says %q", name, said)
		}
		if a.current.Load().IdleUnload == next.IdleUnload {
			t.Errorf("%s: a part is in force", name)
		}
	}
}

const reloadPolicy = `version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: one, role: owner}], providers: [p]}
`

// A policy may move to another file, but neither come nor go, and has to fit the rest.
func TestReloadOfPolicy(t *testing.T) {
	t.Parallel()
	c := base(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokens.txt"), "one "+strings.Repeat("ab", 32)+"\n")
	c.Providers = map[string]string{"p": write(t, filepath.Join(dir, "p.json"), `{"baseUrl": "http://a"}`)}
	c.Policy = write(t, filepath.Join(dir, "policy.yaml"), reloadPolicy)
	a, out := reloadable(t, c)

	next := *c.clone()
	next.Policy = write(t, filepath.Join(dir, "policy2.yaml"), strings.Replace(reloadPolicy, "acme", "other", 1))
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.policy.Current().Tenant("other"); !ok {
		t.Error("the other policy is not in force")
	}
	write(t, next.Policy, strings.Replace(reloadPolicy, "acme", "third", 1))
	if err := a.Reload(next); err != nil { // as at SIGHUP, with nothing else changed
		t.Fatal(err)
	}
	if _, ok := a.policy.Current().Tenant("third"); !ok {
		t.Error("the changed policy is not in force")
	}
	gone := *next.clone()
	gone.Policy = ""
	if err := a.Reload(gone); err != nil || a.current.Load().Policy != next.Policy ||
		!strings.Contains(out.String(), "settings=[policy]") {
		t.Errorf("a policy that goes: %v, %q in force", err, a.current.Load().Policy)
	}
	none := *next.clone()
	none.Providers = map[string]string{}
	if err := a.Reload(none); err == nil || !strings.Contains(err.Error(), `no provider "p"`) {
		t.Errorf("a policy that names a provider that is not there: %v", err)
	}
	write(t, next.Policy, "version: 2\n")
	if err := a.Reload(next); err == nil || !strings.HasPrefix(err.Error(), "policy: ") {
		t.Errorf("a bad policy: %v", err)
	}
	if _, ok := a.policy.Current().Tenant("third"); !ok {
		t.Error("a bad policy has ended the good one")
	}
}

// All errors of Validate name a setting that there is.
func TestErrorsNameSettings(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]Config{
		"listen": {Listen: []string{"0.0.0.0:80"}}, "dial": {Dial: "x"}, "dial_token": {DialToken: "x"},
		"log_level":  {LogLevel: "x"},
		"log_format": {LogFormat: "x"}, "fsync": {Fsync: "x"}, "cli_log_level": {CLILogLevel: "x"},
		"env":            {Env: map[string]string{"HOME": "x"}},
		"profile_fields": {ProfileFields: []string{"x"}}, "profile_home": {Homes: map[string]string{"x": "y"}},
		"tls_key":  {TLSKey: "x"},
		"tls_cert": {TLSCert: "x"}, "tls_client_ca": {TLSClientCA: "x"}, "token": {Policy: "x", Token: "y"},
		"kill_rss":         {KillRSS: -1},
		"max_prompt_bytes": {MaxPromptBytes: 2, MaxRequestBytes: 1},
	} {
		err := c.Validate()
		if !strings.HasPrefix(errText(err), key+": ") {
			t.Errorf("%s: %v", key, err)
		}
		keys := []string{}
		for _, row := range c.Table().All() {
			keys = append(keys, row.Key)
		}
		if !slices.Contains(keys, key) {
			t.Errorf("there is no setting %s", key)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
