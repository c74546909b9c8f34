// Package reconcile compares a session with the CLI after a runtime has loaded it. It compares the journal with
// the CLI's history, and the pending callbacks with the CLI's own lists. Package history makes the decisions,
// and a Reconciler carries them out.
//
// A Reconciler has no state, lock or goroutine. Its caller holds the session's lifecycle lock. The caller does
// not hold the session's lock; the Reconciler takes it for each change.
package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/record"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/ingest"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is a session in a CLI process.
type Runtime interface {
	// Call calls a method about the session. The session's id is added to params.
	Call(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, error)
	// Current reports whether the process still has the session. The caller holds the session's lock.
	Current() bool
}

// Tx is the session while its lock is held.
type Tx interface {
	callbacks.Tx
	prompts.Tx
	// Continues reports whether the agent is told to continue interrupted turns.
	Continues() bool
}

// Config gives a Reconciler the parts of its session.
type Config struct {
	// Session is the session's id.
	Session string
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock      sync.Locker
	Tx        Tx
	Journal   *journal.Journal
	Intake    *ingest.Intake
	Turns     *turns.Turns
	Prompts   *prompts.Queue
	Callbacks *callbacks.Desk
	// Epoch returns an epoch greater than all that it returned before.
	Epoch  func() uint64
	Logger func() *slog.Logger
}

// Reconciler reconciles a session with the CLI. Call New to make one.
type Reconciler struct{ cfg Config }

// New returns a reconciler.
func New(cfg Config) *Reconciler { return &Reconciler{cfg} }

// History adds the events of the CLI's history that the journal lacks. With continuePending, callbacks
// without an answer in the history become pending.
func (r *Reconciler) History(ctx context.Context, rt Runtime, continuePending bool) error {
	records, err := r.read(ctx, rt)
	if err != nil {
		return err
	}
	found := r.cfg.Prompts.LookUp(ctx, records, nil)
	r.tie(ctx, records)
	defer r.cfg.Prompts.Flush()
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	open := r.append(records)
	// All turns in the history have ended; the CLI does not store their idle events.
	r.cfg.Turns.LosePast()
	// The added events belong to these turns. A later process of the bridge must not announce the end of a
	// turn because of them.
	r.cfg.Intake.Marks.TurnEnd = r.cfg.Journal.Last()
	r.cfg.Tx.MarkDirty()
	r.settle(found)
	if continuePending {
		for _, rec := range open {
			if k := callback.ForEvent(rec.Type); k.Survives {
				r.cfg.Callbacks.Requested(r.cfg.Tx, k, r.placed(rec))
			}
		}
	}
	goesOn := continuePending && r.cfg.Callbacks.Registry().Len() > 0
	if r.cfg.Tx.Continues() && !goesOn && !found.Forgot() && history.Unfinished(records) {
		r.cfg.Prompts.Continue(r.cfg.Tx)
	} else {
		r.cfg.Prompts.LeaveInterrupted(r.cfg.Tx)
	}
	return nil
}

// read returns the CLI's history. If the CLI's record has several files, session.getMessages may have the newest file
// only, with copies of the state; session.eventLog.read has the events of all files.
func (r *Reconciler) read(ctx context.Context, rt Runtime) ([]*journal.Record, error) {
	var reply struct{ Events []json.RawMessage }
	if err := r.call(ctx, rt, "session.getMessages", nil, &reply); err != nil {
		return nil, err
	}
	records := r.records(reply.Events)
	if !slices.ContainsFunc(records, func(rec *journal.Record) bool { return rec.Type == record.Link }) {
		return records, nil
	}
	var events []json.RawMessage
	params := jsonobj.Object{
		{Key: "max", Value: json.RawMessage("1000")}, {Key: "includeEphemeral", Value: json.RawMessage("false")},
		{Key: "view", Value: json.RawMessage(`"history"`)},
	}
	for {
		var page struct {
			Events       []json.RawMessage
			Cursor       string
			CursorStatus string
			HasMore      bool
		}
		if err := r.call(ctx, rt, readLog, params, &page); err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		switch {
		case page.CursorStatus == "expired", page.HasMore && len(page.Events) == 0:
			return nil, fault.New(fault.CLIProtocolError, "the history of session %q changed while it was read: try again",
				r.cfg.Session)
		case !page.HasMore:
			return r.records(events), nil
		}
		params.SetString("cursor", page.Cursor)
	}
}

// readLog is the method that reads all files of a record.
const readLog = "session.eventLog.read"

// call calls a method of the CLI about its history.
func (r *Reconciler) call(ctx context.Context, rt Runtime, method string, params jsonobj.Object, reply any) error {
	result, err := rt.Call(ctx, method, params)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, reply); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the history of session %q", r.cfg.Session)
	}
	return nil
}

// records returns the events of a history, without the copies with which a later file of the CLI's record begins.
func (r *Reconciler) records(events []json.RawMessage) (out []*journal.Record) {
	r.cfg.Lock.Lock()
	internal := r.cfg.Intake.Internal
	r.cfg.Lock.Unlock()
	for _, text := range events {
		if rec, err := event.Parse(text); err == nil && !isCopy(text) {
			rec.Bridge = internal && rec.Type == "session.resume"
			out = append(out, rec)
		}
	}
	return out
}

// isCopy reports whether an event is a copy with which a file of the CLI's record begins.
func isCopy(text json.RawMessage) bool {
	if !bytes.Contains(text, []byte(`"checkpoint"`)) {
		return false
	}
	var event struct{ Checkpoint bool }
	return json.Unmarshal(text, &event) == nil && event.Checkpoint
}

