package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Participant is a caller that is attached to the session. Its fields but ID and Token are
// guarded by the session's mu.
type Participant = roster.Participant

// ErrReplaced is the cause with which a stream ends whose place another took.
var ErrReplaced = roster.ErrReplaced

// Joining is what a caller brings.
type Joining struct {
	Name  string
	Token string
	// Identity is the caller's, as far as it is known.
	Identity string
	// Reclaim says that the caller did not bring the token: the bridge remembers it from a
	// request with the same id. The place is given back to the same caller alone.
	Reclaim  bool
	Tools    []config.Tool
	Commands []config.Command
	Handling config.Handling
	// Own is what it declares that the CLI binds to a connection: its canvases and its
	// identity as an extension, as members of the configuration.
	Own   jsonobj.Object
	Grace time.Duration
	// Exact says that it wants the CLI's own behaviour, where ours is stricter.
	Exact bool
	// Replace is called when another stream takes the place.
	Replace context.CancelCauseFunc
	// InPlace, if set, is called as soon as the participant is in place, before the CLI is
	// told of anything. It must not call the session.
	InPlace func(*Session, Joined)
	// Asked, if set, is called when the CLI puts a request to the participant. It must
	// not block.
	Asked func()
}

// Exactly reports whether j is of a caller that wants the CLI's own behaviour. j may be nil.
func (j *Joining) Exactly() bool { return j != nil && j.Exact }

// add puts a participant in place, or back in its old one. Tools and switches reach the
// CLI with Sync. The caller holds mu.
func (s *Session) add(j Joining) (p *Participant, returned bool, err error) {
	p, displaced, err := s.roster.Place(roster.Brings{
		Name: j.Name, Tools: j.Tools, Commands: j.Commands, Handling: j.Handling, Own: j.Own, Grace: j.Grace,
		Identity: j.Identity, Replace: j.Replace, Asked: j.Asked,
	}, j.Token, j.Reclaim, &s.config)
	if err != nil {
		return nil, false, err
	}
	if displaced != nil {
		s.host.Go(func(context.Context) { displaced.Close() })
	}
	returned = j.Token != ""
	s.offerTo(p)
	if j.InPlace != nil {
		j.InPlace(s, Joined{p, returned})
	}
	s.host.Keep(s)
	return p, returned, nil
}

// Join makes a caller a participant of a session that is open.
func (s *Session) Join(ctx context.Context, j Joining) (*Participant, bool, error) {
	s.mu.Lock()
	if err := s.usable(); err != nil {
		s.mu.Unlock()
		return nil, false, err
	}
	p, returned, err := s.add(j)
	s.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	if err := s.Sync(ctx); err != nil {
		if returned { // it may try again, such as when it has given back what is lacking
			s.Lost(p, err)
		} else {
			s.Leave(p)
		}
		return nil, false, err
	}
	return p, returned, nil
}

// offerTo offers what is pending to a participant that handles it. The caller holds mu.
func (s *Session) offerTo(p *Participant) {
	for _, pending := range s.callbacks.Registry().List() {
		if to, _ := s.roster.Handlers(pending, &s.config); slices.Contains(to, p.ID) && !slices.Contains(s.callbacks.Registry().Offered(pending), p.ID) {
			s.callbacks.Registry().Offer(pending.ID, p.ID)
			s.journal.Note(callbacks.Requested{Pending: pending})
		}
	}
}

// Change replaces a participant's tools or handlers; nil leaves them.
func (s *Session) Change(ctx context.Context, p *Participant, tools *[]config.Tool, handling *config.Handling) error {
	s.mu.Lock()
	if tools != nil {
		if err := s.roster.CheckTools(*tools, s.config.Tools, p, "command.set_tools.tools"); err != nil {
			s.mu.Unlock()
			return err
		}
		p.Tools = *tools
	}
	if handling != nil {
		p.Handling = *handling
	}
	s.host.Keep(s)
	s.offerTo(p)
	s.mu.Unlock()
	s.callbacks.Orphans(ctx)
	return s.Sync(ctx)
}

// Lost notes that a participant's connection broke: its place is kept for its grace.
func (s *Session) Lost(p *Participant, cause error) {
	s.mu.Lock()
	replaced := cause == ErrReplaced || p.Left
	if !replaced {
		p.Connected = false
		if p.Grace > 0 {
			p.Timer = time.AfterFunc(p.Grace, func() { s.graceOver(p) })
		}
	}
	grace := p.Grace
	s.mu.Unlock()
	// Parts of a response may be lost with the connection.
	s.host.Go(func(context.Context) {
		s.models.FailOf(p.ID, modelproxy.StatusBroken, "the connection of the participant that was answering broke")
	})
	if !replaced && grace <= 0 {
		s.Leave(p)
	}
}

func (s *Session) graceOver(p *Participant) {
	s.leave(p, func() bool { return !p.Connected })
}

// Leave takes a participant out, its tools included. It returns at once; the CLI is told
// in the background, in order with other changes.
func (s *Session) Leave(p *Participant) {
	s.leave(p, func() bool { return true })
}

