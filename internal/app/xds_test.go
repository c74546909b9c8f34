package app

import (
	"errors"
	"strings"
	"testing"

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
