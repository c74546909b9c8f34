package session

import (
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A CLI that falls behind in a burst says it again from its memory, and new events of
// the burst get in between: each queue is in order, the two together are not. The new
// ones are ahead by hundreds of milliseconds of the CLI's clock and thousands of events,
// and come once only, so that dropping second copies does not put them right. What
// order does is merge the two queues again.
//
// It looks at timestamps only in a burst, or from the first second copy on, to the end of
// the turn. It compares the CLI's timestamps with each other, never with our clock: a
// server on another machine has its own.
const (
	// leap and growth are by how many milliseconds, or bytes of the response, an event is
	// ahead of the one before when it may be early. Early ones have been seen to begin
	// 7 ms to 1.6 s ahead; what is in order leaps 50 ms too, and then is held back only
	// until the text that makes it follow is there.
	leap, growth = 50, 16
	// That many ephemeral events in that time, by the CLI's clock or by ours, are a burst: a
	// loaded machine may take longer to hand them on than they took to happen. The CLI
	// remembers about 3,800, and says nothing again before it has lost some.
	burstEvents, burstTime = 1024, 2 * time.Second
	// maxEarlyBytes bounds what is held back: some 20,000 deltas. Past it all of it goes
	// on as it is.
	maxEarlyBytes = 8 << 20
	// maxEarlyRun is how many events in a row may be early: 2,000 have been seen. After
	// that there is nothing left that comes before them.
	maxEarlyRun = 4096
	// earlyPatience is how long the next event that is not early may take: 1.6 s has been
	// seen on a loaded machine.
	earlyPatience = 2 * time.Second
)

// LeftOutOfOrder is what the log says when events of a burst were handed on before others that
// the CLI emitted earlier. The next LeftEvents events may be out of order, too: so many may have
// to come before a burst is recognised again.
const (
	LeftOutOfOrder = "burst left out of order"
	LeftEvents     = 2 * burstEvents
)

// order puts the events of a burst back in order. It is guarded by the session's mu.
type order struct {
	// watching says that the CLI sends a burst or second copies, hence may send early events.
	watching bool
	count    int                 // ephemeral events since begun, while not watching
	begun    time.Time           // when counting began
	begunAt  int64               // the same by the CLI's clock
	last     place               // of the last event that went on, while watching
	early    []placed            // held back, in order
	held     map[journal.ID]bool // those that have an id, by it
	bytes    int                 // of them
	run      int                 // of them, since an event went on
	since    time.Time           // when that was
	timer    *time.Timer         // runs while early is not empty
}

// place is where an event belongs, as far as the CLI tells.
type place struct {
	// at is the event's timestamp in milliseconds; zero means that it is not known.
	at int64
	// total is how much of the response there was, which orders events of the same
	// millisecond. Only the sizes tell it; it is also that of the text that follows one.
	total int64
	kind  kind
}

// kind is what an event is in the stream of a response.
type kind uint8

const (
	other kind = iota
	size       // of the response so far; comes directly before what made it so
	said       // a piece of the answer
	piece      // of something else that the size counts
)

func kindOf(rec *journal.Record) kind {
	if rec.Agent != "" { // sub-agents have responses of their own
		return other
	}
	switch rec.Type {
	case "assistant.streaming_delta":
		return size
	case "assistant.message_delta":
		return said
	case "assistant.reasoning_delta", "assistant.tool_call_delta":
		return piece
	}
	return other
}

func (k kind) text() bool { return k >= said }

type placed struct {
	place
	rec *journal.Record
}

// leads reports whether p is too far ahead of q to be what comes next.
func (p place) leads(q place) bool {
	switch {
	case q.at == 0, p.at < q.at: // the latter are second copies
		return false
	case p.at-q.at >= leap, p.kind == size && q.total > 0 && p.total-q.total > growth:
		return true
	}
	return p.kind == said && q.kind == said && q.total > 0 // the size of it has not come
}

func (p place) before(q place) bool {
	return p.at < q.at || p.at == q.at && p.total < q.total
}

// inOrder hands an event on to apply, or keeps it until its turn has come. The caller
// holds mu.
func (s *Session) inOrder(rec *journal.Record) {
	o := &s.order
	switch {
	case !o.watching:
		fresh := s.apply(rec)
		o.watch(rec, fresh, s.turn.lastEvent)
	case !sortable(rec):
		// It means something for the session, or is kept by the CLI and in order with the
		// rest of what is. The burst is over; another begins anew.
		s.releaseEarly()
		s.apply(rec)
		if !amidst(rec) {
			o.last = place{}
		}
		if rec.Type == "session.idle" {
			o.watching, o.count, o.last = false, 0, place{}
		}
	default:
		s.sort(rec)
	}
}

// amidst reports whether an event comes in the middle of a burst, which goes on: most that are
// about the session do, and messages that are sent while the agent answers.
func amidst(rec *journal.Record) bool {
	return strings.HasPrefix(rec.Type, "session.") && rec.Type != "session.error" || rec.Type == "user.message"
}

// watch finds out whether early events may come. It is what order costs on a calm day. What
// comes slowly counts for no burst after it.
func (o *order) watch(rec *journal.Record, fresh bool, now time.Time) {
	if !rec.Ephemeral {
		return
	}
	if o.count == 0 || now.Sub(o.begun) >= burstTime && o.slow(rec) {
		o.begun, o.begunAt, o.count = now, timestamp(rec.JSON), 0
	}
	o.count++
	switch {
	case !fresh: // a second copy, which says nothing about how far the CLI has come
		o.watching, o.count = true, 0
	case o.count == burstEvents:
		o.watching, o.count, o.last = true, 0, o.placeOf(rec)
	}
}

// slow reports whether by the CLI's clock, too, counting began a while ago.
func (o *order) slow(rec *journal.Record) bool {
	at := timestamp(rec.JSON)
	return at == 0 || o.begunAt == 0 || at-o.begunAt >= burstTime.Milliseconds()
}

// sortable reports whether an event may be kept back for a while.
func sortable(rec *journal.Record) bool {
	return rec.Ephemeral && !strings.HasPrefix(rec.Type, "session.") &&
		(rec.Plain || rec.Type != "assistant.idle" && callback.ForEvent(rec.Type) == nil && !callback.Ends(rec.Type))
}

// sort is inOrder for an event that may be early. The caller holds mu.
func (s *Session) sort(rec *journal.Record) {
	o := &s.order
	p := o.placeOf(rec)
	switch {
	case p.at == 0:
		s.apply(rec)
	case o.held[rec.ID]: // a second copy, which would go on in a place of its own
	case len(o.early) == 0:
		if p.leads(o.last) {
			s.holdEarly(placed{p, rec})
			return
		}
		s.goOn(placed{p, rec})
	case p.before(o.early[0].place):
		s.goOn(placed{p, rec})
	case p.before(o.early[len(o.early)-1].place):
		s.release(o.after(p))
		s.goOn(placed{p, rec})
	default:
		s.holdEarly(placed{p, rec})
	}
	for n := o.due(); n > 0; n = o.due() {
		s.release(n)
	}
}

// goOn hands an event on in its place. Second copies say nothing about how far the CLI
// has come. The caller holds mu.
func (s *Session) goOn(e placed) {
	if o := &s.order; s.apply(e.rec) {
		if e.kind == other { // the response is where it was
			e.total, e.kind = o.last.total, o.last.kind
		}
		o.last, o.run, o.since = e.place, 0, s.turn.lastEvent
	}
}

// holdEarly keeps an event back that comes after all that are. The caller holds mu.
func (s *Session) holdEarly(e placed) {
	o := &s.order
	if len(o.early) == 0 {
		o.since, o.run = time.Now(), 0
		if o.timer == nil {
			o.timer = time.AfterFunc(earlyPatience, s.earlyOverdue)
		} else {
			o.timer.Reset(earlyPatience)
		}
	}
	if o.held == nil {
		o.held = map[journal.ID]bool{}
	}
	o.held[e.rec.ID] = e.rec.ID != journal.ID{}
	o.early = append(o.early, e)
	o.bytes += len(e.rec.JSON)
	switch o.run++; {
	case o.run >= maxEarlyRun:
		s.unordered("many")
	case o.bytes > maxEarlyBytes:
		s.unordered("large")
	}
}

// earlyOverdue is called by the timer.
func (s *Session) earlyOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.order
	if len(o.early) == 0 {
		return
	}
	if left := earlyPatience - time.Since(o.since); left > 0 {
		o.timer.Reset(left)
		return
	}
	s.unordered("pause")
	// It was a pause: until there is a burst again, nothing is held back.
	o.watching, o.count, o.last = false, 0, place{}
}

