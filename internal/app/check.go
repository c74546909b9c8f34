package app

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// checked is what the files that a configuration names say.
type checked struct {
	providers    map[string][]byte
	policy       *policy.Policy // nil without one
	certificates *server.TLS    // nil without any
	sealing      *sealKeys
}

// check reads the files that a configuration names, and reports the first that a server could
// not use. A start, a reload and doctor all ask this one function.
func (c *Config) check(logger *slog.Logger) (checked, error) {
	var out checked
	var err error
	if out.providers, err = c.readProviders(); err != nil {
		return out, wrong("provider", err)
	}
	for name, text := range out.providers {
		if _, err := jsonobj.Parse(text); err != nil {
			return out, wrong("provider", fmt.Errorf("%q is not a JSON object: %w", name, err))
		}
	}
	if out.sealing, err = c.readSealing(); err != nil {
		return out, wrong("sealing_keys", err)
	}
	if c.Policy != "" {
		if out.policy, err = policy.Load(c.Policy, time.Now); err != nil {
			return out, wrong("policy", err)
		}
		if err := c.checkPolicy(out.policy, logger); err != nil {
			return out, err
		}
	}
	if out.certificates = c.tls(); out.certificates != nil {
		if _, err := out.certificates.Load(); err != nil {
			return out, wrong("tls_cert", err)
		}
	}
	if c.Cluster.on() && !c.Cluster.embedded() {
		if _, err := forward.NewCredentials(c.Cluster.tls(), logger); err != nil {
			return out, wrong("node_cert", err)
		}
	}
	return out, nil
}
