package session

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// turnOver tells the end of a turn. One that no event tells must not be missed by who comes
// back. The caller holds mu.
func (s *Session) turnOver(out Outcome) {
	s.measured(out)
	s.marks.turnEnd = out.End
	if s.host != nil {
		s.host.Keep(s)
	}
	silent := out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST || out.Status == bridgev1.TurnStatus_TURN_STATUS_STALLED
	if silent {
		s.marks.interruptedAt = s.journal.Post(TurnOver{Outcome: out}, journal.Position{})
		return
	}
	s.journal.Note(TurnOver{Outcome: out})
}

// cutOff looks whether a turn ran when an earlier life of the bridge ended, by what that
// left in the journal. Nobody was there to be told of the turn's end: those who come back
// are, once, by what it returns; nil if none ran. The caller holds mu.
func (s *Session) cutOff() (tell func()) {
	if s.state != Unloaded {
		return nil
	}
	epoch := s.journal.Last().Epoch
	begun, running := history.LeftRunning(s.journal.Recovered, func(seq uint64) (*journal.Record, bool) {
		return s.journal.Get(journal.Position{Epoch: epoch, Seq: seq})
	})
	if !running {
		return nil
	}
	ended := s.marks.turnEnd.Epoch == epoch && s.marks.turnEnd.Seq >= begun
	again := s.marks.interruptedAt.Epoch == epoch && (s.marks.interruptedAt.Seq > begun || ended)
	if !again && ended {
		return nil // that life told its end itself
	}
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.marks.interruptedAt}
	if !again {
		s.marks.interruptedAt, out.End = journal.Position{}, s.journal.Last()
	}
	return func() {
		s.marks.interruptedAt = s.journal.Post(TurnOver{Outcome: out}, s.marks.interruptedAt)
		s.marks.turnEnd = s.marks.interruptedAt
		s.host.Keep(s)
	}
}
