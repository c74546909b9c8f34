package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// life is a process of the bridge: its session, its storage and all that runs in it.
type life struct {
	s         *session.Session
	ctx       context.Context
	cancel    context.CancelFunc
	tasks     sync.WaitGroup
	disks     disks
	writer    *journal.Writer
	clustered bool
	// unfollow has the reader go.
	unfollow context.CancelFunc
	// ended: the process has ended, and left this. Whatever its goroutines still do has no effect. The world's lock
	// guards it.
	ended *disks
}

// memory bounds the journal's memory in narrow variants: older events are on the disk alone.
const memory = 2 << 10

// newLife begins a process of the bridge with what an earlier one has stored; left is nil for the first one. The zero
// variant has no storage.
func (w *world) newLife(left *disks) *life {
	l := &life{clustered: w.clustered}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	cfg := session.Config{
		ID: "s1", Host: host{w, l}, Epoch: uint64(1 + 1000*w.restarts),
		Encode: func(*journal.Record, journal.Form) []byte { return nil },
	}
	w.room = &room{refused: &w.refused}
	cfg.Room = w.room
	if w.variant.narrow() {
		w.room.places = 2
	}
	if w.variant > 0 {
		l.disks = newDisks(left, func() { w.point(l) }, w.refusedChange)
		if w.clustered {
			l.disks.outbox.patience = callTimeout
		}
		l.writer = w.newWriter(l.disks)
		if w.variant.narrow() {
			cfg.Budget = journal.NewBudget(memory)
			l.tasks.Go(func() { cfg.Budget.Run(l.ctx) })
		}
		var err error
		if cfg.Log, err = w.openJournal(l.disks, cfg.Epoch, l.writer); err == nil {
			cfg.Outbox, err = outbox.Open(l.disks.outbox)
		}
		if err != nil {
			w.fail("the storage cannot be opened: %v", err)
		}
	}
	l.s = session.New(cfg)
	return l
}

// newWriter returns a writer of the journal.
func (w *world) newWriter(d disks) *journal.Writer {
	if w.clustered {
		return journal.NewWriter(journal.WriterConfig{Fsync: journal.FsyncAlways})
	}
	return journal.NewWriter(journal.WriterConfig{FS: d.log})
}

// openJournal opens the log of the journal, in a cluster for the next owner.
func (w *world) openJournal(d disks, epoch uint64, writer *journal.Writer) (log *journal.Disk, err error) {
	if w.clustered {
		w.owner.term += 2 // a replica may have fenced the last one
		log, _, err = journal.OpenLog(d.logs, "s1", w.owner.term, epoch, "s1", writer)
	} else {
		log, _, err = journal.OpenDisk("s1", epoch, writer)
	}
	return log, err
}

// close ends what runs in a process.
func (l *life) close() {
	l.cancel()
	synctest.Wait()
	l.tasks.Wait()
	if l.writer != nil {
		_ = l.s.Journal().Close(context.Background())
		l.writer.Close()
	}
}

// await has a caller wait for the outcome of its prompt.
func (l *life) await(waiter *session.Waiter, over func(turn.Outcome, error)) {
	if l.ctx.Err() != nil {
		return
	}
	l.tasks.Go(func() {
		done, outcome := waiter.Done()
		select {
		case <-done:
			out := outcome()
			if out.Err == nil && l.clustered && l.s.Journal().Await(l.ctx, out.End) != nil { // as package prompt does it
				return
			}
			over(out, nil)
		case <-l.ctx.Done():
		}
	})
}

// MarkDirty implements session.Host.
func (h host) MarkDirty() {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.dirty = h.w.dirty || h.w.lives(h.life)
}

// idleLooks is how often the state is looked at while neither the bridge nor the CLI does anything: one of so many times.
const idleLooks = 8

// saveAtRest is save for a time that goes by.
func (w *world) saveAtRest() {
	w.mu.Lock()
	looks := w.idle%idleLooks == 0 || w.dirty || w.clients.changing
	w.idle++
	w.mu.Unlock()
	if looks {
		w.save()
	}
}

// Store implements session.Host.
func (h host) Store() error {
	w := h.w
	return h.disks.states.change(func() error {
		text, secret := h.s.Save(nil, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case w.owner.lost:
			return backend.ErrStale
		case w.lives(h.life) && text != nil:
			w.state = text
			w.stores(text, secret)
		}
		return nil
	})
}

