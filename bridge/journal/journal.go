// Package journal stores the events of one session in order, for any number of readers. A reader is a cursor: the
// journal never waits for it and queues nothing for it. If records that a reader needs were dropped, it receives a
// Gap with the reason.
//
// Events and notes share one order. Events come from the CLI and have a position (epoch, seq); seq has no gaps within
// an epoch. Notes come from the bridge (a callback was resolved, the runtime restarted), have no position, and are
// delivered to current readers only. Durable events are stored permanently: the events that the CLI itself stores, and
// a few for state and billing (KeptTypes). Ephemeral events and notes are stored up to a limit in bytes.
//
// With a log (Config.Log) durable events are on disk, and only recent ones also in memory. A Writer writes them, so
// that appending never waits for a disk: first to a log that all journals share (package joint), from which they move to
// the journal's own. A durable event and all records after it are delivered only after the event was written: an event
// that a reader has seen survives the process. Numbers are reserved on disk in blocks before they are used, so that no
// process issues a number twice.
//
// Each journal has a lock, mu, which also guards its Disk. The Writer has its own lock and goroutines, which
// Writer.Close ends.
package journal

import (
	"context"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
)

// Position is a place in a journal.
type Position = position.Position

// Record is an event or a note. It is immutable after it was appended, except for its cached encodings.
type Record struct {
	// Pos is the position of the event. A note has the position of the event before it.
	Pos Position
	// Type is the event's type; empty for a note.
	Type string
	// Agent is the id of the sub-agent that caused the event; empty for the main agent.
	Agent string
	ID    ID
	// JSON is the event's JSON, unmodified.
	JSON []byte
	// Ephemeral reports that the CLI does not store the event.
	Ephemeral bool
	// Bridge reports that the bridge's own bookkeeping caused the event.
	Bridge bool
	// Plain reports that the type is none of KeptTypes and neither begins nor ends a callback. Setting it is optional.
	Plain bool
	// Note is the note; nil for an event.
	Note any
	// Posted reports that the note is delivered to every reader whose position is before it.
	Posted bool

	kept bool // ephemeral, but kept for good
	off  uint64
	// Cached encodings: nearly always only the tidy one is used.
	tidy   []byte
	others *[numForms][]byte
}

// size is the memory of the record that counts against the limits.
func (r *Record) size() int {
	n := len(r.JSON) + 128
	if note, ok := r.Note.(interface{ Size() int }); ok {
		n += note.Size()
	}
	return n
}

// durable reports whether the record is stored permanently.
func (r *Record) durable() bool { return r.Note == nil && (!r.Ephemeral || r.kept) }

// KeptTypes are the ephemeral events that are stored permanently: ends of turns, costs, failures, and results of
// callbacks. The CLI does not store them.
var KeptTypes = map[string]bool{
	"session.idle": true, "assistant.idle": true, "agent.interrupted": true,
	"assistant.usage": true, "session.usage_info": true, "session.quota_observation": true,
	"model.call_failure": true, "assistant.turn_retry": true, "sandbox.decision": true,
	"external_tool.completed": true, "session.title_changed": true, "session.snapshot_rewind": true,
}

// Config configures a journal.
type Config struct {
	// Epoch is the journal's epoch. It must differ from all earlier epochs of the session. A non-empty Log has its
	// own epoch.
	Epoch uint64
	// MaxEphemeralBytes bounds the ephemeral events and notes in memory. The default is 8 MiB.
	MaxEphemeralBytes int
	// Encode returns the wire form of an event.
	Encode Encoder
	// Log stores durable events. Without one they stay in memory until the journal is closed.
	Log *Disk
	// Budget bounds the memory of all journals. With nil the journal has no such limit.
	Budget *Budget
}

// Default memory limits.
const (
	// DefaultMaxEphemeralBytes is the default of Config.MaxEphemeralBytes.
	DefaultMaxEphemeralBytes = 8 << 20
	// maxCachedBytes bounds the durable events that are in memory in addition to disk.
	maxCachedBytes = 4 << 20
)

