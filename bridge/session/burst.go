package session

import (
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
)

// LeftOutOfOrder is what the log says when events of a burst were handed on before others that
// the CLI emitted earlier. The next LeftEvents events may be out of order, too: so many may have
// to come before a burst is recognised again.
const (
	LeftOutOfOrder = "burst left out of order"
	LeftEvents     = 2 * reorder.BurstEvents
)

// burst is the reorder buffer of a session with the timer of what it holds back. The session's
// mu guards it.
type burst struct {
	buffer *reorder.Buffer
	timer  *time.Timer // runs while events are held back
	armed  bool
	// overdue is called by the timer.
	overdue func()
}

// arm starts or stops the timer, by whether events are held back.
func (b *burst) arm() {
	held := b.buffer.Held() > 0
	switch {
	case held == b.armed:
		return
	case !held:
		b.timer.Stop()
	case b.timer == nil:
		b.timer = time.AfterFunc(reorder.Patience, b.overdue)
	default:
		b.timer.Reset(reorder.Patience)
	}
	b.armed = held
}

// end hands on all that is held back, forgets the burst and stops the timer: no more events
// come.
func (b *burst) end() {
	b.buffer.Flush(time.Now())
	b.buffer.Reset()
	b.arm()
}

// inOrder applies an event that came at now, or keeps it until its turn has come. The caller
// holds mu.
func (s *Session) inOrder(rec *journal.Record, now time.Time) {
	if reason := s.burst.buffer.Push(rec, now); reason != reorder.None {
		after := s.journal.Last()
		s.burst.buffer.Flush(now)
		s.leftOutOfOrder(reason, after)
	}
	s.burst.arm()
}

// burstOverdue hands on what has been held back for too long. The timer calls it.
func (s *Session) burstOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := s.journal.Last()
	left, overdue := s.burst.buffer.Overdue(time.Now())
	if overdue {
		s.leftOutOfOrder(reorder.Pause, after)
	}
	if left > 0 {
		s.burst.timer.Reset(left)
	}
	s.burst.arm()
}

// leftOutOfOrder logs that events after a position were handed on though something of the burst
// may be missing before them: readers may get that late. The caller holds mu.
func (s *Session) leftOutOfOrder(reason reorder.Reason, after journal.Position) {
	through := s.journal.Last()
	s.host.Logger().Warn(LeftOutOfOrder, "session_id", s.id, "reason", string(reason), "epoch", through.Epoch,
		"after_seq", after.Seq, "through_seq", through.Seq)
}
