package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Prompts are the prompts of the session whose turns have not ended: the outbox that stores them, the waiters for their
// turns, and the delivery that sends a lost runtime's prompts again.
//
// A method says when its caller holds the session's lock; the other methods are called without it. The outbox has its own
// lock. A goroutine that holds the session's lock may take it. At most two goroutines of the host run at a time: one writes
// the outbox, the other delivers.
type Prompts struct {
	s      *Session
	outbox *outbox.Outbox
	// sending is held by a send, and by a turn with its own provider headers.
	sending slot
	// flusher removes prompts from the disk.
	flusher *flusher

	// The session's lock guards the rest.

	// waiters has the waiters of the prompts, by entry. restored has the waiters of an earlier process's
	// prompts, by message id.
	waiters  map[uint64]*turn.Waiter
	restored map[string]*turn.Waiter
	// forgotten are the prompts without a reply that the CLI took up and has lost, until their senders know.
	forgotten map[uint64]bool
	// over has the entries of turns that have ended while the CLI went on with the next.
	over []uint64
	// redelivery sends the CLI what is owed; nil if nothing is.
	redelivery *redelivery
	// continuing: the delivery is about to put a continuation into the outbox.
	continuing bool
	// aborts counts the aborts of callers that are under way.
	aborts int
	// leavesUnseen: a caller has aborted since a runtime had the session. A turn that only the CLI's history has is left, too.
	leavesUnseen bool
}

// newPrompts returns the prompts of an outbox; nil keeps them in memory.
func newPrompts(s *Session, box *outbox.Outbox) *Prompts {
	if box == nil {
		box, _ = outbox.Open(nil) // in memory nothing fails
	}
	q := &Prompts{
		s: s, outbox: box, sending: make(slot, 1),
		waiters: map[uint64]*turn.Waiter{}, restored: map[string]*turn.Waiter{}, forgotten: map[uint64]bool{},
	}
	q.flusher = &flusher{outbox: box, journal: s.journal, start: s.host.Go, flush: q.flush, store: q.storeUntil}
	return q
}

// Outbox returns the outbox, for what it knows of messages by their ids.
func (q *Prompts) Outbox() *outbox.Outbox { return q.outbox }

// Close writes what has changed to the outbox and closes it.
func (q *Prompts) Close() {
	q.outbox.TurnsStored(q.s.journal.Shown())
	q.flush()
	q.outbox.Close()
}

// passing is how long the end of a session waits for the CLI's reply to a message, which may wait for hooks itself.
const passing = time.Second

// pause has messages wait until resume is called, and waits for the reply to one that is under way, for a short time.
// The CLI could take a message up that it receives amid the end of the session when it has the session again.
func (q *Prompts) pause(ctx context.Context) (resume func()) {
	ctx, cancel := context.WithTimeout(ctx, passing)
	defer cancel()
	if q.sending.acquire(ctx) != nil {
		return func() {}
	}
	return q.sending.release
}

// add adds a prompt that is about to be sent; before is the journal's end. It reports whether the prompt is in memory
// only. A remote storage has the prompt before it is sent, so that the call can still fail; a disk has it with the
// CLI's answer, in one write.
func (q *Prompts) add(p outbox.Prompt, before journal.Position) (n uint64, inMemory bool, err error) {
	if !q.s.journal.Remote() {
		return q.outbox.AddLater(p, withoutSecrets, before)
	}
	return q.outbox.Add(p, withoutSecrets, before)
}

// accepted notes the CLI's answer to a prompt, and the journal's end then, as outbox.Outbox.Accepted does: it may hang in the
// disk's call. It removes prompts whose turns have ended in the same write.
func (q *Prompts) accepted(n uint64, ids []string, at journal.Position, done func(durable, again bool, err error)) {
	q.outbox.TurnsStored(q.s.journal.Shown())
	q.outbox.Accepted(n, ids, at, done)
}