// Journal stores the records of one session. It is safe for concurrent use.
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
	cached     int    // bytes of durable records in memory
	horizon    uint64 // every ephemeral event up to this seq has been dropped
	noteFloor  uint64 // every note below this off has been dropped
	evicted    uint64 // no event up to this seq is in memory
	seen       dedupe
	readers    map[*Reader]struct{}
	waiting    []chan struct{} // for shownSeq to move
	used       atomic.Uint64   // when it was appended to last, by clock
	batching   atomic.Bool     // readers and the writer are woken by EndBatch
	owed       bool            // readers are to be woken by it
	encodeLock sync.Mutex
	encoded    wires
}

// New returns a journal with the content of its log. The caller must Close the journal if it has a log.
func New(cfg Config) *Journal {
	if cfg.MaxEphemeralBytes <= 0 {
		cfg.MaxEphemeralBytes = DefaultMaxEphemeralBytes
	}
	if cfg.Budget == nil {
		cfg.Budget = NewBudget(math.MaxInt)
	}
	j := &Journal{cfg: cfg, nextOff: 1, nextSeq: 1, readers: map[*Reader]struct{}{}, seen: newDedupe()}
	if cfg.Log != nil {
		j.disk = cfg.Log
		j.disk.attach(j)
	}
	cfg.Budget.add(j)
	return j
}

// Append adds an event and sets its position. It returns false, and adds nothing, if an event with the same id was
// added before: the CLI sends bursts of ephemeral events twice, the second time out of order. Append takes ownership
// of the record.
func (j *Journal) Append(r *Record) bool {
	r.kept = r.Ephemeral && !r.Plain && KeptTypes[r.Type]
	j.mu.Lock()
	if !j.seen.add(r.ID, !r.durable(), j.nextSeq) {
		j.mu.Unlock()
		j.counts().duplicates.Add(1)
		return false
	}
	j.counts().events.Add(1)
	r.Pos = Position{Epoch: j.cfg.Epoch, Seq: j.nextSeq}
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
	j.push(&Record{Pos: Position{Epoch: j.cfg.Epoch, Seq: j.nextSeq - 1}, Note: v})
}

// Post adds a note for every reader whose position is before it, including future readers. The note takes a number
// like an event. at restores a note of an earlier process at its old position; such notes must be posted first and in
// order. Otherwise at is zero. Posted notes are few and stay in memory.
func (j *Journal) Post(v any, at Position) Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := len(j.records) == 0
	again := fresh || j.records[len(j.records)-1].Posted && j.records[len(j.records)-1].Pos.Seq <= at.Seq
	switch {
	case again && at.Epoch == j.cfg.Epoch && at.Seq < j.nextSeq:
	case fresh && j.disk != nil && j.disk.passed && j.nextSeq == j.disk.start+1:
		// A process that crashed had reserved this number, but issued none as high.
		at = Position{Epoch: j.cfg.Epoch, Seq: j.disk.start}
	default:
		at = Position{Epoch: j.cfg.Epoch, Seq: j.nextSeq}
		j.nextSeq++
		if fresh {
			j.horizon = at.Seq
		}
	}
	j.push(&Record{Pos: at, Note: v, Posted: true})
	return at
}

// Recovered returns the number of the last event of a type from the main agent that was on disk when the journal was
// opened; zero if there was none.
func (j *Journal) Recovered(eventType string) uint64 {
	if j.disk == nil {
		return 0
	}
	return j.disk.last[eventType]
}

// Inherited reports whether the journal found events of an earlier process on disk.
func (j *Journal) Inherited() bool { return j.disk != nil && j.disk.inherited }

// TurnEnded tells the journal that a turn has ended. Ids of ephemeral events are remembered for the current and the
// previous turn.
func (j *Journal) TurnEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen.rotate()
}

