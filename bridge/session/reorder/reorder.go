// Package reorder puts the events of a burst back in order.
//
// A CLI that falls behind in a burst sends events again from its memory, and new events of
// the burst get in between. Each of the two queues is in order; their mixture is not. The new
// events are ahead by hundreds of milliseconds of the CLI's clock and by thousands of events,
// and arrive only once, so that dropping second copies does not restore the order. Buffer
// merges the two queues again.
//
// Buffer compares timestamps only in a burst, or from the first second copy on, until the end
// of the turn. It compares the CLI's timestamps with each other, never with the server's
// clock: a CLI on another machine has its own.
//
// The package owns what is held back, and nothing else. It has no lock, no clock, no timer and
// no goroutine: the caller serialises all calls, passes the time, and calls Overdue when
// Patience has passed.
package reorder

import (
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Bounds of a Buffer.
const (
	// BurstEvents ephemeral events within burstTime, by the CLI's clock or by the caller's, are
	// a burst: a loaded machine may take longer to hand them on than they took to happen. The
	// CLI remembers about 3,800, and sends nothing again before it has lost some.
	BurstEvents = 1024
	// MaxBytes bounds what is held back: some 20,000 deltas.
	MaxBytes = 8 << 20
	// MaxRun bounds how many events in a row may be held back: 2,000 have been seen. After
	// that, no event is left that comes before them.
	MaxRun = 4096
	// Patience is how long the next event in order may take: 1.6 s has been seen on a loaded
	// machine.
	Patience = 2 * time.Second
)

const (
	burstTime = 2 * time.Second
	// leap and growth are the distances to the previous event, in milliseconds and in bytes of the response,
	// above which an event may be early. Observed early events began 7 ms to 1.6 s ahead. Events in order also
	// leap by 50 ms; the buffer then holds them only until the text arrives that precedes them.
	leap, growth = 50, 16
)

// Reason is why a Buffer cannot wait any longer for the events that come before those it holds.
type Reason string

// The reasons.
const (
	// None: the buffer is within its bounds.
	None Reason = ""
	// Many: MaxRun events in a row were early.
	Many Reason = "many"
	// Large: more than MaxBytes are held back.
	Large Reason = "large"
	// Pause: no event in order came within Patience.
	Pause Reason = "pause"
)

// Buffer puts the events of a burst back in order. Make one with New. It is not safe for
// concurrent use.
type Buffer struct {
	emit func(rec *journal.Record) (fresh bool)
	seen func(id journal.ID) bool

	// watching says that the CLI sends a burst or second copies, hence may send early events.
	watching bool
	count    int                 // ephemeral events since begunAt, while not watching
	begunAt  time.Time           // when counting began
	begunCLI int64               // the same by the CLI's clock, in milliseconds
	last     place               // of the last event that went on, while watching
	early    []placed            // held back, in order
	held     map[journal.ID]bool // the held events that have an id
	bytes    int                 // of them
	run      int                 // of them, since an event went on
	since    time.Time           // when that was
}

// New returns an empty buffer. It hands events on to emit, which reports whether an event is
// new: only the journal knows which are second copies. seen reports whether emit had an event of an id: a second copy
// of the millisecond in which the burst is could be held back like an early event. Neither may call the buffer.
func New(emit func(rec *journal.Record) (fresh bool), seen func(id journal.ID) bool) *Buffer {
	return &Buffer{emit: emit, seen: seen}
}

// Held returns how many events are held back.
func (b *Buffer) Held() int { return len(b.early) }

// Push takes the next event in order of arrival, which came at now, and emits every event
// whose turn has come. If it returns a reason, a bound is reached: the caller must Flush.
func (b *Buffer) Push(rec *journal.Record, now time.Time) Reason {
	switch {
	case !b.watching:
		b.watch(rec, b.emit(rec), now)
	case !sortable(rec):
		// The event changes the session, or the CLI stores it, in order with all durable events. The burst has
		// ended.
		b.Flush(now)
		b.emit(rec)
		if !amidst(rec) {
			b.last = place{}
		}
		if rec.Type == "session.idle" {
			b.calm()
		}
	default:
		return b.sort(rec, now)
	}
	return None
}

// Flush emits all that is held back, in order.
func (b *Buffer) Flush(now time.Time) { b.release(len(b.early), now) }

// Reset discards the burst and the held events: call Flush first.
func (b *Buffer) Reset() { *b = Buffer{emit: b.emit, seen: b.seen} }

// Overdue reports whether the events held back have waited for Patience; if not, left is how
// long they may wait yet. When they are overdue, it emits them, and holds nothing back until
// there is a burst again.
func (b *Buffer) Overdue(now time.Time) (left time.Duration, overdue bool) {
	if len(b.early) == 0 {
		return 0, false
	}
	if left = Patience - now.Sub(b.since); left > 0 {
		return left, false
	}
	b.Flush(now)
	b.calm()
	return 0, true
}

// calm is for the end of a burst.
func (b *Buffer) calm() { b.watching, b.count, b.last = false, 0, place{} }

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
	if rec.Agent != "" { // each sub-agent has its own responses
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

// before reports whether p comes before q. The total of what is no part of a response, which may be that of an earlier one, says
// nothing about what comes behind it.
func (p place) before(q place) bool {
	return p.at < q.at || p.at == q.at && p.total < q.total && q.kind != other
}

// amidst reports whether an event comes in the middle of a burst, which goes on: most that are
// about the session do, and messages that are sent while the agent answers.
func amidst(rec *journal.Record) bool {
	return strings.HasPrefix(rec.Type, "session.") && rec.Type != "session.error" || rec.Type == "user.message"
}

// watch detects whether early events are possible. It is the only cost outside bursts. Slow events do not count
// for a later burst.
func (b *Buffer) watch(rec *journal.Record, fresh bool, now time.Time) {
	if !rec.Ephemeral {
		return
	}
	if b.count == 0 || now.Sub(b.begunAt) >= burstTime && b.slow(rec) {
		b.begunAt, b.begunCLI, b.count = now, Timestamp(rec.JSON), 0
	}
	b.count++
	switch {
	case !fresh: // a second copy, which says nothing about how far the CLI has come
		b.watching, b.count = true, 0
	case b.count == BurstEvents:
		b.watching, b.count, b.last = true, 0, b.placeOf(rec)
	}
}

// slow reports whether by the CLI's clock, too, counting began a while ago.
func (b *Buffer) slow(rec *journal.Record) bool {
	at := Timestamp(rec.JSON)
	return at == 0 || b.begunCLI == 0 || at-b.begunCLI >= burstTime.Milliseconds()
}

// sortable reports whether the buffer may hold an event back.
func sortable(rec *journal.Record) bool {
	return rec.Ephemeral && !strings.HasPrefix(rec.Type, "session.") &&
		(rec.Plain || rec.Type != "assistant.idle" && callback.ForEvent(rec.Type) == nil && !callback.Ends(rec.Type))
}

// sort is Push for an event that may be early.
func (b *Buffer) sort(rec *journal.Record, now time.Time) Reason {
	e := placed{b.placeOf(rec), rec}
	switch {
	case e.at == 0 || b.seen(rec.ID):
		b.emit(rec)
	case b.held[rec.ID]: // a second copy, which would be handed on as well
	case len(b.early) == 0:
		if e.leads(b.last) {
			return b.hold(e, now)
		}
		b.goOn(e, now)
	case e.before(b.early[0].place):
		b.goOn(e, now)
	case e.before(b.early[len(b.early)-1].place):
		b.release(b.after(e.place), now)
		b.goOn(e, now)
	default:
		if reason := b.hold(e, now); reason != None {
			return reason
		}
	}
	for n := b.due(); n > 0; n = b.due() {
		b.release(n, now)
	}
	return None
}

// goOn emits an event in its place. Second copies say nothing about how far the CLI has come.
func (b *Buffer) goOn(e placed, now time.Time) {
	if b.emit(e.rec) {
		if e.kind == other { // the response is where it was
			e.total, e.kind = b.last.total, b.last.kind
		}
		b.last, b.run, b.since = e.place, 0, now
	}
}

// hold keeps an event back that comes after all that are.
func (b *Buffer) hold(e placed, now time.Time) Reason {
	if len(b.early) == 0 {
		b.since, b.run = now, 0
	}
	if b.held == nil {
		b.held = map[journal.ID]bool{}
	}
	b.held[e.rec.ID] = e.rec.ID != journal.ID{}
	b.early = append(b.early, e)
	b.bytes += len(e.rec.JSON)
	switch b.run++; {
	case b.run >= MaxRun:
		return Many
	case b.bytes > MaxBytes:
		return Large
	}
	return None
}

// release emits the first n that are held back.
func (b *Buffer) release(n int, now time.Time) {
	if n == 0 {
		return
	}
	for _, e := range b.early[:n] {
		b.bytes -= len(e.rec.JSON)
		delete(b.held, e.rec.ID)
		b.goOn(e, now)
	}
	if b.early = slices.Delete(b.early, 0, n); len(b.early) == 0 {
		b.early = nil
	}
}

// due is how many of the first follow what has gone on. The first size held back less the
// text that comes with it says whether text is missing before it.
func (b *Buffer) due() int {
	part := func(i int) int { // from i on; what is no part of the response comes in between
		for i < len(b.early) && b.early[i].kind == other {
			i++
		}
		return i
	}
	i, whole := part(0), b.last.kind.text()
	if b.last.kind == size && i < len(b.early) && b.early[i].kind.text() {
		i, whole = part(i+1), true // the text of that size, it seems; what comes next shows it
	}
	text := part(i + 1)
	n := text + 1
	if len(b.early) < n || b.early[i].kind != size || !b.early[text].kind.text() {
		return 0
	}
	total, said := b.early[i].total, b.early[text].rec.JSON
	follows := whole && hasSize(said, total-b.last.total)
	if !follows && !hasSize(said, total) { // the latter is how a response begins
		return 0
	}
	for n < len(b.early) && !b.early[n].leads(b.early[n-1].place) {
		n++
	}
	return n
}

// after is the index of the first that comes after p.
func (b *Buffer) after(p place) int {
	i, _ := slices.BinarySearchFunc(b.early, p, func(e placed, p place) int {
		if p.before(e.place) {
			return 1
		}
		return -1
	})
	return i
}

// placeOf tells where an event belongs.
func (b *Buffer) placeOf(rec *journal.Record) place {
	p := place{at: Timestamp(rec.JSON), kind: kindOf(rec)}
	if p.kind == size {
		p.total = number(rec.JSON, `"totalResponseSizeBytes":`)
		return p
	}
	// The size comes directly before its delta in both queues: it is the last of one of
	// them, and if of both, then of the one that is at the same time.
	p.total = b.last.total
	if n := len(b.early); n > 0 {
		tail := b.early[n-1].place
		if p.kind == other && p.at >= tail.at {
			p.total = tail.total
			return p
		}
		for i := n - 1; i > 0 && tail.kind == other; i-- { // the message begins in between
			tail = b.early[i-1].place
		}
		if t, l := tail.kind == size, b.last.kind == size; t && !l || t == l && p.at != b.last.at {
			p.total = tail.total
		}
	}
	return p
}