// save saves the session if it has changed. Without a request to save it, it has not.
func (w *world) save() {
	w.mu.Lock()
	lives, dirty := w.lives(w.life), w.dirty || w.clients.changing
	w.dirty = false
	w.mu.Unlock()
	if !lives {
		return
	}
	if w.owner.lost || w.owner.left {
		if dirty {
			w.refusedChange()
		}
		return
	}
	text, secret := w.s.Save(nil, nil)
	if !dirty && !same(text, w.state) {
		w.fail("the session has changed and is not to be saved:\n%s\n%s", w.state, text)
	}
	w.state = text
	if dirty && text != nil {
		made, answered := w.life.disks.attempt()
		w.dirty = w.dirty || !answered // it is tried again
		if !made {
			return
		}
		w.stores(text, secret)
		if w.owner.saves++; w.owner.saves%3 != 0 { // else the replica ends before it has saved the record
			w.keepFolder()
		}
	}
}

// stores notes what the bridge has stored of the session.
func (w *world) stores(text, secret []byte) {
	w.saved, w.provider.secret = text, secret
	w.turns.calm = w.turns.rests && !w.turns.heard
	if w.rested {
		w.continuations, w.rested = 0, false
	}
	w.checkSaved(text, secret)
	if w.savedEnd() {
		w.owner.ends++
	}
	if w.clients.saved = w.clients.now; w.clients.changing {
		w.clients.saved = w.clients.before
	}
	w.settings.save(&w.provider)
}

// pending are the callbacks in the state of a session. That of one that has ended is saved later: the next process only
// loads the session too early.
var pending = regexp.MustCompile(`,"pending":\[[^]]*\]`)

// ends are the members that tell of the end of a turn: that of a turn that has ended with the bridge is known when it begins again.
var ends = regexp.MustCompile(`,"(ended|cut|interruption)":{[^}]*}`)

func same(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(pending.ReplaceAll(a, nil), pending.ReplaceAll(b, nil))
}

// end ends the process of the bridge: what it has stored stays. The caller holds the world's lock.
func (w *world) end() {
	if w.saved == nil || w.variant == 0 || w.failed && !w.clustered || w.life.ended != nil {
		return
	}
	w.note("the bridge ends")
	if !w.owner.lost {
		w.crashes++
	}
	w.handover.orderly = false
	w.leave()
}

// leave ends the process of the bridge, or its use of the session. The caller holds the world's lock.
func (w *world) leave() {
	left := w.life.disks.clone()
	w.checkSecrets(left)
	w.life.ended = &left
	if !w.owner.lost {
		w.stop.ends++
		w.restarts++
	}
	if w.cli != nil {
		_ = w.cli.pipe.Close()
		w.cli.loseSatellites()
	}
}

// lives reports whether a process of the bridge has not ended. The caller holds the world's lock.
func (w *world) lives(l *life) bool { return l == w.life && l.ended == nil }

