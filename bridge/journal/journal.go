// Package journal keeps what happened in one session, in order, for any number of
// readers. A reader is a cursor: it is never waited for, nothing is queued for it,
// and it is told, typed, when what it wanted is no longer kept.
//
// Two kinds of records share one order. Events come from the CLI and have a position
// (epoch, seq): seq is gapless within the epoch. Notes come from the bridge (a
// callback was resolved, the runtime restarted), have no position, and are for those
// who watch at the time. Durable events, which are those that the CLI itself keeps and
// a few that state and billing need (KeptTypes), are kept for good; other ephemeral ones
// and notes only up to a number of bytes.
//
// With a log (Config.Log) durable events are on disk, and in memory only while they are
// recent. A Writer puts them there: whoever appends never waits for a disk. Instead a
// durable event, and all that comes after it, is shown to nobody before it was written:
// what a reader has seen outlives the process. Numbers are reserved on disk in blocks
// before any of them is shown, so that none is given twice in whatever life.
package journal

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"
)

// Position is a place in a journal. The zero position is before everything.
type Position struct {
	Epoch, Seq uint64
}

// Record is an event or a note. It is immutable once appended, except for the cache
// of its encoded form.
type Record struct {
	// Pos is where the event is; for a note, where the event before it is.
	Pos Position
	// Type is the event's type; empty for a note.
	Type string
	// Agent is the id of the sub-agent it belongs to; empty for the main agent.
	Agent string
	// ID is the event's id.
	ID ID
	// JSON is the event, to the byte.
	JSON []byte
	// Ephemeral says that the CLI keeps no record of it.
	Ephemeral bool
	// Bridge says that the bridge caused it by its own book-keeping.
	Bridge bool
	// Plain says that it is of no type that means anything to the journal or to the session:
	// none of KeptTypes. Whoever makes a record need not know that.
	Plain bool
	// Note is the note; nil for an event.
	Note any
	// Posted says that the note is for everybody whose position is before it.
	Posted bool

	kept bool // ephemeral, but kept for good
	off  uint64
	// The encoded forms: nearly always only the tidy one is wanted.
	tidy   []byte
	others *[numForms][]byte
}

// size is what the record counts for against the limits of memory.
func (r *Record) size() int {
	n := len(r.JSON) + 128
	if note, ok := r.Note.(interface{ Size() int }); ok {
		n += note.Size()
	}
	return n
}

// durable says whether the record is kept for good.
func (r *Record) durable() bool { return r.Note == nil && (!r.Ephemeral || r.kept) }

// KeptTypes are the ephemeral events that are kept for good: those that tell the end of
// turns, what they cost, what failed, and what callbacks came to. The CLI keeps no record
// of them.
var KeptTypes = map[string]bool{
	"session.idle": true, "assistant.idle": true, "agent.interrupted": true,
	"assistant.usage": true, "session.usage_info": true, "session.quota_observation": true,
	"model.call_failure": true, "assistant.turn_retry": true, "sandbox.decision": true,
	"external_tool.completed": true, "session.title_changed": true, "session.snapshot_rewind": true,
}

// Config is what a journal is made with.
type Config struct {
	// Epoch is the journal's epoch; it must differ from every earlier one of the session.
	// What Log holds has its own.
	Epoch uint64
	// MaxEphemeralBytes bounds the ephemeral events and notes in memory; default 8 MiB.
	MaxEphemeralBytes int
	// Encode gives the wire form of an event.
	Encode Encoder
	// Log is where durable events are kept; without one they are kept in memory, for as
	// long as the journal is.
	Log *Disk
	// Budget bounds the memory of all journals together; may be nil.
	Budget *Budget
}

// Default limits of memory.
const (
	// DefaultMaxEphemeralBytes is the default of Config.MaxEphemeralBytes.
	DefaultMaxEphemeralBytes = 8 << 20
	// maxCachedBytes bounds the durable events that are in memory although they are on
	// disk.
	maxCachedBytes = 4 << 20
)

// Journal keeps the records of one session. Its methods may be called from any goroutine.
type Journal struct {
	cfg  Config
	disk *Disk // nil without a log

	mu         sync.RWMutex
	records    []*Record // by off
	nextOff    uint64
	nextSeq    uint64
	shownOff   uint64 // readers are shown the records up to this one
	shownSeq   uint64 // the last event among them
	ephemeral  int    // bytes of records that are not durable
	cached     int    // bytes of those that are
	horizon    uint64 // every ephemeral event up to this seq has been dropped
	noteFloor  uint64 // every note below this off has been dropped
	evicted    uint64 // no event up to this seq is in memory
	trimmed    uint64 // no event up to this seq is kept at all
	seen       dedupe
	readers    map[*Reader]struct{}
	waiting    []chan struct{} // for shownSeq to move
	used       atomic.Uint64   // when it was appended to last, by clock
	gathering  atomic.Bool     // readers and the writer are woken by Scatter
	owed       bool            // readers are to be woken by it
	encodeLock sync.Mutex
	encoded    wires
}

