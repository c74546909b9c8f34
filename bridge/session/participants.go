package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Asker serves a request of the CLI that came on a satellite; id is unique to it.
type Asker func(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error)

// Joining has the parameters with which a caller becomes a participant. The same call may open the session.
type Joining struct {
	roster.Brings
	// Token is the token of the participant's old place; empty for a new one.
	Token string
	// Reclaim reports that the bridge has the token from an earlier request with the same id. Only the same
	// caller may use it.
	Reclaim bool
	// Exact requests the CLI's own behaviour where the bridge's checks are stricter.
	Exact bool
	// OnPlaced, if set, is called as soon as the participant is in the roster, before any call to the CLI. It
	// must not call the session.
	OnPlaced func(*Session, Joined)
}

// Exactly reports whether Exact is set. j may be nil.
func (j *Joining) Exactly() bool { return j != nil && j.Exact }

// Joined is the place of a participant.
type Joined struct {
	Participant *roster.Participant
	// Returned says that it was its place before.
	Returned bool

	before roster.Brings // of a participant that returned
	stream int           // the participant's stream
}

// Participants are the participants of the session. They join, change, lose their connections and leave; Participants sends
// the resulting tools, switches, events and commands to the runtime that has the session loaded, and remembers what it has
// sent. It also owns the satellites: connections to the runtime for single participants.
//
// # Satellites
//
// The CLI binds canvases and the identity of an extension to a connection, so two participants cannot declare them on
// the connection that all sessions share. A participant that declares them gets a satellite, which joins the session by
// a warm resume without events. Callbacks of a bound kind on it go only to that participant, all others to their usual
// handlers; its events are dropped unparsed. The satellite ends with the participant, is opened again wherever the
// session is loaded next, and keeps the session loaded. Only a runtime that listens has satellites
// (runtime.Profile.Multi): on a loopback port, with a random token. A session that a participant with canvases creates
// is placed in such a runtime.
//
// # The resume lock
//
// In CLI 1.0.102 a warm resume waits for calls in progress, and later calls wait for the resume. A call that waits for
// an answer would therefore never end. resumeLock lets callers' calls and warm resumes exclude each other; answers do
// not take it.
//
// The session's lock guards the roster and the fields that change. A method says when its caller holds the lock; all other
// methods take it. Calls to the CLI run under the lifecycle lock. A departure, and each satellite to close, has a goroutine
// of the host. The timer of a participant's grace time stops when the participant resumes or leaves.
type Participants struct {
	s       *Session
	resumes resumeLock
	// switchNames is constant.
	switchNames []string
	received    received
}

// newParticipants returns no participants.
func newParticipants(s *Session) *Participants {
	m := &Participants{s: s, switchNames: callback.Switches(), received: received{interests: map[string]bool{}}}
	slices.Sort(m.switchNames)
	return m
}

// add puts a participant in place, or back in its old one. The CLI learns of its tools and switches
// by sync. The caller holds the lock.
func (m *Participants) add(j Joining) (Joined, error) {
	before := m.s.roster.BroughtBy(j.Token)
	p, displaced, err := m.s.roster.Place(j.Brings, j.Token, j.Reclaim, &m.s.settings.State)
	if err != nil {
		return Joined{}, err
	}
	if displaced != nil {
		m.s.host.Go(func(context.Context) { displaced.Close() })
	}
	joined := Joined{Participant: p, Returned: j.Token != "", before: before, stream: p.Streams}
	m.offer(p)
	if j.OnPlaced != nil {
		j.OnPlaced(m.s, joined)
	}
	m.s.markDirty()
	return joined, nil
}

// CheckNames refuses tools and commands that have the names of the CLI's own. at is the path of the lists, with its
// dot, or empty.
func (m *Participants) CheckNames(ctx context.Context, tools []config.Tool, commands []config.Command, at string) error {
	if len(tools) == 0 && len(commands) == 0 {
		return nil
	}
	return m.s.host.BuiltIns(ctx).Check(tools, at+"tools", commands, at+"commands")
}

