// Package participants manages the participants of one session. Participants join, change, lose their
// connections and leave; the package sends the resulting tools, switches, events and commands to the runtime
// that has the session loaded, and remembers what it has sent. It also owns the satellites: connections to the
// runtime for single participants.
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
// # ResumeLock
//
// In CLI 1.0.102 a warm resume waits for calls in progress, and later calls wait for the resume. A call that waits for
// an answer would therefore never end. ResumeLock lets callers' calls and warm resumes exclude each other; answers do
// not take it.
//
// # Locks
//
// The session's lock guards the roster and the fields of a Manager that change. A method says when its caller
// holds the lock; all other methods take it. Calls to the CLI run under the session's lifecycle lock, which
// comes before the session's lock. ResumeLock has its own lock, which is never held together with another.
//
// A Manager starts goroutines only by Config.Go, one for each departure and for each satellite to close. The
// timer of a participant's grace time stops when the participant resumes or leaves.
package participants

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Asker serves a request of the CLI that came on a satellite; id is unique to it.
type Asker func(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error)

// Callee is a CLI process, for calls about the session.
type Callee interface {
	// Call makes a JSON-RPC call.
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
	// Version is the CLI's version.
	Version() string
}

// Runtime is a CLI process that has the session loaded.
type Runtime interface {
	Callee
	// Satellite opens a connection beside the one that Call uses, for a participant. The CLI's
	// requests there go to ask; its events there are dropped.
	Satellite(ctx context.Context, participant string, ask Asker) (roster.Satellite, error)
}

// Tx is the session while its lock is held.
type Tx interface {
	// Usable returns an error unless callers may use the session.
	Usable() error
	// Settings is the session's own configuration.
	Settings() *config.State
	// Watched is what callers handle who watch the callbacks of many sessions and are no participants.
	Watched() config.Handling
	// HeadersReplaced reports whether a turn runs whose headers replace the provider's.
	HeadersReplaced() bool
	// LoadedIn reports whether a runtime has the session.
	LoadedIn(rt Runtime) bool
	// EndsWithLast reports whether the use of the session ends when its last participant leaves.
	EndsWithLast() bool
	// Opened takes over the CLI's answer to a create or resume.
	Opened(result json.RawMessage)
	// MarkDirty schedules a save of the session.
	MarkDirty()
}

// Config is what a Manager needs of its session.
type Config struct {
	// Session is the session's id.
	Session string
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock      sync.Locker
	Tx        Tx
	Roster    *roster.Roster
	Journal   *journal.Journal
	Callbacks *callbacks.Desk
	Models    *modelproxy.Proxy
	// Configure calls f with the runtime that has the session, loading it if need be, while
	// nothing else changes the session in the runtime.
	Configure func(ctx context.Context, f func(rt Runtime) error) error
	// Call makes a JSON-RPC call about the session, and returns the journal's position when the
	// reply was read.
	Call func(ctx context.Context, rt Callee, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error)
	// Loaded reports whether a runtime has the session.
	Loaded func() bool
	// Disconnect ends the use of the session unless it has participants.
	Disconnect func(ctx context.Context) error
	// BuiltIns returns the names of the CLI's own tools and commands; nil if they are not known.
	BuiltIns func(ctx context.Context) *config.BuiltIns
	// Classify turns an error of a call, or of an ended context, into the API's.
	Classify func(err error, method string) error
	// Go runs f on a goroutine that ends with the bridge.
	Go     func(f func(ctx context.Context)) bool
	Logger func() *slog.Logger
}

// Manager has the participants of a session. New makes one.
type Manager struct {
	cfg     Config
	resumes ResumeLock
	// switchNames is constant.
	switchNames []string
	told        told
}

// New returns a manager without participants.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, switchNames: callback.Switches(), told: told{interests: map[string]bool{}}}
	slices.Sort(m.switchNames)
	return m
}

// Add puts a participant in place, or back in its old one. The CLI learns of its tools and switches
// by Sync. The caller holds the lock.
func (m *Manager) Add(j Joining) (Joined, error) {
	before := m.cfg.Roster.BroughtBy(j.Token)
	p, displaced, err := m.cfg.Roster.Place(j.Brings, j.Token, j.Reclaim, m.cfg.Tx.Settings())
	if err != nil {
		return Joined{}, err
	}
	if displaced != nil {
		m.cfg.Go(func(context.Context) { displaced.Close() })
	}
	joined := Joined{Participant: p, Returned: j.Token != "", before: before, stream: p.Streams}
	m.offer(p)
	if j.OnPlaced != nil {
		j.OnPlaced(joined)
	}
	m.cfg.Tx.MarkDirty()
	return joined, nil
}

