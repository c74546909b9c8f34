package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// ErrUnstored reports that a delivery of a prompt cannot be stored. The prompt is still owed.
var ErrUnstored = errors.New("the delivery of a prompt is not stored")

// Owes reports whether a prompt must be sent to the CLI again.
func (b *Outbox) Owes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.st.owed() != nil
}

// owed returns the first entry that must be sent again.
func (s *state) owed() *Entry {
	for _, e := range s.Entries {
		if e.Owed && !e.finished {
			return e
		}
	}
	return nil
}

// BeginRedelivery begins another delivery of the first prompt that is owed: from now on it is as one
// that the CLI has not answered. The caller gives it to the CLI. If the session has another owner, BeginRedelivery returns
// SESSION_UNAVAILABLE. If the disk fails, a process that crashes may deliver the prompt a second time. With shared,
// another process may continue the session without a crash: BeginRedelivery then returns ErrUnstored, and delivers nothing.
func (b *Outbox) BeginRedelivery(before journal.Position, now time.Time, shared bool) (e Entry, ok bool, err error) {
	b.mu.Lock()
	next := b.st.owed()
	if next == nil {
		b.mu.Unlock()
		return Entry{}, false, nil
	}
	e = *next
	b.mu.Unlock()
	params := e.prompt.Params
	if params == nil {
		p, err := b.readPrompt(e.N) // without the lock: a disk may hang
		if err != nil {
			return e, true, fault.Wrap(err, fault.Internal, "reading the message from disk")
		}
		params = p.Params
	}
	b.mu.Lock()
	if next = b.st.find(e.N); next == nil || !next.Owed {
		b.mu.Unlock()
		return Entry{}, false, nil
	}
	was := *next
	next.Owed, b.changed = false, true
	next.Was, next.IDs = append(next.Was, next.IDs...), nil
	next.Before, next.GivenAt, next.AnsweredAt = before, now, journal.Position{}
	next.Deliveries++
	e = *next
	b.mu.Unlock()
	if err := b.Flush(); errors.Is(err, backend.ErrStale) {
		return e, true, moved(err)
	} else if err != nil && shared {
		b.undo(was)
		return Entry{}, false, fmt.Errorf("%w: %w", ErrUnstored, err)
	}
	e.prompt.Params = params
	e.prompt.Params = rest(e.prompt, e.Done)
	return e, true, nil
}

// undo takes a delivery back that has not begun.
func (b *Outbox) undo(was Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(was.N); e != nil && !e.finished {
		e.Owed, e.Was, e.IDs, e.Deliveries, b.changed = true, was.Was, was.IDs, was.Deliveries, true
		e.Before, e.GivenAt, e.AnsweredAt = was.Before, was.GivenAt, was.AnsweredAt
	}
}

// Owe records in memory that a prompt must be sent to the CLI again, without the first done of its messages.
func (b *Outbox) Owe(n uint64, done int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(n); e != nil && !e.finished {
		e.Owed, e.Done, b.changed = true, done, true
	}
}
