package app

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
)

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"a path without its scheme": {Config{Listen: []string{"/run/x.sock"}}, `"unix:/run/x.sock"`},
		"no path":                   {Config{Listen: []string{"unix:"}}, "no path"},
		"another interface":         {Config{Listen: []string{"0.0.0.0:80"}}, "loopback"},
		"no port":                   {Config{Listen: []string{"localhost"}}, "HOST:PORT"},
		"one port twice": {Config{Listen: []string{"localhost:1"}, WebListen: "localhost:1"},
			`web_listen: "localhost:1" is also an address of listen`},
		"one address twice": {Config{Listen: []string{"unix:a", "unix:a"}}, "is also an address of listen"},
		"dial without port": {Config{Dial: "localhost"}, `"localhost"`},
		"dial and start":    {Config{Dial: "localhost:1", CLIPath: "/bin/copilot"}, "exclude"},
		"token for nobody":  {Config{DialToken: "secret"}, "needs an address"},
		"negative size":     {Config{MaxAttachmentBytes: -1}, "max_attachment_bytes: it must not be negative"},
		"negative time": {Config{CallbackTimeout: -time.Second},
			"callback_timeout: it must not be negative"},
		"prompt over request": {Config{MaxPromptBytes: 2, MaxRequestBytes: 1}, "does not fit"},
		"log level":           {Config{LogLevel: "loud"}, `"loud"`},
		"log format":          {Config{LogFormat: "xml"}, `"xml"`},
		"CLI log level":       {Config{CLILogLevel: "loud"}, `"loud"`},
		"reserved variable":   {Config{Env: map[string]string{"COPILOT_HOME": "/x"}}, `"COPILOT_HOME"`},
	} {
		if tc.config.Listen == nil {
			tc.config.Listen = []string{"unix:s.sock"}
		}
		err := tc.config.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: a secret in %q", name, err)
		}
	}
}

func TestValidateCompletes(t *testing.T) {
	t.Parallel()
	given := []string{"unix:s.sock", "localhost:0"}
	c := Config{Listen: given}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs("s.sock")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen[0] != "unix:"+absolute || c.Listen[1] != "localhost:0" {
		t.Errorf("listen %q", c.Listen)
	}
	if given[0] != "unix:s.sock" {
		t.Errorf("the caller's list became %q", given)
	}
	if c.CallbackTimeout != callback.DefaultTimeout || c.LogLevel != "info" || c.LogFormat != "text" ||
		c.Version == "" {
		t.Errorf("defaults: %+v", c)
	}
}

// The login stored on the machine belongs to a person: it is used for real models only, and only where that was not
// forbidden.
func TestProfileLogin(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config Config
		want   bool
	}{
		{Config{}, true}, {Config{NoLogin: true}, false}, {Config{OfflineModel: OfflineDefault}, false},
	} {
		p, err := tc.config.profile()
		if err != nil || p.UseLogin != tc.want {
			t.Errorf("%+v: login %t, %v", tc.config, p.UseLogin, err)
		}
	}
}

func TestProfileDirectoriesAreAbsolute(t *testing.T) {
	t.Parallel()
	c := Config{Home: "h", UserHome: "u", WorkDir: "w"}
	p, err := c.profile()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.Home, p.UserHome, p.Dir} {
		if !filepath.IsAbs(dir) {
			t.Errorf("directory %q", dir)
		}
	}
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ level, format, want string }{
		{"info", "text", "level=INFO msg=shown\n"}, {"INFO", "json", `"msg":"shown"}` + "\n"}, {"error", "text", ""},
	} {
		var out bytes.Buffer
		c := Config{LogLevel: tc.level, LogFormat: tc.format}
		log, err := c.NewLogger(&out, new(slog.LevelVar))
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("hidden")
		log.Info("shown")
		if got := out.String(); !strings.HasSuffix(got, tc.want) || strings.Contains(got, "hidden") || tc.want == "" &&
			got != "" {
			t.Errorf("%s %s: %q", tc.level, tc.format, got)
		}
	}
}

func TestDefaultSocket(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if path, err := DefaultSocket(); err != nil || path != "/run/user/7/copilot-grpc.sock" {
		t.Errorf("%q, %v", path, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	t.Setenv("HOME", "/home/x")
	t.Setenv("XDG_CACHE_HOME", "/home/x/cache")
	if path, err := DefaultSocket(); err != nil || !strings.HasPrefix(path, "/home/x/") {
		t.Errorf("%q, %v", path, err)
	}
}