// CheckNames refuses tools and commands that have the names of the CLI's own. at is the path of the lists, with its
// dot, or empty.
func (m *Manager) CheckNames(ctx context.Context, tools []config.Tool, commands []config.Command, at string) error {
	if len(tools) == 0 && len(commands) == 0 {
		return nil
	}
	return m.cfg.BuiltIns(ctx).Check(tools, at+"tools", commands, at+"commands")
}

// Join makes a caller a participant of a session that is open.
func (m *Manager) Join(ctx context.Context, j Joining) (Joined, error) {
	joined, err := m.place(j)
	if err != nil {
		return Joined{}, err
	}
	if err := m.Sync(ctx); err != nil {
		m.Withdraw(joined)
		if joined.Returned { // it may try again, such as when it has given back what is lacking
			m.Lost(joined.Participant, err)
		}
		return Joined{}, err
	}
	return joined, nil
}

// Withdraw takes back what a participant brought whose opening of the session failed: the CLI would reject it at every
// later load and change too, those of other callers included. A participant that returned has what it had before; any
// other leaves.
func (m *Manager) Withdraw(joined Joined) {
	p := joined.Participant
	if !joined.Returned {
		m.Leave(p)
		return
	}
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	m.told.tools = nil // the CLI may have accepted a part: the next Sync sends the tools
	if p.Streams == joined.stream {
		p.Tools, p.Commands, p.Handling, p.Own = joined.before.Tools, joined.before.Commands, joined.before.Handling, joined.before.Own
		m.cfg.Tx.MarkDirty()
	}
}

// place is Add for a session that is open.
func (m *Manager) place(j Joining) (Joined, error) {
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	if err := m.cfg.Tx.Usable(); err != nil {
		return Joined{}, err
	}
	return m.Add(j)
}

// offer offers the pending callbacks to a participant that handles them. The caller holds the lock.
func (m *Manager) offer(p *roster.Participant) {
	pending := m.cfg.Callbacks.Registry()
	for _, one := range pending.List() {
		to, _ := m.cfg.Roster.Handlers(one, m.cfg.Tx.Settings())
		if slices.Contains(to, p.ID) && !slices.Contains(pending.Offered(one), p.ID) {
			pending.Offer(one.ID, p.ID)
			m.cfg.Journal.Note(callbacks.Requested{Pending: one})
		}
	}
}

// Change replaces a participant's tools or handlers; nil leaves them. It undoes a change that fails: the CLI would
// reject it at every later load too.
func (m *Manager) Change(ctx context.Context, p *roster.Participant, tools *[]config.Tool, handling *config.Handling) error {
	undo, err := m.change(p, tools, handling)
	if err != nil {
		return err
	}
	m.cfg.Callbacks.Orphans(ctx)
	if err := m.Sync(ctx); err != nil {
		undo()
		return err
	}
	return nil
}

// change is Change without the CLI. undo does nothing if another stream has resumed the participant.
func (m *Manager) change(
	p *roster.Participant, tools *[]config.Tool, handling *config.Handling,
) (undo func(), err error) {
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	toolsBefore, handlingBefore, stream := p.Tools, p.Handling, p.Streams
	undo = func() {
		m.cfg.Lock.Lock()
		defer m.cfg.Lock.Unlock()
		m.told.tools = nil // the CLI may have accepted the change: the next Sync sends the tools
		if p.Streams == stream {
			p.Tools, p.Handling = toolsBefore, handlingBefore
			m.cfg.Tx.MarkDirty()
		}
	}
	if tools != nil {
		if err := m.cfg.Roster.CheckTools(*tools, m.cfg.Tx.Settings().Tools, p, "command.set_tools.tools"); err != nil {
			return nil, err
		}
		p.Tools = *tools
	}
	if handling != nil {
		p.Handling = *handling
	}
	m.cfg.Tx.MarkDirty()
	m.offer(p)
	return undo, nil
}

