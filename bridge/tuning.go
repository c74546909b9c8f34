package bridge

import (
	"math"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// Tuning is the part of the configuration that may change while a bridge runs. Existing sessions and runtimes keep the
// settings that they were created with.
type Tuning struct {
	fleet.Tuning

	// MaxPromptBytes bounds a prompt's text: the CLI's memory grows to gigabytes with
	// prompts of some tens of MiB.
	MaxPromptBytes int
	// MaxAttachmentBytes bounds an attachment sent in pieces.
	MaxAttachmentBytes int
	// CallbackTimeout is how long callbacks wait for an answer.
	CallbackTimeout time.Duration
	// Turns bounds turns without progress.
	Turns turn.Bounds
	// Providers are model providers that callers may name (provider_ref), each a JSON object in
	// the CLI's form.
	Providers map[string][]byte
}

// tuned is a Tuning in force.
type tuned struct {
	Tuning
	providers session.Providers
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
	b.fleet.Tune(t.Tuning)
	return nil
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