// append adds the events of a history that the journal lacks, and returns the requests without an answer.
// It skips events that also arrived live since the resume: the intake adds those in their order. The caller
// holds the lock.
func (r *Reconciler) append(records []*journal.Record) (open history.Unanswered) {
	live := history.IDs(r.cfg.Intake.Held())
	past := 0 // for a load of the bridge itself there is no caller's resume
	if !r.cfg.Intake.Internal {
		past = history.Past(records, live)
	}
	for i, rec := range records {
		if live[rec.ID] {
			if callback.ForEvent(rec.Type) == nil {
				open.Follow(rec)
			}
			continue
		}
		r.cfg.Intake.Append(rec)
		if i < past {
			r.cfg.Intake.Marks.End = r.cfg.Journal.Last()
		}
		open.Follow(rec)
		switch {
		case callback.Ends(rec.Type):
			r.cfg.Callbacks.Completed(rec)
		case rec.Type == "tool.execution_complete":
			r.toolEnded(rec)
		}
	}
	return open
}

// placed sets the position of a record of the history to its position in the journal.
func (r *Reconciler) placed(rec *journal.Record) *journal.Record {
	if at, ok := r.cfg.Journal.Lookup(rec.ID); ok {
		rec.Pos = at
	}
	return rec
}

// toolEnded withdraws the callbacks of a tool call that has ended in the history: the CLI does not always
// report their ends. The caller holds the lock.
func (r *Reconciler) toolEnded(rec *journal.Record) {
	id := history.CallID(event.Raw(rec))
	r.cfg.Callbacks.Withdraw(func(p *callback.Pending) bool {
		return id != "" && p.Kind.Survives && history.CallID(p.Params) == id
	}, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
}

// settle resolves the messages whose outcome was unknown since their runtime ended. The caller holds the lock.
func (r *Reconciler) settle(found prompts.Settlement) {
	r.cfg.Turns.Confirm()
	r.cfg.Prompts.Settle(r.cfg.Tx, found)
}

// resolve is settle with the lock.
func (r *Reconciler) resolve(found prompts.Settlement) {
	defer r.cfg.Prompts.Flush()
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	r.settle(found)
}

// BeginAnew prepares the journal for a session that the CLI has no history of, and that is created again under
// its id. A new epoch tells readers that the CLI does not know the earlier events. The caller calls settle
// after the creation, to resolve the earlier messages.
func (r *Reconciler) BeginAnew(ctx context.Context) (settle func()) {
	found := r.cfg.Prompts.LookUp(ctx, nil, nil)
	if r.cfg.Journal.Last().Seq > 0 {
		r.restart(ctx, nil)
	}
	r.cfg.Lock.Lock()
	r.cfg.Intake.Marks.HasHistory = false
	r.cfg.Lock.Unlock()
	return func() { r.resolve(found) }
}

// tie begins a new epoch if the journal contradicts the history in the order or the presence of events.
func (r *Reconciler) tie(ctx context.Context, events []*journal.Record) {
	if r.cfg.Journal.Last().Seq == 0 {
		return // an empty journal contradicts nothing
	}
	if !history.Ordered(events, r.cfg.Journal.Lookup) || r.rewritten(ctx, events) {
		r.restart(ctx, events)
		return
	}
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	r.cfg.Intake.Marks.ReconciledTo = r.cfg.Journal.Last()
}

// rewritten reports whether the history lacks earlier messages that the journal has.
func (r *Reconciler) rewritten(ctx context.Context, events []*journal.Record) bool {
	cut := history.NewRewrite(events, r.cfg.Journal.Lookup)
	r.cfg.Lock.Lock()
	after := r.cfg.Intake.Marks.ReconciledTo
	r.cfg.Lock.Unlock()
	if after.Epoch != r.cfg.Journal.Last().Epoch {
		after = journal.Position{}
	}
	event.Scan(ctx, r.cfg.Journal, after, cut.Kept)
	return cut.Found()
}

// restart begins a new epoch with the events of the journal and of the history. An event that only the journal
// has keeps its place after its predecessor.
func (r *Reconciler) restart(ctx context.Context, events []*journal.Record) {
	var all []*journal.Record
	var last uint64
	add := func(rec *journal.Record) bool {
		if rec.Pos.Seq > last && (!rec.Ephemeral || journal.KeptTypes[rec.Type]) {
			all, last = append(all, rec), rec.Pos.Seq
		}
		return true
	}
	event.Scan(ctx, r.cfg.Journal, journal.Position{}, add)
	epoch := r.cfg.Epoch()
	r.cfg.Logger().Warn("history and journal do not agree: the journal begins a new epoch", "session_id", r.cfg.Session, "epoch", epoch)
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	r.cfg.Journal.Each(add) // the events since the scan
	merged, fresh := history.Merge(events, all)
	r.cfg.Journal.Restart(epoch, merged)
	marks := &r.cfg.Intake.Marks
	marks.TurnEnd, marks.InterruptedAt = journal.Position{}, journal.Position{}
	r.cfg.Prompts.Renumber(func(note any, _ journal.Position) journal.Position {
		return r.cfg.Journal.Post(note, journal.Position{})
	})
	marks.ReconciledTo = r.cfg.Journal.Last()
	for _, rec := range fresh {
		r.cfg.Intake.Follow(rec, time.Now())
	}
	r.cfg.Tx.MarkDirty()
}
