package session

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Reconciler compares the session with the CLI after a runtime has loaded it: the journal with the CLI's history, and the
// pending callbacks with the CLI's own lists. Package history makes the decisions, and the Reconciler carries them out.
//
// Its caller holds the lifecycle lock, and not the session's lock, which the Reconciler takes for each change.
type Reconciler struct {
	s *Session
	// lingering are the permission requests of ended turns that the runtime still lists (quirks.KeepsPermissions).
	lingering map[string]bool
}

// history adds the events of the CLI's history that the journal lacks. With continuePending, callbacks without an answer in
// the history become pending, and history returns their ids: the CLI goes on with the turn when they are answered. It does
// so at once behind refused permissions, whose ids are returned, too. It aborts a turn that the CLI has taken over and can
// never end, that a resume has ended, or that a caller aborted while no runtime had the session.
func (r *Reconciler) history(ctx context.Context, rt Runtime, continuePending bool) (goesOn []string, err error) {
	records, err := r.read(ctx, rt)
	if err != nil {
		return nil, err
	}
	unseen := r.unseen(records) // before a new epoch has them
	withdrawn := continuePending && r.withdrawn(ctx, records)
	// An abort that the journal has came before a message that it lacks.
	unfinished, told := history.Unfinished(records) && !withdrawn && (unseen || !r.aborted(ctx)), timesTold(records)
	found := r.s.prompts.lookUp(ctx, records, nil)
	found.finished = !unfinished
	left := false
	r.s.update(func() { left = r.s.prompts.leavesUnseen })
	lingers := quirks.KeepsPermissions.In(rt.Version())
	if withdrawn || continuePending && (history.Unended(records) || left && history.Unfinished(records) ||
		lingers && len(history.Lingering(records, false)) > 0) {
		r.s.prompts.keepOwed(found)
		// Before anybody can send a message, which the abort would remove.
		if _, _, err := r.s.call(ctx, rt, "session.abort", nil); err != nil {
			return nil, err
		}
		if records, err = r.read(ctx, rt); err != nil {
			return nil, err
		}
	}
	if r.lingering = nil; lingers {
		r.lingering = history.Lingering(records, !continuePending)
	}
	if err := r.s.prompts.confirmLost(ctx, found); err != nil {
		return nil, err
	}
	r.tie(ctx, records)
	defer r.s.prompts.flush()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	open := r.append(records)
	// All turns in the history have ended; the CLI does not store their idle events.
	r.s.turns.losePast(r.s.ingester.begun && !found.begin())
	r.s.ingester.begun = false
	// The added events belong to these turns. A later process of the bridge must not announce the end of a
	// turn because of them.
	r.s.ingester.Known.TurnEnd = r.s.journal.Appended()
	r.s.markDirty()
	r.s.prompts.apply(found)
	if continuePending {
		for _, rec := range open {
			if k := callback.ForEvent(rec.Type); k.Survives {
				r.s.callbacks.requested(k, r.placed(rec))
				goesOn = append(goesOn, event.Text(rec, "requestId"))
			}
		}
		live := history.IDs(r.s.ingester.held) // it may have gone on already
		past := slices.DeleteFunc(records, func(rec *journal.Record) bool { return live[rec.ID] })
		goesOn = append(goesOn, history.Refused(past)...)
	}
	if unseen && unfinished && r.s.ingester.Internal && !r.s.prompts.leavesUnseen && !r.s.loader.shut {
		r.s.ingester.Known.Interruption.Last = true
	}
	switch {
	case len(goesOn) > 0: // this process may end in the turn, too
	case r.s.settings.State.Continues && !found.forgot() && unfinished:
		r.s.prompts.Continue(told)
	default:
		r.s.prompts.leaveInterrupted()
	}
	return goesOn, nil
}

