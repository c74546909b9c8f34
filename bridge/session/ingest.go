package session

import (
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxHeld bounds the events kept back while history is being read; past it they are
// taken as they come, and history that comes after them is only for what is missing.
const maxHeld = 10_000

// Ingest takes an event of the session, in the order in which the CLI sent it, and puts
// right what that got wrong. It runs on the
// goroutine that reads the runtime's connection and never blocks. The record is taken
// over.
func (s *Session) Ingest(rec *journal.Record) { s.IngestAt(rec, time.Now()) }

// IngestAt is Ingest for an event of which it is known when it came: those that come in one
// piece share a look at the clock.
func (s *Session) IngestAt(rec *journal.Record, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivedAt = now
	defer func() { s.receivedAt = time.Time{} }()
	rec.Bridge = s.internal
	if s.history.reading {
		s.history.held = append(s.history.held, rec)
		if len(s.history.held) >= maxHeld {
			s.releaseHeld()
		}
		return
	}
	s.inOrder(rec, now)
}

// releaseHeld ends holding. The caller holds mu.
func (s *Session) releaseHeld() {
	held := s.history.held
	s.history.held, s.history.reading = nil, false
	now := time.Now()
	for _, rec := range held {
		s.inOrder(rec, now) // a burst may go on while the session is loaded
	}
}

// apply puts an event into the journal and follows what it says. It reports whether the
// event is new. The caller holds mu.
func (s *Session) apply(rec *journal.Record) bool {
	if !s.enter(rec) {
		return false
	}
	if rec.Plain {
		return true
	}
	if k := callback.ForEvent(rec.Type); k != nil {
		s.callbacks.Requested(locked{s}, k, rec)
	} else if callback.Ends(rec.Type) {
		s.callbacks.Completed(rec)
		s.approved(config.ApprovalsIn(rec))
	}
	return true
}

// enter is apply without the callbacks, and reports whether the event is new. The caller
// holds mu.
func (s *Session) enter(rec *journal.Record) bool {
	if !s.journal.Append(rec) {
		return false
	}
	at := s.receivedAt
	if at.IsZero() { // it was kept back
		at = time.Now()
	}
	if effects := s.turn.Apply(rec, at); effects != nil {
		s.carryOut(effects)
	}
	if rec.Agent == "" {
		s.observe(rec)
	}
	return true
}

// observe follows the events of the session's own agent. The caller holds mu.
func (s *Session) observe(rec *journal.Record) {
	switch rec.Type {
	case "session.start", "session.resume":
		var d struct {
			StartTime     time.Time    `json:"startTime"`
			SelectedModel string       `json:"selectedModel"`
			Context       *contextInfo `json:"context"`
		}
		if event.Data(rec, &d) {
			if !d.StartTime.IsZero() {
				s.meta.start = d.StartTime
			}
			if d.SelectedModel != "" {
				s.meta.model = d.SelectedModel
			}
			if d.Context != nil {
				s.meta.context = *d.Context
			}
		}
	case "session.title_changed":
		var d struct{ Title string }
		if event.Data(rec, &d) && d.Title != s.meta.summary {
			s.meta.summary = d.Title
			s.host.Keep(s)
			s.host.Changed(s, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
		}
	case "session.model_change":
		var d struct{ NewModel string }
		if event.Data(rec, &d) && d.NewModel != "" {
			s.meta.model = d.NewModel
			s.host.Keep(s)
		}
	case "session.context_changed":
		var d contextInfo
		if event.Data(rec, &d) && d.Cwd != "" {
			s.meta.context = d
		}
	case "capabilities.changed":
		event.Data(rec, &s.meta.capabilities)
	case "user.message":
		s.marks.hasHistory = true
		s.host.Keep(s)
		s.meta.modified = time.Now()
	case "session.idle":
		s.meta.modified = time.Now()
		s.marks.completedTurn = true
		s.host.Keep(s)
		s.journal.TurnEnded()
	}
}