// unordered hands on all that is held back though something of the burst may be missing before
// it, and says so: readers may get that late. The caller holds mu.
func (s *Session) unordered(reason string) {
	after := s.journal.Last()
	s.releaseEarly()
	through := s.journal.Last()
	s.host.Logger().Warn(LeftOutOfOrder, "session_id", s.id, "reason", reason, "epoch", through.Epoch,
		"after_seq", after.Seq, "through_seq", through.Seq)
}

// releaseEarly hands on all that is held back. The caller holds mu.
func (s *Session) releaseEarly() {
	if o := &s.order; len(o.early) > 0 {
		s.release(len(o.early))
	}
}

// endOrder is for when no more events come: what is held back is handed on, and the timer
// ends. The caller holds mu.
func (s *Session) endOrder() {
	s.releaseEarly()
	s.order = order{}
}

// release hands on the first n that are held back. The caller holds mu.
func (s *Session) release(n int) {
	o := &s.order
	for _, e := range o.early[:n] {
		o.bytes -= len(e.rec.JSON)
		delete(o.held, e.rec.ID)
		s.goOn(e)
	}
	if o.early = slices.Delete(o.early, 0, n); len(o.early) == 0 {
		o.early = nil
		o.timer.Stop()
	}
}

// due is how many of the first follow what has gone on. The first size held back less the
// text that comes with it says whether text is missing before it.
func (o *order) due() int {
	i := 0
	if o.last.kind == size && len(o.early) > 0 && o.early[0].kind.text() {
		i = 1 // the text of that size, it seems; what comes next shows it
	}
	text := i + 1
	for text < len(o.early) && o.early[text].kind == other { // the message begins in between
		text++
	}
	n := text + 1
	if len(o.early) < n || o.early[i].kind != size || !o.early[text].kind.text() {
		return 0
	}
	total, said := o.early[i].total, o.early[text].rec.JSON
	follows := (i > 0 || o.last.kind.text()) && hasSize(said, total-o.last.total)
	if !follows && !hasSize(said, total) { // the latter is how a response begins
		return 0
	}
	for n < len(o.early) && !o.early[n].leads(o.early[n-1].place) {
		n++
	}
	return n
}

// after is the index of the first that comes after p.
func (o *order) after(p place) int {
	i, _ := slices.BinarySearchFunc(o.early, p, func(e placed, p place) int {
		if p.before(e.place) {
			return 1
		}
		return -1
	})
	return i
}

// placeOf tells where an event belongs.
func (o *order) placeOf(rec *journal.Record) place {
	p := place{at: timestamp(rec.JSON), kind: kindOf(rec)}
	if p.kind == size {
		p.total = number(rec.JSON, `"totalResponseSizeBytes":`)
		return p
	}
	// The size comes directly before its delta in both queues: it is the last of one of
	// them, and if of both, then of the one that is at the same time.
	p.total = o.last.total
	if n := len(o.early); n > 0 {
		tail := o.early[n-1].place
		if p.kind == other && p.at >= tail.at {
			p.total = tail.total
			return p
		}
		for i := n - 1; i > 0 && tail.kind == other; i-- { // the message begins in between
			tail = o.early[i-1].place
		}
		if t, l := tail.kind == size, o.last.kind == size; t && !l || t == l && p.at != o.last.at {
			p.total = tail.total
		}
	}
	return p
}