// Join makes a caller a participant of a session that is open.
func (m *Participants) Join(ctx context.Context, j Joining) (Joined, error) {
	joined, err := m.place(j)
	if err != nil {
		return Joined{}, err
	}
	if err := m.sync(ctx); err != nil {
		m.withdraw(joined)
		if joined.Returned { // it may try again, such as when it has given back what is lacking
			m.Lost(joined.Participant, err)
		}
		return Joined{}, err
	}
	if !m.stays(joined.Participant) {
		return Joined{}, removedMeanwhile().WithField("participant_token")
	}
	return joined, nil
}

// stays reports whether a participant has its place still: while it joined or changed, the session may have been disconnected, and
// opened again by others.
func (m *Participants) stays(p *roster.Participant) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.s.roster.Has(p)
}

func removedMeanwhile() *fault.Error {
	return fault.New(fault.ParticipantNotFound, "the participant was removed meanwhile")
}

// withdraw takes back what a participant brought when the CLI did not take it: the CLI would reject it at every later load
// and change too, those of other callers included. A participant that was there before has what it had, unless another
// stream has resumed it since; any other leaves.
func (m *Participants) withdraw(joined Joined) {
	p := joined.Participant
	if !joined.Returned {
		m.Leave(p)
		return
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if p.Streams == joined.stream {
		p.Tools, p.Commands, p.Handling, p.Own = joined.before.Tools, joined.before.Commands, joined.before.Handling, joined.before.Own
		m.offer(p) // what came meanwhile
		m.s.markDirty()
	}
}

// place is Add for a session that is open.
func (m *Participants) place(j Joining) (Joined, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.loader.usable(); err != nil {
		return Joined{}, err
	}
	return m.add(j)
}

// offer offers the pending callbacks to a participant that handles them. The caller holds the lock.
func (m *Participants) offer(p *roster.Participant) {
	pending := m.s.callbacks.Registry()
	for _, one := range pending.List() {
		to, _ := m.s.roster.Handlers(one, &m.s.settings.State)
		if slices.Contains(to, p.ID) && !slices.Contains(pending.Offered(one), p.ID) {
			pending.Offer(one.ID, p.ID)
			m.s.journal.Note(Requested{Pending: one})
		}
	}
}

// Change replaces a participant's tools or handlers; nil leaves them. It undoes a change that fails: the CLI would
// reject it at every later load too.
func (m *Participants) Change(ctx context.Context, p *roster.Participant, tools *[]config.Tool, handling *config.Handling) error {
	was, err := m.change(p, tools, handling)
	if err != nil {
		return err
	}
	m.s.callbacks.orphans(ctx)
	if err := m.sync(ctx); err != nil {
		m.withdraw(was)
		return err
	}
	if !m.stays(p) {
		return removedMeanwhile()
	}
	return nil
}

// change is Change without the CLI. It returns the participant's place before the change.
func (m *Participants) change(p *roster.Participant, tools *[]config.Tool, handling *config.Handling) (Joined, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	was := Joined{Participant: p, Returned: true, before: p.Brings, stream: p.Streams}
	if tools != nil {
		if err := m.s.roster.CheckTools(*tools, m.s.settings.State.Tools, p, "command.set_tools.tools"); err != nil {
			return Joined{}, err
		}
		p.Tools = *tools
	}
	if handling != nil {
		p.Handling = *handling
	}
	m.s.markDirty()
	m.offer(p)
	return was, nil
}

// Lost notes that a participant's connection broke: the participant may return within its grace
// time.
func (m *Participants) Lost(p *roster.Participant, cause error) {
	m.s.mu.Lock()
	replaced := cause == roster.ErrReplaced || p.Left
	if !replaced {
		p.Connected = false
		if p.Grace > 0 {
			m.awaitReturn(p)
		}
	}
	grace := p.Grace
	m.s.mu.Unlock()
	// Parts of a response may be lost with the connection.
	m.s.host.Go(func(context.Context) {
		m.s.models.failOf(p.ID, modelBroken, "the connection of the participant that was answering broke")
	})
	if !replaced && grace <= 0 {
		m.Leave(p)
	}
}

// awaitReturn starts a participant's grace time. The caller holds the lock.
func (m *Participants) awaitReturn(p *roster.Participant) {
	p.LostAt = time.Now()
	p.Timer = time.AfterFunc(p.Grace, func() { m.leave(p, func() bool { return !p.Connected }) })
}

// Leave removes a participant and its tools. It returns at once; the CLI learns of it in the background, in
// order with other changes.
func (m *Participants) Leave(p *roster.Participant) {
	m.leave(p, func() bool { return true })
}

// LeaveBy removes the participant with a token, and reports whether it was there. Its stream, if it has one, ends with
// the cause.
func (m *Participants) LeaveBy(token string, cause error) bool {
	m.s.mu.Lock()
	p := m.s.roster.ByToken(token)
	m.s.mu.Unlock()
	if p == nil {
		return false
	}
	var end context.CancelCauseFunc
	m.leave(p, func() bool {
		if p.Connected {
			end = p.Replace
		}
		return true
	})
	if end != nil {
		end(cause)
	}
	return true
}

// leave is Leave on the condition that right returns true. The caller of right holds the lock.
func (m *Participants) leave(p *roster.Participant, right func() bool) {
	m.s.mu.Lock()
	if !m.s.roster.Has(p) || !right() {
		m.s.mu.Unlock()
		return
	}
	m.s.roster.Remove(p)
	m.s.markDirty()
	sat := p.TakeSatellite()
	last := m.s.roster.Len() == 0 && m.endsWithLast()
	m.s.mu.Unlock()
	m.s.host.Go(func(ctx context.Context) { m.left(ctx, p, sat, last) })
}

// left carries out what follows from a participant's departure.
func (m *Participants) left(ctx context.Context, p *roster.Participant, sat roster.Satellite, last bool) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	m.s.callbacks.orphans(ctx)
	m.s.models.failOf(p.ID, modelRefused, "the participant that was answering has left")
	if sat != nil {
		sat.Close()
	}
	if !last {
		m.s.host.Refresh()
		return
	}
	if _, err := m.s.loader.Disconnect(audit.ByBridge(ctx, m.s.tenant), false); err != nil {
		m.s.host.Logger().Warn("the CLI did not accept the end of the last participant", "session_id", m.s.id, "error", err)
	}
}

