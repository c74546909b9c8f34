package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// findingOf returns a finding about something.
func findingOf(found []runtime.Finding, subject string) (f runtime.Finding) {
	for _, one := range found {
		if one.Subject == subject {
			f = one
		}
	}
	return f
}

// graveOf returns the first finding that keeps a server from working.
func graveOf(found []runtime.Finding) (f runtime.Finding) {
	for _, one := range found {
		if one.Level == runtime.LevelError {
			return one
		}
	}
	return f
}

// Doctor finds the same faults of the configured files as a starting server, in the same words.
func TestDoctorFindsWhatServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("tokens", "acme "+strings.Repeat("ab", 32)+"\n")
	const certificates = "version: 1\nidentity: {certificates: true}\ntenants: {acme: {members: [{dns: a, role: " +
		"owner}]}}\n"
	const tokens = "version: 1\nidentity: {tokens: tokens}\ntenants: {acme: {members: [{token: acme, role: owner}], " +
		"providers: [x]}}\n"
	for name, change := range map[string]func(*Config){
		"a policy that is no policy":           func(c *Config) { c.Policy = write("bad", "version: 9\n") },
		"certificates without a CA":            func(c *Config) { c.Policy = write("ca", certificates) },
		"a tenant's provider that is not here": func(c *Config) { c.Policy = write("provider", tokens) },
		"a provider's file that is missing": func(c *Config) {
			c.Providers = map[string]string{"x": filepath.Join(dir, "none")}
		},
		"a provider that is no object": func(c *Config) { c.Providers = map[string]string{"x": write("list", "[]")} },
		"a certificate that is none":   func(c *Config) { c.TLSCert, c.TLSKey = write("cert", "x"), write("key", "y") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.DataDir, c.Listen = "", []string{"unix:" + filepath.Join(dir, "s")}
			change(&c)
			a, err := New(t.Context(), c)
			if err == nil {
				_ = a.Close()
				t.Fatal("serve takes it")
			}
			if f := graveOf(c.fileFindings(t.Context())); f.Text == "" || f.Remedy == "" ||
				strings.TrimPrefix(err.Error(), f.Subject+": ") != f.Text {
				t.Errorf("doctor says %+v, serve %v", f, err)
			}
		})
	}
}

// Doctor says whether sessions without a provider find a model.
func TestDoctorTellsOfTheSignIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		c      Config
		signed *signedIn
		level  runtime.Level
		text   string
	}{
		"signed in":               {Config{}, &signedIn{true, "octocat"}, runtime.LevelOK, "octocat"},
		"not signed in":           {Config{}, &signedIn{}, runtime.LevelWarning, "NOT_SIGNED_IN"},
		"a token that is refused": {Config{GitHubToken: "t"}, &signedIn{}, runtime.LevelWarning, "NOT_SIGNED_IN"},
		"a provider":              {Config{Providers: map[string]string{"x": "y"}}, &signedIn{}, runtime.LevelOK, "x"},
		"offline":                 {Config{OfflineModel: OfflineDefault}, nil, runtime.LevelOK, "offline"},
		"not asked":               {Config{}, nil, runtime.LevelWarning, "only the CLI can report"},
		"a token":                 {Config{GitHubToken: "t"}, nil, runtime.LevelOK, "--start"},
	} {
		if f := test.c.modelFinding(test.signed); f.Level != test.level || !strings.Contains(f.Text, test.text) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