// aborted reports whether a caller has aborted the last turn in the journal. The CLI writes the abort down when the turn has
// ended: its process may have ended before that. The next one may go on with the turn and end, too, so aborted notes what it
// has found.
func (r *Reconciler) aborted(ctx context.Context) (aborted bool) {
	r.s.mu.Lock()
	asked, after := r.s.settings.State.Continues, r.s.ingester.Known.ReconciledTo
	aborted = asked && r.s.ingester.Known.Interruption.Aborted
	r.s.mu.Unlock()
	defer func() {
		r.s.update(func() {
			r.s.ingester.Known.Interruption.Aborted = aborted
			r.s.markDirty()
		})
	}()
	if !asked {
		return false
	}
	if after.Epoch != r.s.journal.Last().Epoch {
		after = journal.Position{}
	}
	for rec := range event.Since(ctx, r.s.journal, after) {
		switch {
		case rec.Agent != "":
		case rec.Type == "user.message":
			aborted = false
		case rec.Type == "abort":
			aborted = aborted || !rec.Bridge
		}
	}
	return aborted
}

// withdrawn reports whether the CLI goes on with calls that a resume has ended. It writes that resume down with the next
// message: if its process ends before that, the history still leaves the calls open.
func (r *Reconciler) withdrawn(ctx context.Context, records []*journal.Record) bool {
	var open history.Unanswered
	for _, rec := range records {
		open.Follow(rec)
	}
	survives := func(rec *journal.Record) bool { return callback.ForEvent(rec.Type).Survives }
	if !slices.ContainsFunc(open, survives) && len(history.Refused(records)) == 0 {
		return false
	}
	for _, rec := range slices.Backward(records) {
		last, known := r.s.journal.Lookup(rec.ID)
		if !known {
			continue
		}
		for later := range event.Since(ctx, r.s.journal, last) {
			if later.Agent == "" && history.Withdraws(later) {
				return true
			}
		}
		return false
	}
	return false
}

// unseen reports whether the journal lacks the last message of a history. If the session was in use meanwhile, the bridge
// ended after it had sent the message and before it saw its turn.
func (r *Reconciler) unseen(records []*journal.Record) bool {
	for _, rec := range slices.Backward(records) {
		switch {
		case rec.Agent != "":
		case rec.Type == "user.message":
			_, known := r.s.journal.Lookup(rec.ID)
			return !known
		}
	}
	return false
}

// read returns the CLI's history. If the CLI's record has several files, session.getMessages may have the newest file
// only, with copies of the state; session.eventLog.read has the events of all files.
func (r *Reconciler) read(ctx context.Context, rt Runtime) ([]*journal.Record, error) {
	var reply struct{ Events []json.RawMessage }
	if err := r.s.query(ctx, rt, "session.getMessages", nil, &reply); err != nil {
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
		if err := r.s.query(ctx, rt, readLog, params, &page); err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		switch {
		case page.CursorStatus == "expired", page.HasMore && len(page.Events) == 0:
			return nil, fault.New(fault.CLIProtocolError, "the history of session %q changed while it was read: try again",
				r.s.id)
		case !page.HasMore:
			return r.records(events), nil
		}
		params.SetString("cursor", page.Cursor)
	}
}

// readLog is the method that reads all files of a record.
const readLog = "session.eventLog.read"