// leave is Leave if that is still right, which is asked with mu held.
func (s *Session) leave(p *Participant, right func() bool) {
	s.mu.Lock()
	if !s.roster.Has(p) || !right() {
		s.mu.Unlock()
		return
	}
	s.roster.Remove(p)
	s.host.Keep(s)
	sat := p.TakeSatellite()
	last := s.roster.Len() == 0 && s.lifetime == bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
	s.mu.Unlock()
	s.host.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callbacks.AnswerTimeout)
		defer cancel()
		s.callbacks.Orphans(ctx)
		s.models.FailOf(p.ID, modelproxy.StatusRefused, "the participant that was answering has left")
		if sat != nil {
			sat.Close()
		}
		var err error
		if last {
			_, err = s.Disconnect(ctx, false)
		} else if s.State() == Loaded {
			err = s.Sync(ctx)
		}
		if err != nil {
			s.host.Logger().Warn("participant's leaving not told to the CLI", "session_id", s.id, "error", err)
		}
	})
}

// Sync brings the CLI's tools and switches in step with the participants'.
func (s *Session) Sync(ctx context.Context) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	rt, err := s.loaded(ctx)
	if err != nil {
		return err
	}
	return s.sync(ctx, rt)
}

// toolsTimeout bounds the CLI's answer to a change of the tools: whatever else changes the session
// waits behind it.
const toolsTimeout = time.Minute

// sync is Sync with the gate held. Tools alone are set as such, which does not disturb a
// running turn; a changed switch takes a warm resume with everything.
func (s *Session) sync(ctx context.Context, rt Runtime) error {
	if err := s.attend(ctx, rt); err != nil {
		return err
	}
	s.mu.Lock()
	tools, switches := config.ToolsJSON(s.roster.Tools(s.config.Tools)), s.switches()
	told := s.synced.tools
	toldSwitches := s.synced.switches
	s.mu.Unlock()
	if switches != toldSwitches {
		return s.warmResume(ctx, rt, nil)
	}
	if string(tools) == string(told) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	if _, _, err := s.call(limited, rt, "session.tools.set", jsonobj.Object{{Key: "tools", Value: tools}}); err != nil {
		return err
	}
	s.mu.Lock()
	s.synced.tools = tools
	s.mu.Unlock()
	return nil
}

// attend has everything in place that is apart from the session's configuration: what is
// registered, and the connections of participants.
func (s *Session) attend(ctx context.Context, rt Runtime) error {
	if err := s.registerInterests(ctx, rt); err != nil {
		return err
	}
	return s.syncSatellites(ctx, rt)
}

// registerInterests tells the CLI of the events that it only sends on request.
func (s *Session) registerInterests(ctx context.Context, rt Runtime) error {
	s.mu.Lock()
	types := s.interesting(callback.Interests())
	s.mu.Unlock()
	for _, eventType := range types {
		var params jsonobj.Object
		params.SetString("eventType", eventType)
		if _, _, err := s.call(ctx, rt, "session.eventLog.registerInterest", params); err != nil {
			return err
		}
		s.mu.Lock()
		s.synced.interests[eventType] = true
		s.mu.Unlock()
	}
	return nil
}

// warmResume gives the CLI the whole effective configuration, with changes, for a
// session that it has loaded. It leaves no event.
func (s *Session) warmResume(ctx context.Context, rt callee, change func(*jsonobj.Object)) error {
	if err := s.passage.close(ctx); err != nil {
		return err
	}
	defer s.passage.open()
	s.mu.Lock()
	params := s.effective()
	tools, switches := config.ToolsJSON(s.roster.Tools(s.config.Tools)), s.switches()
	// A token that the CLI has is kept without being given. Given it again, 1.0.81 asks GitHub
	// anew whose it is, and a turn that begins meanwhile goes to another address than theirs.
	if token := params.Get(gitHubToken); token != nil && string(token) == string(s.synced.token) {
		params.Set(gitHubToken, nil)
	}
	s.mu.Unlock()
	params.SetBool("disableResume", true)
	if change != nil {
		change(&params)
	}
	result, at, err := s.call(ctx, rt, "session.resume", params)
	if err != nil {
		return err
	}
	s.recordSynced(tools, switches, result, at)
	return nil
}

// recordSynced notes what the CLI has been told and what it answered, and where.
func (s *Session) recordSynced(tools json.RawMessage, switches string, result json.RawMessage, at journal.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced.tools, s.synced.switches, s.synced.toolsKnown = tools, switches, true
	s.synced.token = s.config.Object.Get(gitHubToken)
	s.synced.result, s.synced.at = result, at
	s.intake.Info.ApplyResult(result, s.config.Object)
}

// participantList are the participants as the API shows them. The caller holds mu.
func (s *Session) participantList() []*bridgev1.Participant {
	out := make([]*bridgev1.Participant, 0, s.roster.Len())
	for p := range s.roster.All() {
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

// Company returns how many participants the session has.
func (s *Session) Company() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roster.Len()
}
