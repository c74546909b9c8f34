package sim

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// quiet reports whether a process has the session and neither it nor the bridge has anything to do. The caller holds the world's
// lock.
func (w *world) quiet() bool {
	c := w.cli
	return c != nil && c.loaded && c.phase == idle && !c.active() && !c.shut && !w.hangs && !w.failed && w.lives(w.life) &&
		len(c.requests)+len(c.replies)+len(c.questions)+len(c.commands) == 0 && !w.owner.lost && !w.owner.moved &&
		w.disconnecting == 0 && w.deletion.underway == 0
}

// checkQuiet: when all is quiet, no caller waits for the outcome of a message that the CLI has given one, the session shows no
// turn, and the outbox has no message. It is not the time that ends turns.
func (w *world) checkQuiet() {
	running, owes := w.s.Turns().Running(), w.s.Prompts().Outbox().Owes()
	entries := w.s.Prompts().Outbox().Entries()
	loaded := w.s.Loader().State() == session.Loaded
	w.mu.Lock()
	defer w.mu.Unlock()
	if !loaded || owes || !w.quiet() {
		return
	}
	for n, p := range w.prompts {
		if p.unread || p.withdrawn || p.crashed && w.variant.continues() {
			return
		}
		if p.sent && !p.over && len(p.fates) > 0 {
			w.failures = append(w.failures, fmt.Sprintf("the CLI says that P%d has ended as %v, and its caller does not know", n, p.fates))
		}
	}
	if running {
		w.failures = append(w.failures, "the session shows a turn, and the CLI has none")
	}
	if len(entries) > 0 {
		w.failures = append(w.failures, fmt.Sprintf("the CLI is idle, and the outbox has %d prompts", len(entries)))
	}
}

// checkKept: the disk of the outbox has what the memory has, once it has worked for as long as the bridge waits at most before it
// tries again. In a cluster the log must work, too: a prompt is removed once that has the end of its turn.
func (w *world) checkKept() {
	if w.variant == 0 {
		return
	}
	d := w.life.disks
	works := d.outbox.works() && (!w.clustered || d.logs.works())
	d.outbox.mu.Lock()
	works = works && !d.outbox.stale
	d.outbox.mu.Unlock()
	w.mu.Lock()
	lives := w.lives(w.life) && !w.owner.lost && !w.owner.moved
	w.mu.Unlock()
	if !works || !lives {
		return
	}
	box, err := outbox.Open(w.life.disks.clone().outbox)
	if err != nil {
		w.fail("the outbox cannot be read: %v", err)
		return
	}
	is, must := w.keptIn(box), w.keptIn(w.s.Prompts().Outbox())
	if !bytes.Equal(is, must) {
		w.fail("the disk of the outbox has\n%s\nand the memory\n%s", is, must)
	}
}

// keptIn is what an outbox has of the messages that were acknowledged.
func (w *world) keptIn(box *outbox.Outbox) []byte {
	var kept struct {
		Entries       []outbox.Entry
		Moved, Lost   []string
		Continuations []outbox.Note
	}
	for _, e := range box.Entries() {
		if e.Acknowledged() {
			e.Edited = false // it is for a large one whose own file could not be written: it cannot be given again
			kept.Entries = append(kept.Entries, e)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.prompts {
		why, _ := box.LostBecause(p.id)
		kept.Moved, kept.Lost = append(kept.Moved, box.MovedTo(p.id)), append(kept.Lost, why)
	}
	kept.Continuations = box.Continuations()
	text, _ := json.Marshal(kept) // plain fields
	return text
}
