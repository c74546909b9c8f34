package outbox

import (
	"errors"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Moved records in memory that messages were sent to the CLI again and have new ids.
func (b *Outbox) Moved(note Note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.st.Moved == nil {
		b.st.Moved = map[string]string{}
	}
	for _, id := range note.IDs {
		if len(note.As) == 0 {
			break
		}
		if _, ok := b.st.Moved[id]; !ok {
			b.order = append(b.order, id)
		}
		b.st.Moved[id] = note.As[len(note.As)-1]
	}
	for len(b.order) > maxRemembered {
		delete(b.st.Moved, b.order[0])
		b.order = b.order[1:]
	}
	b.note(note)
}

// Lose records in memory that a prompt is not part of the conversation, with the note for readers.
func (b *Outbox) Lose(n uint64, note Note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.st.find(n); e != nil {
		b.finish(e)
	}
	for _, id := range note.IDs {
		b.lose(lost{id, note.Reason, note.Text})
	}
	b.note(note)
}

// Forget records in memory that a message is not part of the conversation, of which readers are told later, if at all: the
// journal has it, and the next owner of the session must not give it back to the CLI.
func (b *Outbox) Forget(id, reason, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose(lost{id, reason, text})
	b.changed = true
}

// Confirm stores the outbox also if nothing has changed. It returns backend.ErrStale if the session has another owner.
func (b *Outbox) Confirm() error {
	b.mu.Lock()
	b.changed = true
	b.mu.Unlock()
	return b.Flush()
}

// lose remembers a lost message. The caller holds mu.
func (b *Outbox) lose(message lost) {
	if message.ID == "" || slices.ContainsFunc(b.st.Lost, func(l lost) bool { return l.ID == message.ID }) {
		return
	}
	b.st.Lost = append(b.st.Lost, message)
	if extra := len(b.st.Lost) - maxRemembered; extra > 0 {
		b.st.Lost = slices.Delete(b.st.Lost, 0, extra)
	}
}

func (b *Outbox) note(note Note) {
	b.changed = true
	b.st.Notes = append(b.st.Notes, note)
	if extra := len(b.st.Notes) - maxNotes; extra > 0 {
		b.st.Notes = slices.Delete(b.st.Notes, 0, extra)
	}
}

// Continuations returns the notes of messages that told the agent to continue an interrupted turn, oldest first.
func (b *Outbox) Continuations() (notes []Note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.st.Notes {
		if n.Continues > 0 && len(n.IDs) == 0 && len(n.As) > 0 {
			notes = append(notes, n)
		}
	}
	return notes
}

// LostBecause returns why the message of an id is not part of the conversation; ok is false
// if nothing of the kind is known.
func (b *Outbox) LostBecause(id string) (text string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.st.Lost {
		if l.ID == id && id != "" {
			return l.Text, true
		}
	}
	return "", false
}

// LostMessages returns a function that reports whether a message is known not to be part of the conversation, by what a disk
// has now. Of a damaged outbox nothing is known.
func LostMessages(disk Disk) (lost func(messageID string) bool, err error) {
	b, err := Open(disk)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	return func(id string) bool {
		_, lost := b.LostBecause(id)
		return lost
	}, nil
}

// MovedTo returns the new id of a message that was sent to the CLI again, or "".
func (b *Outbox) MovedTo(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.st.Moved[id]
}

// Renumber gives the notes other positions, in order.
func (b *Outbox) Renumber(post func(Note) journal.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.st.Notes {
		if at := post(b.st.Notes[i]); at != b.st.Notes[i].At {
			b.st.Notes[i].At, b.changed = at, true
		}
	}
}
