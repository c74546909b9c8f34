package bridge

import (
	"math"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// Tuning is what of a bridge's configuration may change while it runs; its members are as in
// Config. What sessions and runtimes are made with holds for those that are made later.
type Tuning struct {
	MaxPromptBytes     int
	MaxAttachmentBytes int
	CallbackTimeout    time.Duration
	Turns              turn.Bounds
	IdleUnload         time.Duration
	ConfinementGrace   time.Duration
	Wear               Wear
	Placement          placement.Config
	Providers          map[string][]byte
}

// tuned is a Tuning in force.
type tuned struct {
	Tuning
	providers session.Providers
}

// tuning is what the configuration has of it.
func (c *Config) tuning() Tuning {
	return Tuning{
		MaxPromptBytes: c.MaxPromptBytes, MaxAttachmentBytes: c.MaxAttachmentBytes, CallbackTimeout: c.CallbackTimeout,
		Turns: c.Turns, IdleUnload: c.IdleUnload, Wear: c.Wear, Placement: c.Placement, Providers: c.Providers,
		ConfinementGrace: c.ConfinementGrace,
	}
}

// Tune puts other values into force. All of them are to be given. Where one is bad, those
// before stay.
func (b *Bridge) Tune(t Tuning) error {
	providers, err := parseProviders(t.Providers)
	if err != nil {
		return err
	}
	// As in New, for what nobody is asked.
	t.Turns.Rest = b.cfg.Turns.Rest
	if b.tenants.Dialed {
		t.Placement.MaxSessions = math.MaxInt
	}
	b.tuned.Store(&tuned{Tuning: t, providers: providers})
	b.table.Reconfigure(t.Placement)
	return nil
}