// New returns a journal with what its log holds. The caller must Close it if it has one.
func New(cfg Config) *Journal {
	if cfg.MaxEphemeralBytes <= 0 {
		cfg.MaxEphemeralBytes = DefaultMaxEphemeralBytes
	}
	j := &Journal{cfg: cfg, nextOff: 1, nextSeq: 1, readers: map[*Reader]struct{}{}, seen: newDedupe()}
	if cfg.Log != nil {
		j.disk = cfg.Log
		j.disk.attach(j)
	}
	cfg.Budget.add(j)
	return j
}

// Append adds an event and gives it its position. It returns false, and adds nothing,
// when an event of the same id was added before: the CLI sends bursts of ephemeral
// events twice, the second time out of order. Append takes the record over.
func (j *Journal) Append(r *Record) bool {
	r.kept = r.Ephemeral && !r.Plain && KeptTypes[r.Type]
	j.mu.Lock()
	if !j.seen.add(r.ID, !r.durable(), j.nextSeq) {
		j.mu.Unlock()
		j.counts().duplicates.Add(1)
		return false
	}
	j.counts().events.Add(1)
	r.Pos = Position{j.cfg.Epoch, j.nextSeq}
	j.nextSeq++
	full := j.push(r)
	j.mu.Unlock()
	full.relieve()
	return true
}

// Note adds a note after the last event.
func (j *Journal) Note(v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.push(&Record{Pos: Position{j.cfg.Epoch, j.nextSeq - 1}, Note: v})
}

// Post adds a note that is for everybody whose position is before it, also for readers to
// come: it takes a number of its own, as an event of which nothing is kept. Those that
// were posted in an earlier life of the journal go where they were, at, before anything else
// and in order; else at is zero. There are few of these: they stay in memory.
func (j *Journal) Post(v any, at Position) Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := len(j.records) == 0
	again := fresh || j.records[len(j.records)-1].Posted && j.records[len(j.records)-1].Pos.Seq <= at.Seq
	switch {
	case again && at.Epoch == j.cfg.Epoch && at.Seq < j.nextSeq:
	case fresh && j.disk != nil && j.disk.passed && j.nextSeq == j.disk.start+1:
		// A life that crashed had reserved this number, and given none that high.
		at = Position{j.cfg.Epoch, j.disk.start}
	default:
		at = Position{j.cfg.Epoch, j.nextSeq}
		j.nextSeq++
		if fresh {
			j.horizon = at.Seq
		}
	}
	j.push(&Record{Pos: at, Note: v, Posted: true})
	return at
}

// Recovered returns the number of the last event of a type, of the session's own agent,
// that the journal found on disk when it was opened; zero if there is none.
func (j *Journal) Recovered(eventType string) uint64 {
	if j.disk == nil {
		return 0
	}
	return j.disk.last[eventType]
}

// Inherited reports whether the journal found anything of an earlier life on disk.
func (j *Journal) Inherited() bool { return j.disk != nil && j.disk.inherited }

// TurnEnded tells the journal that a turn is over: ids of ephemeral events are
// remembered for the current turn and the one before.
func (j *Journal) TurnEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen.rotate()
}

// push appends r, trims, and shows what may be shown. It returns the budget of
// all journals if they have too much in memory. The caller holds mu.
func (j *Journal) push(r *Record) (full *Budget) {
	r.off = j.nextOff
	j.nextOff++
	j.records = append(j.records, r)
	size := r.size()
	over := j.cfg.Budget.take(size)
	j.used.Store(clock.Add(1))
	if r.durable() {
		j.cached += size
	} else {
		j.ephemeral += size
		if j.ephemeral > j.cfg.MaxEphemeralBytes {
			j.trim(j.cfg.MaxEphemeralBytes / 4 * 3)
		}
	}
	if j.disk != nil {
		j.disk.pushed(r)
	}
	j.show()
	if !over {
		return nil
	}
	return j.cfg.Budget
}

// show lets the readers see what they may, and wakes them if that is more than before.
// The caller holds mu.
func (j *Journal) show() {
	off, seq := j.nextOff-1, j.nextSeq-1
	if j.disk != nil {
		off, seq = j.disk.limit(off, seq)
	}
	if off <= j.shownOff {
		return
	}
	j.shownOff, j.shownSeq = off, seq
	if j.gathering.Load() {
		j.owed = true
	} else {
		j.notify()
	}
	for _, c := range j.waiting {
		close(c)
	}
	j.waiting = nil
}