// restore adds the participants that an earlier process of the bridge saved. Each has its grace time
// to return; one without grace had left when its stream broke. The caller holds the lock.
func (m *Participants) restore(saved []roster.Saved) {
	m.s.roster.Restore(saved)
	for p := range m.s.roster.All() {
		m.awaitReturn(p)
	}
}

// Count returns how many participants the session has.
func (m *Participants) Count() int {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.s.roster.Len()
}

// endsWithLast reports whether the use of the session ends when its last participant leaves. The caller holds the lock.
func (m *Participants) endsWithLast() bool {
	return m.s.loader.lifetime == bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
}

// Alone reports whether a participant is the only one, and if so, whether the use of the session
// ends when it leaves.
func (m *Participants) Alone(p *roster.Participant) (alone, ends bool) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	alone = m.s.roster.Len() == 1 && m.s.roster.Has(p)
	return alone, alone && m.endsWithLast()
}

// Handles reports whether the session is in use, and it or a participant answers a method.
func (m *Participants) Handles(method string) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.s.loader.usable() == nil && m.wantsMethod(method)
}

// proto returns the participants in the form of the API. The caller holds the lock.
func (m *Participants) proto() []*bridgev1.Participant {
	out := make([]*bridgev1.Participant, 0, m.s.roster.Len())
	for p := range m.s.roster.All() {
		names := make([]string, 0, len(p.Tools))
		for _, t := range p.Tools {
			names = append(names, t.Name)
		}
		commands := make([]string, 0, len(p.Commands))
		for _, c := range p.Commands {
			commands = append(commands, c.Name)
		}
		out = append(out, &bridgev1.Participant{
			ParticipantId: p.ID, Name: p.Name, Tools: names, Connected: p.Connected,
			Commands: commands, Canvases: p.CanvasIDs(),
		})
	}
	return out
}