// expect has a waiter wait for the turn of a prompt.
func (q *Prompts) expect(w *turn.Waiter, n uint64) {
	w.Entry = n
	q.waiters[n] = w
}

// forget removes a prompt whose sender receives an error. The disk may hang, so that it is written without the lock.
func (q *Prompts) forget(w *turn.Waiter) {
	q.s.mu.Lock()
	delete(q.waiters, w.Entry)
	delete(q.forgotten, w.Entry)
	had := q.outbox.Finish(w.Entry)
	q.s.mu.Unlock()
	if had {
		q.flush()
	}
}

// drop removes a prompt for which nobody waits.
func (q *Prompts) drop(n uint64) {
	if q.outbox.Finish(n) {
		q.flush()
	}
}

// ended notes that the turn of a prompt has ended. It reports whether it releases the waiter later: no process finds in the
// CLI's history that an abort has removed a message, and the next one would send it, so its caller learns of that when the
// disk no longer has it.
func (q *Prompts) ended(w *turn.Waiter, out turn.Outcome) (later bool) {
	entry := w.Entry
	delete(q.waiters, entry)
	delete(q.forgotten, entry)
	switch {
	case out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST && out.Err == nil:
		q.outbox.End(entry) // the history still has to say whether it has the prompt
		q.flusher.now(nil)
	case out.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED: // a caller has withdrawn it
		if later = q.outbox.Finish(entry) && !w.Begun(); !later {
			q.flusher.now(nil)
			return false
		}
		return q.flusher.now(func() { q.s.update(w.Wake) })
	default:
		q.over = append(q.over, entry)
		if !q.s.turns.machine.Busy() {
			q.rested()
		}
	}
	return false
}

// rested notes that the CLI is idle. It has then written the turns down that have ended: until then its history may
// still lose them, and their prompts stay in the outbox.
func (q *Prompts) rested() {
	if len(q.over) == 0 {
		return
	}
	for _, entry := range q.over {
		q.outbox.Retire(entry, q.s.journal.Appended())
	}
	q.over = q.over[:0]
	q.flusher.soon()
}

// flush writes what has changed to the disk, now or when that works again.
func (q *Prompts) flush() { _ = q.store() }

// store is flush with the error of the first try.
func (q *Prompts) store() error {
	err := q.outbox.Flush()
	if err == nil {
		return nil
	}
	q.s.host.Logger().Error("prompts are in memory only", "session_id", q.s.id, "error", err)
	if !errors.Is(err, backend.ErrStale) { // then another server has the session
		q.flusher.retry()
	}
	return err
}

