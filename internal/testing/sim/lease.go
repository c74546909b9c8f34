package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// ownership is what the run knows of the replica that has the session, if the bridge is a replica of a cluster.
type ownership struct {
	// term is that of the replica.
	term uint64
	// folder is the CLI's record as it was saved last for the next replica. saves counts the states that were saved.
	folder disk
	saves  int
	// ends counts those that say that the session's use has ended: a reader may learn of it when it is open again.
	ends int
	// emitted are the events of all CLI processes, by their ids.
	emitted map[journal.ID]stored
	// fuse is the loss of the lease amid later work.
	fuse fuse
	// lost: another replica has taken the session, and this one does not know it. steps is for how many steps of the run it
	// goes on.
	lost  bool
	steps int
	// losses counts how often that happened.
	losses int
	// aside has the model of the CLI processes of a replica that has lost its lease: what they do is of no effect on the
	// session.
	aside *world
	// moving: the session is being handed over. left: this replica uses it no more. moved: the next one may have it. stays: the other replica could not get it, so that the next
	// process is of the same machine.
	moving, left, moved, stays bool
	// moves counts the tries to hand it over.
	moves int
}

// lightLease has the replica lose its lease now, or at one of the next points.
func (w *world) lightLease(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner.fuse = (fuse{n / 3, n}); n%3 == 0 {
		w.owner.fuse.left = 0
		w.loseLease(n)
	}
}

// loseLease has another replica take the session, of which this one learns later. From now on the storage has what the other one
// begins with: it refuses the state and the prompts of this one, and at the latest when the other one opens the log, its
// events. The caller holds the world's lock.
func (w *world) loseLease(n int) {
	o := &w.owner
	if !w.clustered || w.saved == nil || w.life.ended != nil || o.lost || o.moved {
		return
	}
	w.note("another replica takes the session")
	o.lost, o.steps = true, 1+n/2
	o.losses++
	w.crashes++
	w.stop.ends++
	w.restarts++
	for _, p := range w.prompts {
		p.crashed, p.lost = p.crashed || !p.over, p.lost || !p.over
	}
	w.life.disks.outbox.fence()
	if n%2 == 0 {
		w.life.disks.logs.fence()
	}
	o.aside = w.besides()
	if w.cli != nil {
		w.cli.w = o.aside
	}
}

// besides returns a model of the CLI processes of a replica that has lost its lease.
func (w *world) besides() *world {
	a := &world{
		clustered: true, of: w, variant: w.variant, trace: w.trace, seats: w.seats, life: w.life,
		ids: w.ids + 1<<32, interaction: w.interaction, deletion: w.deletion, reader: w.reader, stop: w.stop, others: w.others,
		disk: disk{slices.Clone(w.disk.events), w.disk.known, w.disk.file}, callbacks: map[string]*asking{}, aborts: w.aborts,
		streamed: streamed{pieces: map[string]*piece{}}, disconnecting: 1,
	}
	a.owner.emitted = w.owner.emitted
	a.continuation = w.continuation
	for _, p := range w.prompts {
		of := *p
		a.prompts = append(a.prompts, &of)
	}
	return a
}

// model is the world that a CLI process of the bridge changes.
func (w *world) model() *world {
	if w.owner.lost {
		return w.owner.aside
	}
	return w
}

// refusedChange is called when the storage has refused a change of a replica, which then ends itself: soon, and not at once.
func (w *world) refusedChange() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse()
}

// refuse is refusedChange for a caller that holds the world's lock. It reports whether the replica has lost its lease.
func (w *world) refuse() bool {
	if w.owner.lost && w.fuse.left == 0 {
		w.fuse = fuse{1 + 3*w.owner.steps, 0}
	}
	return w.owner.lost
}

// isRefused reports whether an error may say that another replica has the session. The caller holds the world's lock.
func (w *world) isRefused(err error) bool {
	return (w.owner.lost || w.owner.moves > 0 || w.disturbed()) && fault.ReasonOf(err) == fault.SessionUnavailable
}

// endLost ends a replica that has lost its lease, when its time has come.
func (w *world) endLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &w.owner
	switch {
	case w.life.ended != nil:
	case o.moved && !o.lost:
		w.depart()
	case o.lost && o.steps <= 0:
		w.end()
	case o.lost:
		o.steps--
	}
}

