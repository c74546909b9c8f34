package main

import (
	"path/filepath"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// Everything that waits in the server does so for so long.
const (
	callbackTimeout = 2 * time.Second
	stallTimeout    = 1500 * time.Millisecond
	idleUnload      = 250 * time.Millisecond
	drainGrace      = 300 * time.Millisecond
	pingInterval    = 400 * time.Millisecond
	pingTimeout     = 1500 * time.Millisecond
	// heartbeat is how often a silent stream says how far it has come.
	heartbeat = time.Second
)

// The real CLI is slower, and shares two cores with others.
const (
	realCallbackTimeout = 5 * time.Second
	realStallTimeout    = 6 * time.Second
	realIdleUnload      = 1500 * time.Millisecond
	realPingTimeout     = 5 * time.Second
)

// restarts have no breaker to speak of: a schedule kills more often than any crash loop.
func restarts() app.Option {
	return app.WithRestarts(runtime.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond},
		runtime.Breaker{Limit: 1 << 20})
}

// configure is what all servers have.
func configure(p Plan, dir string) app.Config {
	c := app.Config{
		Version: "chaos", Listen: []string{"unix:" + filepath.Join(dir, "s")},
		Home: filepath.Join(dir, "home"), UserHome: dir, WorkDir: dir, DataDir: filepath.Join(dir, "data"),
		NoLogin:         true,
		CallbackTimeout: callbackTimeout, StallTimeout: stallTimeout, ModelCallTimeout: stallTimeout,
		IdleUnload: idleUnload,
		DrainGrace: drainGrace, PingInterval: pingInterval, PingTimeout: pingTimeout,
		FsyncInterval: 20 * time.Millisecond,
		// Small, so that readers that are slow do lose ephemeral events, and get a Gap.
		MaxEphemeralBytes: 256 << 10,
	}
	if p.real() {
		c.CallbackTimeout, c.StallTimeout, c.ModelCallTimeout = realCallbackTimeout, realStallTimeout, realStallTimeout
		c.IdleUnload, c.PingTimeout = realIdleUnload, realPingTimeout
	}
	policies := []journal.Fsync{journal.FsyncAlways, journal.FsyncInterval, journal.FsyncNever}
	c.Fsync = string(policies[p.Seed%uint64(len(policies))])
	return c
}
