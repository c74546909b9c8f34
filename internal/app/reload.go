package app

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// Reload applies the settings that can change while the App runs, and reloads the files that they name: certificates,
// policy, providers. Other changes are logged. If anything is invalid, nothing changes, and Reload logs and returns
// the error.
func (a *App) Reload(c Config) error {
	a.reload.Lock()
	defer a.reload.Unlock()
	err := a.tune(c)
	if err != nil {
		a.logger.Error("reloading the configuration failed, the previous one remains in force", slog.Any("error", err))
	}
	return err
}

// tune is Reload. The caller holds reload.
func (a *App) tune(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	next, changed, later := a.current.Load().with(&c)
	if err := next.Validate(); err != nil {
		return err
	}
	if err := next.checkPermissions(next.trustedPaths(), a.logger); err != nil {
		return err
	}
	files, err := next.check(a.logger)
	if err != nil {
		return err
	}
	// All values were validated: from here on all of them take effect.
	if err := a.bridge.Tune(next.tuning(files.providers)); err != nil {
		return wrong("provider", err)
	}
	tuning := server.Tuning{
		TLS: files.certificates, Policy: files.policy, LogRequests: next.LogRequests, Connections: next.connections(),
	}
	if err := a.server.Tune(tuning); err != nil {
		return err
	}
	if a.level != nil {
		level, _ := parseLevel(next.LogLevel) // Validate has seen it
		a.level.Set(level)
	}
	a.sealer.now.Store(files.sealing)
	a.current.Store(next)
	a.logger.Info("configuration reloaded", slog.Any("changed", changed))
	if len(later) > 0 {
		a.logger.Warn("changed settings require a restart", slog.Any("settings", later))
	}
	return nil
}

// switches are the settings that may change from one file to another while a server runs,
// but neither from none to one nor back: who is let in, and on which addresses, hangs on it.
var switches = []string{"policy", "tls_cert", "tls_key"}

// with returns the configuration with another one's reloadable settings, the settings that differ, and those that
// differ and are not reloadable.
func (c *Config) with(other *Config) (next *Config, changed, later []string) {
	next = c.clone()
	wanted := other.Table()
	for _, row := range next.Table().All() {
		want, _ := wanted.Lookup(row.Key) // the same table
		path, isPath := row.Value.(*string)
		switch {
		case row.Same(want):
		case !row.Live,
			isPath && slices.Contains(switches, row.Key) && (*path == "") != (*want.Value.(*string) == ""):
			later = append(later, row.Key)
		default:
			row.Copy(want)
			changed = append(changed, row.Key)
		}
	}
	return next, changed, later
}

// clone returns a copy that shares nothing.
func (c *Config) clone() *Config {
	d := *c
	d.Listen, d.ProfileFields = slices.Clone(c.Listen), slices.Clone(c.ProfileFields)
	d.WebOrigins, d.MetricsByTenant = slices.Clone(c.WebOrigins), slices.Clone(c.MetricsByTenant)
	d.Env, d.Homes, d.Providers = maps.Clone(c.Env), maps.Clone(c.Homes), maps.Clone(c.Providers)
	return &d
}

// checkPolicy checks a policy against the configuration, and the permissions of its files.
func (c *Config) checkPolicy(p *policy.Policy, logger *slog.Logger) error {
	if asked, _ := p.Certificates(); asked && c.TLSClientCA == "" && (!c.XDS || webAddress(c) != "") {
		return wrong("policy", fmt.Errorf("%q: identity.certificates requires a CA of client certificates "+
			"(tls_client_ca)", c.Policy))
	}
	for _, name := range p.Providers() {
		if _, ok := c.Providers[name]; !ok {
			return wrong("policy", fmt.Errorf("%q: the server has no provider %q (provider)", c.Policy, name))
		}
	}
	return c.checkPermissions(policyPaths(p), logger)
}

// tuning is what the bridge has of what is live.
func (c *Config) tuning(providers map[string][]byte) bridge.Tuning {
	return bridge.Tuning{
		Tuning: fleet.Tuning{
			Placement: placement.Config{
				MaxSessions: c.MaxSessionsPerRuntime, MaxRuntimes: c.MaxRuntimes, Idle: c.RuntimeIdle,
			},
			IdleUnload: c.IdleUnload, ConfinementGrace: c.ConfinementGrace,
			Wear: fleet.Wear{Age: c.MaxRuntimeAge, RSS: c.MaxRuntimeRSS},
		},
		MaxPromptBytes: c.MaxPromptBytes, MaxAttachmentBytes: c.MaxAttachmentBytes, CallbackTimeout: c.CallbackTimeout,
		Turns: turn.Bounds{Stall: c.StallTimeout, ModelCall: c.ModelCallTimeout}, Providers: providers,
	}
}

func (c *Config) connections() server.Connections {
	return server.Connections{
		Max: c.MaxConnections, MaxAge: c.MaxConnectionAge,
		AgeGrace: c.ConnectionAgeGrace,
	}
}
