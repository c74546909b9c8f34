package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
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

// fileCheck is the check of a file that a configuration names.
type fileCheck struct {
	subject string
	// read reads the file. Its error says why a server could not use it.
	read func(*checked) error
	// find returns what doctor says of a file that a server can use.
	find func(context.Context, *checked) []runtime.Finding
	// remedy says what mends a file that a server cannot use; empty for correctFile.
	remedy string
}

const (
	correctFile = "correct the file, or the setting that names it"
	correctPair = "name a certificate (tls_cert) and its own key (tls_key), both in PEM"
)

// check reads the files that a configuration names, and reports the first that a server could
// not use. A start, a reload and doctor all make the same checks.
func (c *Config) check(logger *slog.Logger) (checked, error) {
	out := checked{providers: map[string][]byte{}}
	for _, f := range c.fileChecks(logger) {
		if err := f.read(&out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (c *Config) fileChecks(logger *slog.Logger) []fileCheck {
	var list []fileCheck
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		list = append(list, c.providerCheck(name))
	}
	list = append(list, c.sealingCheck())
	if c.Policy != "" {
		list = append(list, c.policyCheck(logger))
	}
	if c.TLSCert != "" {
		list = append(list, c.certificateCheck())
	}
	if c.Cluster.on() && !c.Cluster.embedded() {
		list = append(list, c.nodeCheck(logger))
	}
	return list
}

func (c *Config) providerCheck(name string) fileCheck {
	return fileCheck{subject: "provider " + name, read: func(out *checked) (err error) {
		out.providers[name], err = c.readProvider(name)
		return wrong("provider", err)
	}, find: func(ctx context.Context, out *checked) []runtime.Finding {
		return []runtime.Finding{c.providerFinding(ctx, name, out.providers[name])}
	}}
}

func (c *Config) sealingCheck() fileCheck {
	return fileCheck{subject: "sealing_keys", read: func(out *checked) (err error) {
		out.sealing, err = c.readSealing()
		return wrong("sealing_keys", err)
	}, find: func(context.Context, *checked) (found []runtime.Finding) {
		if c.SealingKeys != "" {
			found = append(found, fine("sealing_keys", "%q can be read", c.SealingKeys))
		}
		return found
	}}
}

func (c *Config) policyCheck(logger *slog.Logger) fileCheck {
	return fileCheck{subject: "policy", read: func(out *checked) (err error) {
		if out.policy, err = policy.Load(c.Policy, time.Now); err != nil {
			return wrong("policy", err)
		}
		return c.checkPolicy(out.policy, logger)
	}, find: c.policyFindings}
}

func (c *Config) certificateCheck() fileCheck {
	return fileCheck{subject: "tls_cert", remedy: correctPair, read: func(out *checked) error {
		out.certificates = c.tls()
		_, _, err := out.certificates.Load()
		return wrong("tls_cert", err)
	}, find: c.certificateFindings}
}

func (c *Config) nodeCheck(logger *slog.Logger) fileCheck {
	return fileCheck{subject: "node_cert", read: func(*checked) error {
		_, err := forward.NewCredentials(c.Cluster.tls(), logger)
		return wrong("node_cert", err)
	}, find: func(context.Context, *checked) []runtime.Finding {
		now := time.Now()
		return []runtime.Finding{dateFinding("node_cert", c.Cluster.Cert, now), dateFinding("node_ca", c.Cluster.CA, now)}
	}}
}
