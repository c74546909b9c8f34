package turn

import (
	"slices"
	"time"
)

// Defaults of Bounds.
const (
	DefaultStall     = 10 * time.Minute
	DefaultModelCall = 30 * time.Minute
	// DefaultRest is the default of Bounds.Rest; the CLI takes some milliseconds.
	DefaultRest = 30 * time.Second
	// DefaultSend is the default of Bounds.Send; the CLI takes some milliseconds.
	DefaultSend = 4 * time.Minute
)

// Bounds are the time limits of a turn without events. Time in which a tool runs or a callback is pending does
// not count.
type Bounds struct {
	// Stall is for the turn as a whole.
	Stall time.Duration
	// ModelCall takes its place while an agent waits for a model.
	ModelCall time.Duration
	// Rest takes its place once the agent has come to rest or has failed: the only event missing then is the one that
	// says so of the session. It also does while no turn runs and a message waits that an abort may have removed.
	Rest time.Duration
	// Send is for the CLI's answer to a message.
	Send time.Duration
}

// WithDefaults returns the bounds with defaults for unset ones.
func (b Bounds) WithDefaults() Bounds {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&b.Stall, DefaultStall}, {&b.ModelCall, DefaultModelCall}, {&b.Rest, DefaultRest}, {&b.Send, DefaultSend}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	b.Rest, b.ModelCall = min(b.Rest, b.Stall), max(b.ModelCall, b.Stall)
	return b
}

// Heard notes that something was heard of the session, or that its time begins anew.
func (m *Machine) Heard(now time.Time) { m.lastEvent = now }

// LastEvent is when something was last heard of the session.
func (m *Machine) LastEvent() time.Time { return m.lastEvent }

// ToolsRun reports whether tools of the turn are thought to run. They are not once the agent
// has come to rest or has failed.
func (m *Machine) ToolsRun() bool { return m.tools > 0 && !m.resting && !m.failing }

// Overdue reports whether a turn has had no event for its time limit, so that the bridge has to ask the CLI.
// pending reports that a callback is pending. After an answer or the end of a tool the time begins again.
func (m *Machine) Overdue(now time.Time, pending bool) bool {
	if m.stalling || !m.Busy() {
		return false
	}
	since := m.lastEvent
	if pending || m.ToolsRun() {
		m.outstandingAt = now
	} else if m.outstandingAt.After(since) {
		since = m.outstandingAt
	}
	limit := m.Bounds.Stall
	switch {
	case m.AtRest():
		limit = m.Bounds.Rest
	case len(m.calling) > 0:
		limit = m.Bounds.ModelCall
	}
	return now.Sub(since) >= limit
}

// Deserted reports whether messages wait for a turn of a session that no runtime has, and the
// session has not been loaded for too long.
func (m *Machine) Deserted(now time.Time) bool {
	return !m.stalling && len(m.waiters) > 0 && now.Sub(m.lastEvent) >= m.Bounds.Stall
}

// Silent returns for how long nothing has happened although nothing is outstanding.
func (m *Machine) Silent(now time.Time, pending bool) time.Duration {
	if pending || m.tools > 0 {
		m.outstandingAt = now
	}
	return min(now.Sub(m.lastEvent), now.Sub(m.outstandingAt))
}

// SetStalling notes whether the CLI is being asked if the turn goes on. Until Abandon the turn may end as any other.
func (m *Machine) SetStalling(stalling bool) { m.stalling, m.abandoned = stalling, false }

// Abandon notes that the turn is aborted because it has stalled.
func (m *Machine) Abandon() { m.abandoned = true }

// Stalling reports whether the turn is being asked about, or given up.
func (m *Machine) Stalling() bool { return m.stalling }

// AtRest reports whether the agent has come to rest or has failed, so that the turn's end is known without its idle
// event, or has nothing to do but messages that an abort may have removed.
func (m *Machine) AtRest() bool {
	return m.resting || m.failing || m.Missing()
}

// Missing reports whether no turn runs and a message waits that an abort may have removed.
func (m *Machine) Missing() bool { return !m.running && slices.ContainsFunc(m.waiters, m.missing) }

// missing reports whether an abort may have removed a message that the CLI has accepted.
func (*Machine) missing(w *Waiter) bool {
	return w.accepted && w.doubtful && !w.begun && !w.unconfirmed
}