// Lost notes that a participant's connection broke: the participant may return within its grace
// time.
func (m *Manager) Lost(p *roster.Participant, cause error) {
	m.cfg.Lock.Lock()
	replaced := cause == roster.ErrReplaced || p.Left
	if !replaced {
		p.Connected = false
		if p.Grace > 0 {
			awaitReturn(m, p)
		}
	}
	grace := p.Grace
	m.cfg.Lock.Unlock()
	// Parts of a response may be lost with the connection.
	m.cfg.Go(func(context.Context) {
		m.cfg.Models.FailOf(p.ID, modelproxy.StatusBroken, "the connection of the participant that was answering broke")
	})
	if !replaced && grace <= 0 {
		m.Leave(p)
	}
}

// awaitReturn starts a participant's grace time. The caller holds the lock.
func awaitReturn(m *Manager, p *roster.Participant) {
	p.LostAt = time.Now()
	p.Timer = time.AfterFunc(p.Grace, func() { m.leave(p, func() bool { return !p.Connected }) })
}

// Leave removes a participant and its tools. It returns at once; the CLI learns of it in the background, in
// order with other changes.
func (m *Manager) Leave(p *roster.Participant) {
	m.leave(p, func() bool { return true })
}

// LeaveBy removes the participant with a token, and reports whether it was there. Its stream, if it has one, ends with
// the cause.
func (m *Manager) LeaveBy(token string, cause error) bool {
	m.cfg.Lock.Lock()
	p := m.cfg.Roster.ByToken(token)
	m.cfg.Lock.Unlock()
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
func (m *Manager) leave(p *roster.Participant, right func() bool) {
	m.cfg.Lock.Lock()
	if !m.cfg.Roster.Has(p) || !right() {
		m.cfg.Lock.Unlock()
		return
	}
	m.cfg.Roster.Remove(p)
	m.cfg.Tx.MarkDirty()
	sat := p.TakeSatellite()
	last := m.cfg.Roster.Len() == 0 && m.cfg.Tx.EndsWithLast()
	m.cfg.Lock.Unlock()
	m.cfg.Go(func(ctx context.Context) { m.left(ctx, p, sat, last) })
}

// left carries out what follows from a participant's departure.
func (m *Manager) left(ctx context.Context, p *roster.Participant, sat roster.Satellite, last bool) {
	ctx, cancel := context.WithTimeout(ctx, callbacks.AnswerTimeout)
	defer cancel()
	m.cfg.Callbacks.Orphans(ctx)
	m.cfg.Models.FailOf(p.ID, modelproxy.StatusRefused, "the participant that was answering has left")
	if sat != nil {
		sat.Close()
	}
	var err error
	if last {
		err = m.cfg.Disconnect(ctx)
	} else if m.cfg.Loaded() {
		err = m.Sync(ctx)
	}
	if err != nil {
		m.cfg.Logger().Warn("the CLI did not accept the end of a participant", "session_id", m.cfg.Session, "error", err)
	}
}

// Restore adds the participants that an earlier process of the bridge saved. Each has its grace time
// to return; one without grace had left when its stream broke. The caller holds the lock.
func (m *Manager) Restore(saved []roster.Saved) {
	m.cfg.Roster.Restore(saved)
	for p := range m.cfg.Roster.All() {
		awaitReturn(m, p)
	}
}

// Count returns how many participants the session has.
func (m *Manager) Count() int {
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	return m.cfg.Roster.Len()
}

// Alone reports whether a participant is the only one, and if so, whether the use of the session
// ends when it leaves.
func (m *Manager) Alone(p *roster.Participant) (alone, ends bool) {
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	alone = m.cfg.Roster.Len() == 1 && m.cfg.Roster.Has(p)
	return alone, alone && m.cfg.Tx.EndsWithLast()
}

// Resumes returns the lock that excludes warm resumes and callers' calls from each other.
func (m *Manager) Resumes() *ResumeLock { return &m.resumes }

// Handles reports whether the session is in use, and it or a participant answers a method.
func (m *Manager) Handles(method string) bool {
	m.cfg.Lock.Lock()
	defer m.cfg.Lock.Unlock()
	return m.cfg.Tx.Usable() == nil && m.WantsMethod(method)
}

// Proto returns the participants in the form of the API. The caller holds the lock.
func (m *Manager) Proto() []*bridgev1.Participant {
	out := make([]*bridgev1.Participant, 0, m.cfg.Roster.Len())
	for p := range m.cfg.Roster.All() {
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
