package session

import (
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// locked gives access to the session to a goroutine that holds mu. It implements the Tx of the session's parts.
type locked struct{ s *Session }

func (l locked) Turn() *turn.Machine            { return l.s.turns.Machine() }
func (l locked) CarryOut(effects []turn.Effect) { l.s.turns.CarryOut(effects) }
func (l locked) EndTurn(out turn.Outcome)       { l.s.turns.End(out) }
func (l locked) Loaded() bool                   { return l.s.loader.state == Loaded }

func (l locked) Post(note any, at journal.Position) journal.Position {
	return l.s.journal.Post(note, at)
}

func (l locked) MarkTurnEnd(at journal.Position) {
	l.s.intake.Marks.TurnEnd = at
	l.MarkDirty()
}

func (l locked) Disconnected() bool    { return l.s.loader.state == Disconnected }
func (l locked) Runtime() Runtime      { return l.s.loader.runtime }
func (l locked) Marks() *history.Marks { return &l.s.intake.Marks }

func (l locked) Interruption() *turn.Interruption { return &l.s.intake.Marks.Interruption }

func (l locked) Handlers(p *callback.Pending) (to []string, handled bool) {
	to, handled = l.s.roster.Handlers(p, &l.s.settings.State)
	return to, handled || p.For == roster.Everybody && l.Watched().Handles(p)
}

// Continues reports whether the agent is told to continue interrupted turns.
func (l locked) Continues() bool { return l.s.settings.State.Continues }

// Watched returns the callbacks that callers of WatchPending handle in the session.
func (l locked) Watched() config.Handling { return l.s.watched() }

// watched is Watched with mu held.
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
		(s.settings.State.Handling.Handles(p) || l.Watched().Handles(p))
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
