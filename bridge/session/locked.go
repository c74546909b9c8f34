package session

import (
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// locked gives access to the session to a goroutine that holds mu. It implements callbacks.Tx.
type locked struct{ s *Session }

func (l locked) Handlers(p *callback.Pending) (to []string, handled bool) {
	to, handled = l.s.roster.Handlers(p, &l.s.settings.State)
	return to, handled || p.For == roster.Everybody && l.s.watched().Handles(p)
}

// watched returns the callbacks that callers of WatchPending handle in the session. The caller holds mu.
func (s *Session) watched() config.Handling {
	return config.Handling{Methods: s.host.Watched(s, s.settings.State.Labels)}
}

func (l locked) NameOf(participant string) string { return l.s.roster.Name(participant) }

// Covers reports whether the session itself or a caller of WatchPending handles a callback, so that callers of
// Resolve may answer it.
func (l locked) Covers(p *callback.Pending) bool {
	s := l.s
	if p.Kind.Method == callback.ToolRequested {
		return slices.ContainsFunc(s.settings.State.Tools, func(t config.Tool) bool { return t.Name == p.Tool })
	}
	return p.For == roster.Everybody && !s.roster.OwnsCommand(p) &&
		(s.settings.State.Handling.Handles(p) || l.s.watched().Handles(p))
}

func (l locked) HookOrder(hook string) (who []string, wanted bool) {
	return l.s.roster.HookOrder(hook, l.s.settings.State.Handling), l.s.participants.WantsMethod(callback.HooksInvoke)
}

func (l locked) TellAsked(to []string)  { l.s.roster.TellAsked(to) }
func (l locked) Reading() bool          { return l.s.intake.Holding() }
func (l locked) Timeout() time.Duration { return l.s.loader.timeout }
func (l locked) Span() *observe.Span    { return l.s.turns.Span() }

func (l locked) MarkDirty() { l.s.markDirty() }

// markDirty schedules a save of the session. The caller holds mu.
func (s *Session) markDirty() { s.host.MarkDirty(s) }
