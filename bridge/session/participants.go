package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/participants"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Joined is the result of joining a session.
type Joined = participants.Joined

// Joining has the parameters with which a caller becomes a participant. The same call may open the session.
type Joining struct {
	participants.Joining
	// Exact requests the CLI's own behaviour where the bridge's checks are stricter.
	Exact bool
	// OnPlaced replaces OnPlaced of the embedded Joining. It also receives the session.
	OnPlaced func(*Session, Joined)
}

// Exactly reports whether Exact is set. j may be nil.
func (j *Joining) Exactly() bool { return j != nil && j.Exact }

// NeedsConnection reports whether the participant needs a satellite. j may be nil.
func (j *Joining) NeedsConnection() bool { return j != nil && j.Joining.NeedsConnection() }

// In returns the parameters for the session s.
func (j *Joining) In(s *Session) participants.Joining {
	in := j.Joining
	if j.OnPlaced != nil {
		in.OnPlaced = func(joined Joined) { j.OnPlaced(s, joined) }
	}
	return in
}

// newParticipants returns the manager of the session's participants.
func newParticipants(s *Session) *participants.Manager {
	return participants.New(participants.Config{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Roster: &s.roster,
		Journal: s.journal, Callbacks: s.callbacks, Models: s.models,
		Configure: func(ctx context.Context, f func(participants.Runtime) error) error {
			return s.loader.exclusive(ctx, func() error {
				rt, err := s.loader.load(ctx)
				if err != nil {
					return err
				}
				return f(rt)
			})
		},
		Call: func(ctx context.Context, rt participants.Callee, method string, params jsonobj.Object) (
			json.RawMessage, journal.Position, error) {
			return s.call(ctx, rt, method, params)
		},
		Loaded: func() bool { return s.loader.State() == Loaded },
		Disconnect: func(ctx context.Context) error {
			_, err := s.loader.Disconnect(ctx, false)
			return err
		},
		BuiltIns: s.host.BuiltIns,
		Classify: Classify,
		Go:       s.host.Go,
		Logger:   s.host.Logger,
	})
}

func (l locked) Usable() error                         { return l.s.loader.usable() }
func (l locked) Settings() *config.State               { return &l.s.settings.State }
func (l locked) HeadersReplaced() bool                 { return l.s.sender.HeadersReplaced() }
func (l locked) LoadedIn(rt participants.Runtime) bool { return l.s.loader.runtime == rt }
func (l locked) Opened(result json.RawMessage) {
	l.s.intake.Info.ApplyResult(result, l.s.settings.State.Object)
}
func (l locked) EndsWithLast() bool {
	return l.s.loader.lifetime == bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
}

// Participants returns the participants of the session.
func (s *Session) Participants() *participants.Manager { return s.participants }