// storeUntil writes what has changed, and reports an error of the storage if another process may continue the session: that one
// would act on what was stored before. Then storeUntil tries again until the storage has it, another server has the session, or
// ctx ends. What a disk does not take is written later.
func (q *Prompts) storeUntil(ctx context.Context) error {
	err := q.store()
	if err == nil || !q.s.journal.Remote() {
		return nil
	}
	if !errors.Is(err, backend.ErrStale) {
		err = storing(ctx, q.outbox.Flush) // the log has the first failure
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// awaitStored is storeUntil for a caller, who is told that the storage does not take it in time.
func (q *Prompts) awaitStored(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	return q.storeUntil(ctx)
}

// tryStored is storeUntil that tries once, and fails only if another server has the session.
func (q *Prompts) tryStored(context.Context) error {
	if err := q.store(); errors.Is(err, backend.ErrStale) {
		return unavailable(err)
	}
	return nil
}

// Edit notes that a caller has changed the CLI's own queue: no prompt that the CLI has is sent
// again.
func (q *Prompts) Edit(ctx context.Context) error {
	q.outbox.Edit()
	return q.awaitStored(ctx)
}

// AnswerTo returns the first message's id of an acknowledged prompt by its request, and the journal's end before it. What another
// process may have to know is stored then.
func (q *Prompts) AnswerTo(ctx context.Context, request string) (id string, before journal.Position, ok bool, err error) {
	if id, before, ok = q.outbox.AnswerTo(request); ok {
		err = q.awaitStored(ctx)
	}
	return id, before, ok && err == nil, err
}

// Clear removes all prompts: the CLI takes none of them up any more.
func (q *Prompts) Clear() { q.outbox.Clear(func(*outbox.Entry) bool { return true }) }

// acknowledged returns the prompts that the CLI has answered.
func (q *Prompts) acknowledged() []outbox.Entry {
	return slices.DeleteFunc(q.outbox.Entries(), func(e outbox.Entry) bool { return !e.Acknowledged() })
}

// abort ends the prompts that an abort has removed. Waiters of a lost runtime's prompts end at once, the others when the
// CLI says that it is idle, or with its runtime. It reports whether there was a prompt to end. The error says that the storage
// has the prompts, which another server may send then: store is tryStored if the journal gets the abort, else awaitStored.
func (q *Prompts) abort(ctx context.Context, which []outbox.Entry, store func(context.Context) error) (bool, error) {
	q.s.update(q.leaveInterrupted)
	if len(which) == 0 {
		return false, nil
	}
	ended := q.outbox.Clear(func(e *outbox.Entry) bool {
		return slices.ContainsFunc(which, func(o outbox.Entry) bool { return o.N == e.N })
	})
	err := store(ctx)
	switch {
	case err == nil:
		q.aborted(ended)
	case !errors.Is(err, backend.ErrStale):
		q.s.host.Go(func(ctx context.Context) {
			if q.storeUntil(ctx) == nil {
				q.aborted(ended)
			}
		})
	}
	return err == nil && len(ended) > 0, err
}

// aborted ends the waiters of prompts that an abort has removed.
func (q *Prompts) aborted(entries []uint64) {
	q.s.update(func() {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_ABORTED, End: q.s.journal.Last()}
		for _, n := range entries {
			switch w := q.waiters[n]; {
			case w == nil:
			case w.Unconfirmed():
				q.s.turns.carryOut(q.s.turns.machine.Finish(w, out))
			default:
				q.s.turns.machine.Remove(w)
			}
		}
	})
}

// restore takes up the prompts that an earlier process of the bridge sent.
func (q *Prompts) restore() {
	q.s.turns.machine.Heard(time.Now())
	for _, e := range q.outbox.Entries() {
		if !e.Acknowledged() || e.Ended {
			continue
		}
		names := e.Names()
		w := turn.NewWaiter(e.N)
		q.s.turns.machine.Recover(w, names...)
		q.waiters[e.N] = w
		for _, id := range names {
			q.restored[id] = w
		}
	}
}

// Restored returns the waiter of a message that an earlier process of the bridge sent, or that
// was sent again; nil if there is none.
func (q *Prompts) Restored(id string) *turn.Waiter { return q.restored[id] }

// renumber posts the notes about prompts again, in order, with a journal's new positions. post
// gets each note's form in the journal and its old position.
func (q *Prompts) renumber(post func(note any, at journal.Position) journal.Position) {
	q.outbox.Renumber(func(n outbox.Note) journal.Position { return post(q.note(n), n.At) })
}

// note is the journal's form of a note about prompts.
func (q *Prompts) note(n outbox.Note) any {
	if n.Continues > 0 && len(n.IDs) == 0 {
		return Continued{MessageID: firstOf(n.As), Attempt: n.Continues}
	}
	if len(n.As) > 0 {
		return Resent{n.IDs, n.As}
	}
	out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: q.s.journal.Last()}
	return TurnOver{Outcome: out, IDs: n.IDs, Err: lostError(n.IDs, n.Text)}
}

// lostError is the error for messages that are not part of the conversation.
func lostError(ids []string, why string) error {
	err := fault.New(fault.SendUnconfirmed, "%s", why)
	if len(ids) > 0 {
		err = err.With("message_id", ids[0])
	}
	return err
}