// restart begins the next process of the bridge, if one has ended. It has what was stored, and callers come back. The CLI
// process has its end, too, or notices that of the bridge and shuts down.
func (w *world) restart(n int) {
	if w.handover.left {
		w.moveOn()
	}
	w.mu.Lock()
	before, process, rt := w.life, w.cli, w.rt
	if before.ended == nil {
		w.mu.Unlock()
		return
	}
	w.life, w.cli, w.rt = nil, nil, nil
	w.stop.restart()
	w.calls, w.deletion.underway, w.invoking, w.abstaining = nil, 0, false, 0
	if w.watching == turning { // it comes back to the next process, which tells the CLI when it loads the session
		w.watching = unwatched
		w.watcher.Store(false)
	}
	switch {
	case w.clients.changing:
		w.clients.now = w.clients.before // or what was accepted and saved
	case w.clustered:
		w.clients.now = nil
	}
	w.rested = false
	w.handover.left, w.handover.underway = false, 0
	w.clients.now, w.clients.changing = slices.Concat(w.clients.now, w.clients.saved), false
	w.settings.restart(&w.provider)
	if w.clustered {
		w.succeed(before.ended, process)
	}
	w.mu.Unlock()
	w.note("the bridge begins again")
	after := w.newLife(before.ended) // before anything notices the end
	if process != nil {
		w.mu.Lock()
		if !w.clustered {
			process.shutDown(n)
			w.stop.forgotten = w.stop.forgotten || process.forgets()
		}
		w.mu.Unlock()
		before.tasks.Go(func() { w.tell(rt, 0) })
	}
	if w.clustered {
		before.disks.mend()
	}
	before.close()
	w.loseCallers()
	w.mu.Lock()
	w.life, w.began = after, time.Now()
	w.mu.Unlock()
	w.loseKey(n%5 == 4)
	if err := w.s.Restore(w.saved, w.provider.secret, nil, nil); err != nil {
		w.fail("the session cannot be restored: %v", err)
	}
	if w.state, _ = w.s.Save(nil, nil); !bytes.Equal(ends.ReplaceAll(w.state, nil), ends.ReplaceAll(w.saved, nil)) {
		w.fail("what is restored is not what was saved:\n%s\n%s", w.state, w.saved)
	}
	now := w.look()
	w.mu.Lock()
	w.watchers = watchers{view: now}
	w.mu.Unlock()
	w.follow()
	if w.s.Loader().State() == session.Disconnected && !w.s.Prompts().Outbox().Empty() {
		w.fail("a session whose use has ended is restored with prompts")
	}
	if waits := pending.Match(w.saved); waits && w.s.Loader().State() == session.Unloaded && w.s.Awaited() != !w.provider.lost && w.s.Prompts().Outbox().Empty() {
		w.fail("callbacks wait, the session lacks its key: %v, and it is to be loaded: %v", w.provider.lost, w.s.Awaited())
	}
	w.regain()
	if w.s.Awaited() {
		w.revive()
	}
	w.comeBack()
	synctest.Wait()
}

// loseCallers ends what callers wait for at a process that has ended.
func (w *world) loseCallers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.prompts {
		p.crashed = p.crashed || !p.over
	}
	for _, a := range w.order {
		a.open = false
		for _, one := range a.answers {
			if !one.over {
				one.over, one.err = true, errConnection
			}
		}
	}
}

// errConnection is what a caller has if the bridge ends.
var errConnection = errors.New("the connection is lost")

// comeBack has callers ask what has become of their prompts, and participants return.
func (w *world) comeBack() {
	l := w.life
	var asking []*prompt
	var returning []*seat
	w.mu.Lock()
	for _, p := range w.prompts {
		switch {
		case p.over:
		case p.id == "" && p.request == "":
			p.over, p.err = true, errConnection
		default:
			asking = append(asking, p)
		}
	}
	for _, s := range w.seats {
		s.kept = s.id != "" && bytes.Contains(w.saved, []byte(`"id":"`+s.id+`"`)) && w.disconnects == 0
		if s.unsure = true; s.presence != gone {
			returning = append(returning, s)
		}
	}
	w.mu.Unlock()
	for _, p := range asking {
		l.tasks.Go(func() { w.comesBack(l, p) })
	}
	for _, s := range returning {
		w.join(s)
	}
}

// reader is a caller who reads the durable events, and comes back by its position.
type reader struct {
	at   journal.Position
	seen map[journal.ID]journal.Position
	// ever are all that it has got.
	ever map[journal.ID]bool
	// trimmed: a gap told that the journal does not have some events any more.
	trimmed bool
	gaps    int
	// returns is how often the reader has left and come back while the bridge went on.
	returns int
	away    bool
	// messages are the ids of the user's messages that it has read. Behind those of settled the session came to rest.
	messages, unsettled []string
	said                map[journal.ID]bool // their ids in the journal
	settled             map[string]bool
	// rewinds and epochs count the events and the gaps that tell that the history has changed.
	rewinds, epochs int
}

// follow has the reader read what the session shows, as soon as it does.
func (w *world) follow() {
	w.reader.away, w.epochs.reason = false, true // an epoch may have begun meanwhile
	l, wake := w.life, make(chan struct{}, 1)
	from, err := l.s.Journal().NewReader(w.reader.at, false, journal.Waking(wake))
	if err != nil {
		w.fail("the reader cannot come back to %v: %v", w.reader.at, err)
		return
	}
	reads, unfollow := context.WithCancel(l.ctx)
	l.unfollow = unfollow
	l.tasks.Go(func() {
		defer from.Close()
		for {
			w.read(l, from)
			select {
			case <-wake:
			case <-reads.Done():
				return
			}
		}
	})
}