// records returns the events of a history, without the copies with which a later file of the CLI's record begins.
func (r *Reconciler) records(events []json.RawMessage) (out []*journal.Record) {
	r.s.mu.Lock()
	internal := r.s.ingester.Internal
	r.s.mu.Unlock()
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
// It skips events that also arrived live since the resume: the ingester adds those in their order. The caller
// holds the lock.
func (r *Reconciler) append(records []*journal.Record) (open history.Unanswered) {
	live := history.IDs(r.s.ingester.held)
	past := 0 // for a load of the bridge itself there is no caller's resume
	if !r.s.ingester.Internal {
		past = history.Past(records, live)
	}
	for i, rec := range records {
		if live[rec.ID] {
			if callback.ForEvent(rec.Type) == nil {
				open.Follow(rec)
			}
			continue
		}
		r.s.ingester.Append(rec)
		if i < past {
			r.s.ingester.Known.End = r.s.journal.Last()
		}
		open.Follow(rec)
		switch {
		case callback.Ends(rec.Type):
			r.s.callbacks.over(event.Text(rec, "requestId"))
		case rec.Type == "tool.execution_complete":
			r.toolEnded(rec)
		}
	}
	return open
}

// placed sets the position of a record of the history to its position in the journal.
func (r *Reconciler) placed(rec *journal.Record) *journal.Record {
	if at, ok := r.s.journal.Lookup(rec.ID); ok {
		rec.Pos = at
	}
	return rec
}

// toolEnded withdraws the callbacks of a tool call that has ended in the history: the CLI does not always
// report their ends. The caller holds the lock.
func (r *Reconciler) toolEnded(rec *journal.Record) {
	id := history.CallID(event.Raw(rec))
	r.s.callbacks.Withdraw(func(p *callback.Pending) bool {
		return id != "" && p.Kind.Survives && history.CallID(p.Params) == id
	}, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
}

// beginAnew prepares the journal for a session that the CLI has no history of, and that is created again under
// its id. A new epoch tells readers that the CLI does not know the earlier events. The caller calls resolve
// when the CLI has created it, to resolve the earlier messages.
func (r *Reconciler) beginAnew(ctx context.Context) (resolve func()) {
	found := r.s.prompts.lookUp(ctx, nil, nil)
	found.finished = true // an agent that knows of nothing has nothing to continue
	if r.s.journal.Appended().Seq > 0 {
		r.restart(ctx, nil)
	}
	r.s.mu.Lock()
	r.s.ingester.Known.HasHistory = false
	r.s.mu.Unlock()
	return func() { r.s.prompts.resolve(ctx, found) }
}

// tie begins a new epoch if the journal contradicts the history in the order or the presence of events.
func (r *Reconciler) tie(ctx context.Context, events []*journal.Record) {
	if r.s.journal.Appended().Seq == 0 {
		return // an empty journal contradicts nothing
	}
	defer r.s.update(func() { r.s.ingester.Known.ReconciledExtent = history.ExtentOf(events, len(events)) })
	if !history.Ordered(events, r.s.journal.Lookup) || r.rewritten(ctx, events) {
		r.s.mu.Lock()
		live := history.IDs(r.s.ingester.held) // they follow the history
		r.s.mu.Unlock()
		r.restart(ctx, slices.DeleteFunc(slices.Clone(events), func(rec *journal.Record) bool { return live[rec.ID] }))
		return
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.ingester.Known.ReconciledTo = r.s.journal.Last()
}

// rewritten reports whether the history lacks earlier messages that the journal has, or that it had at the last load.
func (r *Reconciler) rewritten(ctx context.Context, events []*journal.Record) bool {
	cut := history.NewRewrite(events, r.s.journal.Lookup)
	r.s.mu.Lock()
	after, had := r.s.ingester.Known.ReconciledTo, r.s.ingester.Known.ReconciledExtent
	r.s.mu.Unlock()
	if after.Epoch != r.s.journal.Last().Epoch {
		after, had = journal.Position{}, history.Extent{}
	}
	for rec := range event.Since(ctx, r.s.journal, after) {
		cut.Kept(rec)
	}
	if cut.Found() || had.Messages == 0 {
		return cut.Found()
	}
	from, rewound := cut.Rewound()
	if !rewound {
		return history.ExtentOf(events, had.Messages) != had
	}
	for rec := range event.Since(ctx, r.s.journal, journal.Position{Epoch: after.Epoch, Seq: max(from, 1) - 1}) {
		if history.SaidByUser(rec) {
			had.Messages-- // readers know that it was cut, if the last load had it at all
		}
	}
	return history.ExtentOf(events, had.Messages).Messages < had.Messages
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
	for rec := range event.Since(ctx, r.s.journal, journal.Position{}) {
		add(rec)
	}
	epoch := r.s.host.Epoch()
	r.s.host.Logger().Warn("history and journal do not agree: the journal begins a new epoch", "session_id", r.s.id, "epoch", epoch)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.journal.Each(add) // the events since the scan
	merged, fresh := history.Merge(events, all)
	r.s.journal.Restart(epoch, merged)
	marks := &r.s.ingester.Known
	marks.TurnEnd, marks.InterruptedAt = journal.Position{}, journal.Position{}
	r.s.prompts.renumber(func(note any, _ journal.Position) journal.Position {
		return r.s.journal.Post(note, journal.Position{})
	})
	marks.ReconciledTo = r.s.journal.Appended() // the disk has not reserved the numbers yet
	for _, rec := range fresh {
		r.s.ingester.follow(rec, time.Now())
	}
	r.s.markDirty()
}