// notify wakes the readers that sleep. The caller holds mu.
func (j *Journal) notify() {
	for reader := range j.readers {
		reader.notify()
	}
}

// Gather puts off waking the readers, and the writer, until Scatter, which must follow
// soon: what comes in one piece then costs one wake-up, and leaves in one piece. It reports
// whether that was not put off before; who was told so calls Scatter. Nothing else waits:
// who is awake sees what is appended at once.
func (j *Journal) Gather() bool {
	return !j.gathering.Load() && j.gathering.CompareAndSwap(false, true)
}

// Scatter wakes whom Gather has let sleep.
func (j *Journal) Scatter() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gathering.Store(false)
	if j.owed {
		j.owed = false
		j.notify()
	}
	if j.disk != nil {
		j.disk.scatter()
	}
}

// Await waits until readers are shown the event at a position, or one after it: with a
// log, until it is written. A position of another epoch is not waited for.
func (j *Journal) Await(ctx context.Context, p Position) error {
	for {
		j.mu.Lock()
		if p.Epoch != j.cfg.Epoch || p.Seq <= j.shownSeq || p.Seq >= j.nextSeq {
			j.mu.Unlock()
			return nil
		}
		moved := make(chan struct{})
		j.waiting = append(j.waiting, moved)
		j.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Settle waits until readers are shown everything that has been appended so far.
func (j *Journal) Settle(ctx context.Context) error {
	j.mu.RLock()
	last := Position{j.cfg.Epoch, j.nextSeq - 1}
	j.mu.RUnlock()
	return j.Await(ctx, last)
}

// Last returns the position of the last event, with seq 0 when there is none. With a log
// it never goes beyond the numbers that are reserved.
func (j *Journal) Last() Position {
	j.mu.RLock()
	defer j.mu.RUnlock()
	seq := j.nextSeq - 1
	if j.disk != nil {
		seq = min(seq, j.disk.ceiling())
	}
	return Position{j.cfg.Epoch, seq}
}

// epochNow is the journal's epoch.
func (j *Journal) epochNow() uint64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.cfg.Epoch
}

// Lookup returns the position of the durable event of an id.
func (j *Journal) Lookup(id ID) (Position, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	seq, ok := j.seen.durable.get(id)
	return Position{j.cfg.Epoch, seq}, ok
}

// First returns the position of the first event that is still kept, with seq 0 when
// there is none.
func (j *Journal) First() Position {
	j.mu.RLock()
	if j.evicted > j.trimmed {
		after, epoch := j.trimmed, j.cfg.Epoch
		j.mu.RUnlock()
		if r, ok := j.disk.next(after); ok {
			return Position{epoch, r.Pos.Seq}
		}
		j.mu.RLock()
	}
	defer j.mu.RUnlock()
	for _, r := range j.records {
		if r.Note == nil {
			return r.Pos
		}
	}
	return Position{Epoch: j.cfg.Epoch}
}

// Get returns the event at a position.
func (j *Journal) Get(p Position) (*Record, bool) {
	j.mu.RLock()
	if p.Epoch != j.cfg.Epoch || p.Seq == 0 || p.Seq > j.shownSeq {
		j.mu.RUnlock()
		return nil, false
	}
	if p.Seq <= j.evicted {
		j.mu.RUnlock()
		r, ok := j.disk.next(p.Seq - 1)
		return r, ok && r.Pos == p
	}
	defer j.mu.RUnlock()
	// The first record at or after p.Seq is a note of the event before, or the event.
	i := sort.Search(len(j.records), func(i int) bool { return j.records[i].Pos.Seq >= p.Seq })
	if i < len(j.records) && j.records[i].Pos.Seq == p.Seq && j.records[i].Note == nil {
		return j.records[i], true
	}
	return nil, false
}

// Find returns the newest event in memory that f accepts.
func (j *Journal) Find(f func(*Record) bool) (*Record, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	for i := len(j.records) - 1; i >= 0; i-- {
		if r := j.records[i]; r.Note == nil && f(r) {
			return r, true
		}
	}
	return nil, false
}

// Each calls f for every event in memory, in order, until f returns false.
func (j *Journal) Each(f func(*Record) bool) {
	j.mu.RLock()
	records := j.records[:len(j.records):len(j.records)]
	j.mu.RUnlock()
	for _, r := range records {
		if r.Note == nil && !f(r) {
			return
		}
	}
}
