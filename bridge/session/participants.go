package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Participant is a caller that is attached to the session. Its fields but ID and Token
// are guarded by the session's mu.
type Participant struct {
	ID    string
	Token string

	name     string
	tools    []Tool
	commands []Command
	handling Handling
	// own is what the CLI binds to a connection, as members of the configuration; satellite
	// is that connection.
	own       jsonobj.Object
	satellite Satellite
	grace     time.Duration
	connected bool
	left      bool
	identity  string // of the caller
	hash      string // of the token, of a participant of an earlier life of the bridge
	timer     *time.Timer
	// replace ends the stream that has the place now.
	replace context.CancelCauseFunc
	// asked, if set, is told of each request that is put to the participant.
	asked func()
}

// Joining is what a caller brings.
type Joining struct {
	Name  string
	Token string
	// Identity is the caller's, as far as it is known.
	Identity string
	// Reclaim says that the caller did not bring the token: the bridge remembers it from a
	// request with the same id. The place is given back to the same caller alone.
	Reclaim  bool
	Tools    []Tool
	Commands []Command
	Handling Handling
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

// ErrReplaced is the cause with which a stream ends whose place another took.
var ErrReplaced = fault.New(fault.ParticipantReplaced, "another stream took this participant's place")

// add puts a participant in place, or back in its old one. Tools and switches reach the
// CLI with Sync. The caller holds mu.
func (s *Session) add(j Joining) (p *Participant, returned bool, err error) {
	if j.Token != "" {
		hash := hashToken(j.Token)
		i := slices.IndexFunc(s.participants, func(p *Participant) bool {
			return subtle.ConstantTimeCompare([]byte(p.tokenHash()), []byte(hash)) == 1
		})
		if i < 0 || j.Reclaim && s.participants[i].identity != j.Identity {
			return nil, false, fault.New(fault.ParticipantNotFound, "no participant has this token; its grace time may be over").WithField("token")
		}
		p, returned = s.participants[i], true
		p.Token = j.Token
	}
	if err := s.checkClash(j.Tools, p, "tools"); err != nil {
		return nil, false, err
	}
	if err := s.checkCommands(j.Commands, p, "commands"); err != nil {
		return nil, false, err
	}
	if p == nil {
		p = &Participant{ID: "p-" + rand.Text()[:12], Token: rand.Text()}
		s.participants = append(s.participants, p)
	} else if p.replace != nil && p.connected {
		p.replace(ErrReplaced)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if sat := p.satellite; sat != nil && string(p.own.JSON()) != string(j.Own.JSON()) {
		p.satellite = nil // canvases cannot be taken back on the same connection
		s.host.Go(func(context.Context) { sat.Close() })
	}
	p.commands, p.own, p.identity = j.Commands, j.Own, j.Identity
	p.name, p.tools, p.handling, p.grace, p.replace, p.connected = j.Name, j.Tools, j.Handling, j.Grace, j.Replace, true
	s.offerTo(p)
	p.asked = j.Asked
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
	for _, pending := range s.pending.List() {
		if to, _ := s.handlers(pending); slices.Contains(to, p.ID) && !slices.Contains(s.pending.Offered(pending), p.ID) {
			s.pending.Offer(pending.ID, p.ID)
			s.journal.Note(Requested{pending})
		}
	}
}

// Change replaces a participant's tools or handlers; nil leaves them.
func (s *Session) Change(ctx context.Context, p *Participant, tools *[]Tool, handling *Handling) error {
	s.mu.Lock()
	if tools != nil {
		if err := s.checkClash(*tools, p, "command.set_tools.tools"); err != nil {
			s.mu.Unlock()
			return err
		}
		p.tools = *tools
	}
	if handling != nil {
		p.handling = *handling
	}
	s.host.Keep(s)
	s.offerTo(p)
	s.mu.Unlock()
	s.orphans(ctx)
	return s.Sync(ctx)
}

// Lost notes that a participant's connection broke: its place is kept for its grace.
func (s *Session) Lost(p *Participant, cause error) {
	s.mu.Lock()
	replaced := cause == ErrReplaced || p.left
	if !replaced {
		p.connected = false
		if p.grace > 0 {
			p.timer = time.AfterFunc(p.grace, func() { s.graceOver(p) })
		}
	}
	grace := p.grace
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
	s.leave(p, func() bool { return !p.connected })
}

// Leave takes a participant out, its tools included. It returns at once; the CLI is told
// in the background, in order with other changes.
func (s *Session) Leave(p *Participant) {
	s.leave(p, func() bool { return true })
}

// leave is Leave if that is still right, which is asked with mu held.
func (s *Session) leave(p *Participant, right func() bool) {
	s.mu.Lock()
	i := slices.Index(s.participants, p)
	if i < 0 || !right() {
		s.mu.Unlock()
		return
	}
	s.participants = slices.Delete(s.participants, i, i+1)
	p.left, p.connected = true, false
	s.host.Keep(s)
	if p.timer != nil {
		p.timer.Stop()
	}
	sat := p.takeSatellite()
	last := len(s.participants) == 0 && s.lifetime == bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
	s.mu.Unlock()
	s.host.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		s.orphans(ctx)
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
	tools, switches := config.ToolsJSON(s.union()), s.switches()
	told := s.toldTools
	toldSwitches := s.toldSwitches
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
	s.toldTools = tools
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
		s.interests[eventType] = true
		s.mu.Unlock()
	}
	return nil
}

// warmResume gives the CLI the whole effective configuration, with changes, for a
// session that it has loaded. It leaves no event.
func (s *Session) warmResume(ctx context.Context, rt Runtime, change func(*jsonobj.Object)) error {
	if err := s.passage.close(ctx); err != nil {
		return err
	}
	defer s.passage.open()
	s.mu.Lock()
	params := s.effective()
	tools, switches := config.ToolsJSON(s.union()), s.switches()
	// A token that the CLI has is kept without being given. Given it again, 1.0.81 asks GitHub
	// anew whose it is, and a turn that begins meanwhile goes to another address than theirs.
	if token := params.Get(gitHubToken); token != nil && string(token) == string(s.toldToken) {
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
	s.noteTold(tools, switches, result, at)
	return nil
}

// noteTold notes what the CLI has been told and what it answered, and where.
func (s *Session) noteTold(tools json.RawMessage, switches string, result json.RawMessage, at journal.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toldTools, s.toldSwitches, s.loadedOnce = tools, switches, true
	s.toldToken = s.config.Object.Get(gitHubToken)
	s.opened, s.openedAt = result, at
	s.learn(result)
}

// Participants returns the participants as the API shows them.
func (s *Session) participantList() []*bridgev1.Participant {
	out := make([]*bridgev1.Participant, 0, len(s.participants))
	for _, p := range s.participants {
		names := make([]string, 0, len(p.tools))
		for _, t := range p.tools {
			names = append(names, t.Name)
		}
		commands := make([]string, 0, len(p.commands))
		for _, c := range p.commands {
			commands = append(commands, c.Name)
		}
		out = append(out, &bridgev1.Participant{
			ParticipantId: p.ID, Name: p.name, Tools: names, Connected: p.connected,
			Commands: commands, Canvases: canvasIDs(p.own),
		})
	}
	return out
}
