package bridge

import (
	"math"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// Tuning is the part of the configuration that may change while a bridge runs. Its members are as
// in Config. Existing sessions and runtimes keep the settings that they were created with.
type Tuning struct {
	MaxPromptBytes     int
	MaxAttachmentBytes int
	CallbackTimeout    time.Duration
	Turns              turn.Bounds
	IdleUnload         time.Duration
	ConfinementGrace   time.Duration
	Wear               fleet.Wear
	Placement          placement.Config
	Providers          map[string][]byte
}

// tuned is a Tuning in force.
type tuned struct {
	Tuning
	providers session.Providers
}

// tuning returns the initial Tuning.
func (c *Config) tuning() Tuning {
	return Tuning{
		MaxPromptBytes: c.MaxPromptBytes, MaxAttachmentBytes: c.MaxAttachmentBytes, CallbackTimeout: c.CallbackTimeout,
		Turns: c.Turns, IdleUnload: c.IdleUnload, Wear: c.Wear, Placement: c.Placement, Providers: c.Providers,
		ConfinementGrace: c.ConfinementGrace,
	}
}

// Tune replaces the tuning; t must be complete. If a value is invalid, the previous tuning stays in
// force.
func (b *Bridge) Tune(t Tuning) error {
	providers, err := request.ParseProviders(t.Providers)
	if err != nil {
		return err
	}
	// These are not settings of the user; they are as in New.
	t.Turns.Rest = b.cfg.Turns.Rest
	if b.tenants.Dialed {
		t.Placement.MaxSessions = math.MaxInt
	}
	b.tuned.Store(&tuned{Tuning: t, providers: providers})
	b.fleet.Tune(t.fleet())
	return nil
}

// fleet returns the part of the tuning for the runtimes.
func (t Tuning) fleet() fleet.Tuning {
	return fleet.Tuning{
		Placement: t.Placement, IdleUnload: t.IdleUnload, ConfinementGrace: t.ConfinementGrace, Wear: t.Wear,
	}
}

// The time between two sweeps over sessions and runtimes is a part of their shortest time limit, within these bounds.
const (
	minSweepInterval = 20 * time.Millisecond
	maxSweepInterval = 5 * time.Second
	sweepsInLimit    = 8
)

// sweepInterval returns the time between two sweeps over sessions and runtimes.
func (c *Config) sweepInterval() time.Duration {
	shortest := min(c.Turns.Stall, c.IdleUnload, c.Turns.Rest, c.Placement.Idle)
	return min(max(shortest/sweepsInLimit, minSweepInterval), maxSweepInterval)
}