// push appends r, trims, and delivers what may be delivered. It returns the budget if all journals together exceed
// it. The caller holds mu.
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

// show advances the limit for readers, and wakes them if it has changed. The caller holds mu.
func (j *Journal) show() {
	off, seq := j.nextOff-1, j.nextSeq-1
	if j.disk != nil {
		off, seq = j.disk.limit(off, seq)
	}
	if off <= j.shownOff {
		return
	}
	j.shownOff, j.shownSeq = off, seq
	if j.batching.Load() {
		j.owed = true
	} else {
		j.notify()
	}
	for _, c := range j.waiting {
		close(c)
	}
	j.waiting = nil
}

// notify wakes sleeping readers. The caller holds mu.
func (j *Journal) notify() {
	for reader := range j.readers {
		reader.notify()
	}
}

// BeginBatch postpones waking readers and the writer until EndBatch, which must follow soon. A batch of events then
// costs one wake-up. It returns false if a batch has already begun; only the caller that receives true calls EndBatch.
// Readers that are awake see appended records at once.
func (j *Journal) BeginBatch() bool {
	return !j.batching.Load() && j.batching.CompareAndSwap(false, true)
}

// EndBatch ends a batch: it wakes the readers and the writer that BeginBatch held back.
func (j *Journal) EndBatch() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.batching.Store(false)
	if j.owed {
		j.owed = false
		j.notify()
	}
	if j.disk != nil {
		j.disk.endBatch()
	}
}

// Await waits until readers can see the event at p or a later one; with a log, until it is written. It returns at
// once for a position of another epoch.
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

// AwaitShown waits until readers can see everything appended so far.
func (j *Journal) AwaitShown(ctx context.Context) error {
	return j.Await(ctx, j.Appended())
}

// Appended returns the position of the last event that was appended to a journal. Readers may not see it yet.
func (j *Journal) Appended() Position {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return Position{Epoch: j.cfg.Epoch, Seq: j.nextSeq - 1}
}

// Shown returns the position of the last event of a journal that readers see. With a log it has been written.
func (j *Journal) Shown() Position {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return Position{Epoch: j.cfg.Epoch, Seq: j.shownSeq}
}

// AwaitStored is AwaitShown for readers of what is stored: it does not wait while a remote log refuses events.
func (j *Journal) AwaitStored(ctx context.Context) error {
	last := j.Appended()
	for {
		tick, cancel := context.WithTimeout(ctx, flowTick)
		err := j.Await(tick, last)
		cancel()
		if err == nil || ctx.Err() != nil || j.Degraded() != nil {
			return ctx.Err()
		}
	}
}

// Last returns the position of the last event; seq is 0 if there is none. With a log it never exceeds the reserved
// numbers.
func (j *Journal) Last() Position {
	j.mu.RLock()
	defer j.mu.RUnlock()
	seq := j.nextSeq - 1
	if j.disk != nil {
		seq = min(seq, j.disk.ceiling())
	}
	return Position{Epoch: j.cfg.Epoch, Seq: seq}
}

// epochNow is the journal's epoch.
func (j *Journal) epochNow() uint64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.cfg.Epoch
}

// Lookup returns the position of the durable event with an id.
func (j *Journal) Lookup(id ID) (Position, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	seq, ok := j.seen.durable.get(id)
	return Position{Epoch: j.cfg.Epoch, Seq: seq}, ok
}

// Seen reports whether a journal remembers an event of an id: Append would reject another one.
func (j *Journal) Seen(id ID) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.seen.has(id)
}

// First returns the position of the first stored event; seq is 0 if there is none.
func (j *Journal) First() Position {
	j.mu.RLock()
	if after, epoch := j.dropped(), j.cfg.Epoch; j.evicted > after {
		j.mu.RUnlock()
		if r, ok := j.disk.next(after); ok {
			return Position{Epoch: epoch, Seq: r.Pos.Seq}
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
	// The first record at or after p.Seq is a note of the previous event, or the event itself.
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
