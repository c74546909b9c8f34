package session

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// turnOver tells the end of a turn. One that no event tells must not be missed by who comes
// back. The caller holds mu.
func (s *Session) turnOver(out turn.Outcome) {
	s.measured(out)
	s.intake.Marks.TurnEnd = out.End
	if s.host != nil {
		s.host.Keep(s)
	}
	silent := out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST || out.Status == bridgev1.TurnStatus_TURN_STATUS_STALLED
	if silent {
		s.intake.Marks.InterruptedAt = s.journal.Post(prompts.TurnOver{Outcome: out}, journal.Position{})
		return
	}
	s.journal.Note(prompts.TurnOver{Outcome: out})
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
	ended := s.intake.Marks.TurnEnd.Epoch == epoch && s.intake.Marks.TurnEnd.Seq >= begun
	again := s.intake.Marks.InterruptedAt.Epoch == epoch && (s.intake.Marks.InterruptedAt.Seq > begun || ended)
	if !again && ended {
		return nil // that life told its end itself
	}
	out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.intake.Marks.InterruptedAt}
	if !again {
		s.intake.Marks.InterruptedAt, out.End = journal.Position{}, s.journal.Last()
	}
	return func() {
		s.intake.Marks.InterruptedAt = s.journal.Post(prompts.TurnOver{Outcome: out}, s.intake.Marks.InterruptedAt)
		s.intake.Marks.TurnEnd = s.intake.Marks.InterruptedAt
		s.host.Keep(s)
	}
}