// moveAway has the session move to another replica if it is at rest.
func (w *world) moveAway(n int) {
	w.mu.Lock()
	o, l := &w.owner, w.life
	if !w.clustered || o.moving || o.lost || l.ended != nil {
		w.mu.Unlock()
		return
	}
	w.note("the session is to move")
	o.moving = true
	o.moves++
	w.mu.Unlock()
	w.do(func() error {
		left, err := l.s.Loader().HandOver(l.ctx, false, host{w, l}.Store)
		if left { // as package sessions drops it
			w.mu.Lock()
			o.left = w.lives(l)
			w.mu.Unlock()
			w.point(l)
			l.s.Prompts().Outbox().Close()
			_ = l.s.Journal().Close(l.ctx)
			w.point(l)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.note("the session moves: %v %v", left, err)
		if o.moving = left; left {
			o.moved, o.stays = true, n%4 == 3
			if !o.lost {
				w.keepFolder()
			}
		}
		if !left { // the session stays, and its replica tries again later
			return nil
		}
		return err
	})
}

// keepFolder saves the CLI's record for the next replica. A session without a message has none. The caller holds the world's lock.
func (w *world) keepFolder() {
	if w.owner.folder = w.disk; !w.disk.known {
		w.owner.folder = disk{}
	}
}

// depart ends the use of a session in a replica that has handed it over. No caller has lost anything. The caller holds the world's
// lock.
func (w *world) depart() {
	w.handover.times++
	left := w.life.disks.clone()
	w.life.ended = &left
	w.restarts++
	if w.cli != nil {
		_ = w.cli.pipe.Close()
	}
	for n, p := range w.prompts {
		if !p.over && p.id == "" {
			w.failures = append(w.failures, fmt.Sprintf("the session moves before P%d has an outcome", n))
		}
	}
	if open := w.openCallbacks(); len(open) > 0 {
		w.failures = append(w.failures, fmt.Sprintf("the session moves with the callbacks %v", open))
	}
}

// settleLease lets a replica come to its end that has lost its lease, or is about to.
func (w *world) settleLease() {
	if !w.clustered {
		return
	}
	w.settle(w.over)
	w.mu.Lock()
	w.owner.fuse = fuse{}
	lost := w.owner.lost
	if lost {
		w.end()
	}
	w.mu.Unlock()
	if lost {
		w.restart(0)
	}
}

// succeed has the next replica begin with what is stored: it restores the CLI's record as it was saved last, and completes it
// by the log. The caller holds the world's lock.
func (w *world) succeed(left *disks, process *cli) {
	o := &w.owner
	if o.lost {
		w.ids, w.interaction = o.aside.ids, o.aside.interaction
		for i, p := range o.aside.prompts {
			of := w.prompts[i]
			of.fates, of.cut, of.began = p.fates, of.cut || p.cut, of.began || p.began
			of.late, of.unended, of.doubtful, of.wentOn = of.late || p.late, of.unended || p.unended, of.doubtful || p.doubtful, of.wentOn || p.wentOn
		}
		w.continuation.fates = o.aside.continuation.fates
	}
	if !o.stays {
		w.disk = o.folder
	}
	w.disk.events = slices.Clone(w.disk.events)
	lost, err := outbox.LostMessages(left.outbox)
	if err != nil {
		w.failures = append(w.failures, "the outbox cannot be read: "+err.Error())
		return
	}
	kept, tail := o.tail(w.disk, left.logs, lost)
	w.disk.events = append(w.disk.events[:kept], tail...)
	w.disk.known = w.disk.known || len(tail) > 0
	w.note("the next replica has %d events of the record, %d of them from the log", len(w.disk.events), len(tail))
	if w.deletion.erased && !w.deletion.done && w.disk.known {
		w.deletion.erased = false
	}
	if process != nil && process.loaded {
		had := func(e stored) bool {
			return slices.ContainsFunc(w.disk.events, func(o stored) bool { return o.json == e.json })
		}
		w.stop.forgotten = w.stop.forgotten || o.lost ||
			slices.ContainsFunc(process.events, func(e stored) bool { return e.isMessage() && !had(e) }) ||
			unfinished(w.disk.events) && !unfinished(process.events)
	}
	if o.lost { // the end of that replica
		w.fuse = fuse{}
	}
	o.lost, o.aside, o.moving, o.left, o.moved, o.stays = false, nil, false, false, false, false
}

// tail returns what the log has behind the last event that a record has, and how much of the record no caller has cut since, as
// package cluster completes a record.
func (o *ownership) tail(record disk, logs *sharedLogs, lost func(messageID string) bool) (kept int, lines []stored) {
	has := map[journal.ID]bool{}
	for _, e := range record.events {
		has[e.journalID()] = true
	}
	kept = len(record.events)
	began, skipping := false, false
	logs.each(func(rec *journal.Record) {
		switch {
		case has[rec.ID] || rec.Type == "session.resume":
			skipping = false
		case rec.Type == "user.message" && rec.Agent == "":
			skipping = lost(event.Text(rec, "messageId"))
		}
		switch {
		case rec.Type == "session.snapshot_rewind":
			is := func(e stored) bool { return e.id() == event.Text(rec, "upToEventId") }
			if i := slices.IndexFunc(lines, is); i >= 0 {
				lines = lines[:i]
			} else if i := slices.IndexFunc(record.events[:kept], is); i >= 0 {
				kept, lines = i, nil
			}
		case rec.Ephemeral:
		case has[rec.ID]:
			began, lines = true, nil
		case skipping:
		case began, len(has) == 0 && rec.Type == "session.start":
			began, lines = true, append(lines, o.emitted[rec.ID])
		}
	})
	return kept, lines
}

// journalID is the id of an event in the journal.
func (e stored) journalID() journal.ID { return journal.ParseID([]byte(e.id())) }

// each calls f for all records that are stored.
func (l *sharedLogs) each(f func(*journal.Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.logs["s1"]
	if log == nil {
		return
	}
	for _, e := range log.entries {
		if rec, err := journal.ParseRecord(journal.Position{Epoch: log.epoch, Seq: e.number}, e.body); err == nil {
			f(rec)
		}
	}
}

// fence has the outbox refuse all changes.
func (f *files) fence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = true
}

// acknowledged checks what a caller is told: of a replica whose lease is over only what the next one knows. The caller holds
// the world's lock.
func (w *world) acknowledged(what string, stored func() bool) {
	if w.clustered && !stored() {
		w.failures = append(w.failures, "a caller is told of what the next replica would not know: "+what)
	}
}

// savedEnd reports whether the state that is stored says that the session is disconnected, or was removed.
func (w *world) savedEnd() bool {
	return w.saved == nil || bytes.Contains(w.saved, []byte(`"disconnected":true`))
}

// outboxHas reports whether the outbox that is stored has a text.
func (w *world) outboxHas(text string) bool {
	f := w.life.disks.outbox
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range maps.Keys(f.content) {
		if bytes.Contains(f.content[name], []byte(text)) {
			return true
		}
	}
	return false
}

// outboxOwes reports whether the outbox that is stored has a message whose turn has not ended.
func (w *world) outboxOwes(id string) bool {
	box, err := outbox.Open(w.life.disks.clone().outbox)
	if err != nil {
		w.failures = append(w.failures, "the outbox cannot be read: "+err.Error())
	}
	return err == nil && box.Pending(id)
}

// logHas reports whether the log that is stored has an event of a type with a text, behind a position.
func (w *world) logHas(after journal.Position, kind, text string) (has bool) {
	w.life.disks.logs.each(func(rec *journal.Record) {
		has = has || rec.Type == kind && after.Before(rec.Pos) && strings.Contains(string(rec.JSON), text)
	})
	return has
}

// toldOutcome checks the outcome of a prompt that its caller is told. The caller holds the world's lock.
func (w *world) toldOutcome(p *prompt) {
	if p.err != nil || p.outcome.Err != nil {
		return
	}
	told := outcomeOf(p.outcome)
	w.acknowledged("the outcome "+told+" of "+p.id, func() bool {
		switch told {
		case "RUNTIME_LOST": // which is right in any case
			return true
		case "ABORTED":
			return p.id == "" || w.savedEnd() || !w.outboxOwes(p.id) || w.logHas(p.since, "abort", "")
		}
		return w.logHas(p.since, "assistant.turn_end", "")
	})
}

// toldAnswer checks an answer that is said to be accepted. No process finds questions and hooks in the record, and the next one
// asks them again. The caller holds the world's lock.
func (w *world) toldAnswer(a *asking) {
	if !a.p.Kind.Survives {
		return
	}
	w.acknowledged("the answer to "+a.p.ID, func() bool {
		return w.logHas(journal.Position{}, "external_tool.completed", a.p.ID) || w.logHas(journal.Position{}, "permission.completed", a.p.ID)
	})
}

// toldAbort checks an abort that is said to have ended something: of the prompts that had been accepted before it. The caller holds
// the world's lock.
func (w *world) toldAbort(since journal.Position, given map[*prompt]bool) {
	w.acknowledged("an abort", func() bool {
		over := false // the last turn that is stored
		w.life.disks.logs.each(func(rec *journal.Record) {
			if rec.Agent == "" && slices.Contains([]string{"abort", "assistant.turn_end", "user.message"}, rec.Type) {
				over = rec.Type != "user.message"
			}
		})
		return over || w.logHas(since, "abort", "") || !slices.ContainsFunc(w.prompts, func(p *prompt) bool { return (given[p] || w.owner.lost && p.id != "") && w.outboxOwes(p.id) })
	})
}
