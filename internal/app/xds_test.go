package app

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

// A control plane may neither turn TLS and identities off, nor be asked about nothing. A program without xDS says so.
func TestXDSRequirements(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no TLS":         {func(c *Config) { c.TLSCert, c.TLSKey = "", "" }, "tls_cert"},
		"no policy":      {func(c *Config) { c.Policy = "" }, "policy"},
		"a socket alone": {func(c *Config) { c.Listen = []string{"unix:/s"} }, "HOST:PORT"},
		"all":            {func(*Config) {}, ""},
	} {
		c := Config{XDS: true, Listen: []string{"127.0.0.1:1", "unix:/s"}, TLSCert: "c", TLSKey: "k", Policy: "p"}
		tc.change(&c)
		err := c.Validate()
		switch {
		case !xds.Built && (!errors.Is(err, xds.ErrNotBuilt) || !strings.Contains(err.Error(), "-tags xds")):
			t.Errorf("%s: %v, want %v", name, err, xds.ErrNotBuilt)
		case !xds.Built:
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), "xds: ") ||
			!strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want one with %q", name, err, tc.want)
		}
	}
}

// The tests have no bootstrap file: a server with these settings would not start.
func TestXDSBootstrap(t *testing.T) {
	t.Parallel()
	want := "GRPC_XDS_BOOTSTRAP"
	if !xds.Built {
		want = "-tags xds"
	}
	if f := bootstrapFinding(); f.Level != runtime.LevelError || !strings.Contains(f.Text, want) {
		t.Errorf("doctor finds %+v, want an error with %q", f, want)
	}
}

// A policy with certificates needs a CA for them, which the control plane has, but not for browsers.
func TestXDSCertificates(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "policy"), "version: 1\nidentity: {certificates: true}\ntenants: {a: {}}\n")
	p, err := policy.Load(file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		c    Config
		fine bool
	}{
		"no CA": {Config{}, false}, "xDS": {Config{XDS: true}, true},
		"xDS and browsers":         {Config{XDS: true, Web: true}, false},
		"xDS, browsers and the CA": {Config{XDS: true, Web: true, TLSClientCA: "ca"}, true},
	} {
		err := tc.c.checkPolicy(p, slog.New(slog.DiscardHandler))
		if tc.fine != (err == nil) || err != nil && !strings.Contains(err.Error(), "tls_client_ca") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