// read has the reader read on. It gets each event once, in order, unless a gap says that all is different.
func (w *world) read(l *life, from *journal.Reader) {
	for {
		records, gap := from.Next(nil, 1<<20)
		if gap == nil && len(records) == 0 {
			return
		}
		w.mu.Lock()
		if w.lives(l) {
			w.seen(records, gap)
			w.reader.at = from.Position()
		}
		w.mu.Unlock()
	}
}

// seen notes what the reader has read, behind a gap if there is one: then the epoch has ended, or the journal does not
// know what was in the range.
func (w *world) seen(records []*journal.Record, gap *journal.Gap) {
	r := &w.reader
	if gap != nil {
		r.gaps++
		w.note("the reader is told of a gap: %v from %v to %v", gap.Reason, gap.From, gap.To)
		w.turns.forget() // what comes behind it may be read again
		if gap.Reason == journal.EpochEnded && !w.epochs.reason && !w.clustered {
			w.failures = append(w.failures, "the journal begins a new epoch, and the record lacks nothing that readers have got")
		}
	}
	if r.seen == nil || gap != nil && gap.Reason == journal.EpochEnded {
		r.seen = map[journal.ID]journal.Position{}
		r.epochs++
	}
	if gap != nil && gap.Reason == journal.Trimmed {
		r.trimmed = true
		maps.DeleteFunc(r.seen, func(_ journal.ID, at journal.Position) bool { return gap.From.Before(at) && !gap.To.Before(at) })
	}
	for _, rec := range records {
		if of, is := rec.Note.(session.TurnOver); is && of.IDs == nil {
			w.turnOver(of.Outcome)
		} else if rec.Note == nil {
			w.turnEvent(rec)
		}
		if !durable(rec) {
			w.stream(rec)
			w.noted.note(rec)
			if n, ended := rec.Note.(session.Ended); ended && n.Reason != bridgev1.CloseReason_CLOSE_REASON_DRAINING {
				w.acknowledged("the end of the session's use", func() bool { return w.savedEnd() || !w.owner.lost && w.owner.ends > 0 })
			}
			r.readEphemeral(rec)
			w.rested = w.rested || rec.Type == "session.idle"
			continue
		}
		if at, twice := r.seen[rec.ID]; twice {
			w.failures = append(w.failures, fmt.Sprintf("the reader gets the event at %v again, at %v", at, rec.Pos))
		}
		r.seen[rec.ID], r.ever[rec.ID] = rec.Pos, true
		if rec.Type == "user.message" && rec.Agent == "" {
			r.readMessage(rec)
		}
	}
}

// durable reports whether a record is an event that a reader must get.
func durable(rec *journal.Record) bool {
	return rec.Note == nil && !rec.Ephemeral && rec.ID != journal.ID{}
}

// checkReader: the reader has got all events, and the journal has all that it got.
func (w *world) checkReader() {
	n := 0
	for rec := range w.durables(w.s.Journal()) {
		n++
		if at := w.reader.seen[rec.ID]; at != rec.Pos {
			w.fail("the reader has the event at %v from %v", rec.Pos, at)
		}
	}
	if n != len(w.reader.seen) {
		w.fail("the journal has %d events, of which the reader has seen %d", n, len(w.reader.seen))
	}
	if lost := len(w.reader.ever) - len(w.reader.seen); lost > 0 && !w.reader.trimmed {
		w.fail("%d events that the reader got are in the last epoch no more", lost)
	}
}

// durables are the events of a journal that a reader must get.
func (w *world) durables(j *journal.Journal) iter.Seq[*journal.Record] {
	return func(yield func(*journal.Record) bool) {
		all, err := j.NewReader(journal.Position{}, false, func() {})
		if err != nil {
			w.fail("the journal cannot be read: %v", err)
			return
		}
		defer all.Close()
		for {
			records, gap := all.Next(nil, 1<<20)
			if gap == nil && len(records) == 0 {
				return
			}
			for _, rec := range records {
				if durable(rec) && !yield(rec) {
					return
				}
			}
		}
	}
}
