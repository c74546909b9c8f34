// Package prompts owns the prompts of a session whose turns have not ended: the outbox that stores them, the
// waiters for their turns, and the delivery that sends a lost runtime's prompts again.
//
// The session's lock guards the waiters and the delivery. A method that needs the lock receives a Tx, which the
// session makes while it holds the lock; the other methods are called without it. The outbox has its own lock.
// A goroutine that holds the session's lock may take it.
//
// A Queue has at most two goroutines at a time, both started by Config.Go and ended by its context: one writes
// the outbox, the other delivers.
package prompts

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Tx is the session while its lock is held.
type Tx interface {
	// Turn returns the machine of the session's turns.
	Turn() *turn.Machine
	// CarryOut does what the machine asks for.
	CarryOut(effects []turn.Effect)
	// EndTurn announces the end of a turn that no event shows.
	EndTurn(out turn.Outcome)
	// Post writes a note to the journal, at a position that it had before or, with none, at
	// the end.
	Post(note any, at journal.Position) journal.Position
	// MarkTurnEnd notes that readers know of the end of a turn at a position.
	MarkTurnEnd(at journal.Position)
	// Loaded reports whether a runtime has the session.
	Loaded() bool
	// Interruption is what is known of interrupted turns.
	Interruption() *turn.Interruption
	// MarkDirty schedules a save of the session.
	MarkDirty()
}

// Runtime is a CLI process that has the session loaded.
type Runtime interface {
	// Ended is closed when the process has ended and the session knows it.
	Ended() <-chan struct{}
	// Give sends a prompt for which w waits, and returns the CLI's answer.
	Give(ctx context.Context, method string, params jsonobj.Object, w *turn.Waiter) (json.RawMessage, error)
	// TakeHeaders removes the headers of the session's provider once no turn runs.
	TakeHeaders(ctx context.Context) error
	// RestoreHeaders puts the headers back.
	RestoreHeaders(ctx context.Context)
	// RestoreAfter puts the headers back when the turn of w has ended, and then releases the queue.
	RestoreAfter(w *turn.Waiter)
}

// Config is what a Queue needs of its session.
type Config struct {
	// Session is the session's id, for the log.
	Session string
	// Box has the prompts; nil keeps them in memory.
	Box     *outbox.Box
	Journal *journal.Journal
	// Update calls f with the session's lock held.
	Update func(f func(tx Tx))
	// Outcome returns how the turn of the message at a position ended, as far as the journal
	// tells.
	Outcome func(ctx context.Context, at journal.Position) turn.Outcome
	// In calls f with the runtime that has the session, loading it if need be, and once more if
	// the session was lost before the call reached it.
	In func(ctx context.Context, f func(rt Runtime) error) error
	// HasHeaders reports whether the session's provider has headers.
	HasHeaders func() bool
	// Classify turns the error of an ended context into the API's.
	Classify func(err error, method string) error
	// Go runs f on a goroutine that ends with the bridge.
	Go     func(f func(ctx context.Context)) bool
	Logger func() *slog.Logger
}

// Queue is the prompts of a session. New makes one.
type Queue struct {
	cfg Config
	box *outbox.Box
	// sending has capacity 1. A send holds it, and so does a turn with its own provider headers.
	sending chan struct{}
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
	// delivery sends the CLI what is owed; nil if nothing is.
	delivery *delivery
	// continuing: the delivery is about to put a continuation into the outbox.
	continuing bool
}

// New returns a queue.
func New(cfg Config) *Queue {
	if cfg.Box == nil {
		cfg.Box, _ = outbox.Open(nil) // in memory nothing fails
	}
	q := &Queue{
		cfg: cfg, box: cfg.Box, sending: make(chan struct{}, 1),
		waiters: map[uint64]*turn.Waiter{}, restored: map[string]*turn.Waiter{}, forgotten: map[uint64]bool{},
	}
	q.flusher = &flusher{box: cfg.Box, journal: cfg.Journal, start: cfg.Go, flush: q.Flush}
	return q
}

// Box returns the outbox, for what it knows of messages by their ids.
func (q *Queue) Box() *outbox.Box { return q.box }

// Close writes what has changed to the outbox and closes it.
func (q *Queue) Close() {
	q.box.Release(journal.Shown(q.cfg.Journal))
	q.Flush()
	q.box.Close()
}

// Acquire waits until no other send is under way. Release ends that.
func (q *Queue) Acquire(ctx context.Context) error {
	select {
	case q.sending <- struct{}{}:
		return nil
	case <-ctx.Done():
		return q.cfg.Classify(ctx.Err(), "")
	}
}

