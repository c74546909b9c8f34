package outbox

import (
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
		b.st.Lost = append(b.st.Lost, lost{id, note.Reason, note.Text})
	}
	if extra := len(b.st.Lost) - maxRemembered; extra > 0 {
		b.st.Lost = slices.Delete(b.st.Lost, 0, extra)
	}
	b.note(note)
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