// TryAcquire is Acquire if no other send is under way; otherwise it returns false.
func TryAcquire(q *Queue) bool {
	select {
	case q.sending <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release lets the next send begin.
func (q *Queue) Release() { <-q.sending }

// Add adds a prompt that is about to be sent; before is the journal's end. It reports whether the prompt is in memory
// only. A remote storage has the prompt before it is sent, so that the call can still fail; a disk has it with the
// CLI's answer, in one write.
func (q *Queue) Add(p outbox.Prompt, before journal.Position) (n uint64, inMemory bool, err error) {
	if !journal.Remote(q.cfg.Journal) {
		return q.box.AddLater(p, withoutSecrets, before)
	}
	n, durable, err := q.box.Add(p, withoutSecrets, before)
	return n, !durable, err
}

// Accepted notes the CLI's answer to a prompt, as outbox.Box.AcceptedThen does: it may hang in the disk's call. It
// removes prompts whose turns have ended in the same write.
func (q *Queue) Accepted(n uint64, ids []string, done func(durable, again bool, err error)) {
	q.box.Release(journal.Shown(q.cfg.Journal))
	q.box.AcceptedThen(n, ids, done)
}

// Expect has a waiter wait for the turn of a prompt.
func (q *Queue) Expect(_ Tx, w *turn.Waiter, n uint64) {
	w.Entry = n
	q.waiters[n] = w
}

// Forget removes a prompt whose sender receives an error.
func (q *Queue) Forget(_ Tx, w *turn.Waiter) {
	delete(q.waiters, w.Entry)
	delete(q.forgotten, w.Entry)
	q.box.Drop(w.Entry)
}

// Ended notes that the turn of a prompt has ended.
func (q *Queue) Ended(tx Tx, entry uint64, out turn.Outcome) {
	delete(q.waiters, entry)
	delete(q.forgotten, entry)
	switch {
	case out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST && out.Err == nil:
		q.box.End(entry) // the history still has to say whether it has the prompt
		q.flusher.now()
	case out.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED:
		q.box.Finish(entry) // a caller has withdrawn it
		q.flusher.now()
	default:
		q.over = append(q.over, entry)
		if !tx.Turn().Busy() {
			q.Rested(tx)
		}
	}
}

// Rested notes that the CLI is idle. It has then written the turns down that have ended: until then its history may
// still lose them, and their prompts stay in the outbox.
func (q *Queue) Rested(Tx) {
	if len(q.over) == 0 {
		return
	}
	for _, entry := range q.over {
		q.box.Retire(entry, journal.Appended(q.cfg.Journal))
	}
	q.over = q.over[:0]
	q.flusher.soon()
}

// Flush writes what has changed to the disk.
func (q *Queue) Flush() {
	if err := q.box.Flush(); err != nil {
		q.cfg.Logger().Error("prompts are in memory only", "session_id", q.cfg.Session, "error", err)
	}
}

// Edit notes that a caller has changed the CLI's own queue: no prompt that the CLI has is sent
// again.
func (q *Queue) Edit() {
	q.box.Edit()
	q.Flush()
}

// Clear removes all prompts: the CLI takes none of them up any more.
func (q *Queue) Clear() { q.box.Clear(func(*outbox.Entry) bool { return true }) }

// Acknowledged returns the prompts that the CLI has answered.
func (q *Queue) Acknowledged() []outbox.Entry {
	return slices.DeleteFunc(q.box.Entries(), func(e outbox.Entry) bool { return !e.Acknowledged() })
}

// Abort ends the prompts that an abort has removed. Waiters of a lost runtime's prompts end at once, the others when the
// CLI says that it is idle, or with its runtime. It reports whether there was a prompt to end.
func (q *Queue) Abort(which []outbox.Entry) bool {
	q.cfg.Update(q.LeaveInterrupted)
	if len(which) == 0 {
		return false
	}
	ended := q.box.Clear(func(e *outbox.Entry) bool {
		return slices.ContainsFunc(which, func(o outbox.Entry) bool { return o.N == e.N })
	})
	q.Flush()
	q.cfg.Update(func(tx Tx) {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_ABORTED, End: q.cfg.Journal.Last()}
		for _, n := range ended {
			switch w := q.waiters[n]; {
			case w == nil:
			case w.Unconfirmed():
				tx.CarryOut(tx.Turn().Finish(w, out))
			default:
				tx.Turn().Remove(w)
			}
		}
	})
	return len(ended) > 0
}

// Restore takes up the prompts that an earlier process of the bridge sent.
func (q *Queue) Restore(tx Tx) {
	tx.Turn().Heard(time.Now())
	for _, e := range q.box.Entries() {
		if !e.Acknowledged() || e.Ended {
			continue
		}
		names := e.Names()
		w := &turn.Waiter{}
		w.Init()
		w.Entry = e.N
		tx.Turn().Recover(w, Last(names))
		q.waiters[e.N] = w
		for _, id := range names {
			q.restored[id] = w
		}
	}
}

// Restored returns the waiter of a message that an earlier process of the bridge sent, or that
// was sent again; nil if there is none.
func (q *Queue) Restored(_ Tx, id string) *turn.Waiter { return q.restored[id] }

// Renumber posts the notes about prompts again, in order, with a journal's new positions. post
// gets each note's form in the journal and its old position.
func (q *Queue) Renumber(post func(note any, at journal.Position) journal.Position) {
	q.box.Renumber(func(n outbox.Note) journal.Position { return post(q.note(n), n.At) })
}

// Resent is the note that messages were sent to the CLI again, with their new ids.
type Resent struct{ IDs, As []string }

// TurnOver is the note that a turn has ended.
type TurnOver struct {
	Outcome turn.Outcome
	// IDs are of messages that are not part of the conversation, and Err why; none else.
	IDs []string
	Err error
}

// note is the journal's form of a note about prompts.
func (q *Queue) note(n outbox.Note) any {
	if n.Continues > 0 && len(n.IDs) == 0 {
		return Continued{MessageID: First(n.As), Attempt: n.Continues}
	}
	if len(n.As) > 0 {
		return Resent{n.IDs, n.As}
	}
	out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: q.cfg.Journal.Last()}
	return TurnOver{Outcome: out, IDs: n.IDs, Err: LostError(n.IDs, n.Text)}
}

// LostError is the error for messages that are not part of the conversation.
func LostError(ids []string, why string) error {
	err := fault.New(fault.SendUnconfirmed, "%s", why)
	if len(ids) > 0 {
		err = err.With("message_id", ids[0])
	}
	return err
}

// ErrBehind says that a lost runtime's prompts have to be sent before a new one.
var ErrBehind = errors.New("prompts of a lost runtime must be sent first")
