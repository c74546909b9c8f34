// Package journal keeps what happened in one session, in order, for any number of
// readers. A reader is a cursor: it is never waited for, nothing is queued for it,
// and it is told, typed, when what it wanted is no longer kept.
//
// Two kinds of records share one order. Events come from the CLI and have a position
// (epoch, seq): seq is gapless within the epoch. Notes come from the bridge (a
// callback was resolved, the runtime restarted), have no position, and are for those
// who watch at the time. Events the CLI itself keeps are kept here for good;
// ephemeral ones and notes only up to a number of bytes.
package journal

import (
	"sort"
	"sync"
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
	// Note is the note; nil for an event.
	Note any

	off  uint64
	wire [numForms][]byte
}

// size is what the record counts for against the ephemeral limit.
func (r *Record) size() int { return len(r.JSON) + 128 }

// durable says whether the record is kept for good.
func (r *Record) durable() bool { return r.Note == nil && !r.Ephemeral }

// Config is what a journal is made with.
type Config struct {
	// Epoch is the journal's epoch; it must differ from every earlier one of the session.
	Epoch uint64
	// MaxEphemeralBytes bounds the ephemeral events and notes in memory; default 8 MiB.
	MaxEphemeralBytes int
	// Encode gives the wire form of an event.
	Encode Encoder
}

// DefaultMaxEphemeralBytes is the default of Config.MaxEphemeralBytes.
const DefaultMaxEphemeralBytes = 8 << 20

// Journal keeps the records of one session. Its methods may be called from any goroutine.
type Journal struct {
	cfg Config

	mu         sync.RWMutex
	records    []*Record // by off
	nextOff    uint64
	nextSeq    uint64
	ephemeral  int    // bytes of records that are not durable
	horizon    uint64 // every ephemeral event up to this seq has been dropped
	noteFloor  uint64 // every note below this off has been dropped
	seen       dedupe
	readers    map[*Reader]struct{}
	encodeLock sync.Mutex
	encoded    wires
}

// New returns an empty journal.
func New(cfg Config) *Journal {
	if cfg.MaxEphemeralBytes <= 0 {
		cfg.MaxEphemeralBytes = DefaultMaxEphemeralBytes
	}
	return &Journal{cfg: cfg, nextOff: 1, nextSeq: 1, readers: map[*Reader]struct{}{}, seen: newDedupe()}
}

// Append adds an event and gives it its position. It returns false, and adds nothing,
// when an event of the same id was added before: the CLI sends bursts of ephemeral
// events twice, the second time out of order. Append takes the record over.
func (j *Journal) Append(r *Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.seen.add(r.ID, r.Ephemeral) {
		return false
	}
	r.Pos = Position{j.cfg.Epoch, j.nextSeq}
	j.nextSeq++
	j.push(r)
	return true
}

// Note adds a note after the last event.
func (j *Journal) Note(v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.push(&Record{Pos: Position{j.cfg.Epoch, j.nextSeq - 1}, Note: v})
}

// TurnEnded tells the journal that a turn is over: ids of ephemeral events are
// remembered for the current turn and the one before.
func (j *Journal) TurnEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen.rotate()
}

// push appends r, trims, and wakes the readers. The caller holds mu.
func (j *Journal) push(r *Record) {
	r.off = j.nextOff
	j.nextOff++
	j.records = append(j.records, r)
	if !r.durable() {
		j.ephemeral += r.size()
		if j.ephemeral > j.cfg.MaxEphemeralBytes {
			j.trim()
		}
	}
	for reader := range j.readers {
		reader.notify()
	}
}

// trim drops the oldest records that are not durable until a quarter of the room is
// free, so that its cost is shared by the appends to come. The caller holds mu.
func (j *Journal) trim() {
	target := j.cfg.MaxEphemeralBytes / 4 * 3
	kept := make([]*Record, 0, len(j.records))
	for _, r := range j.records {
		if r.durable() || j.ephemeral <= target {
			kept = append(kept, r)
			continue
		}
		j.ephemeral -= r.size()
		if r.Note != nil {
			j.noteFloor = r.off + 1
		} else {
			j.horizon = r.Pos.Seq
		}
	}
	j.records = kept
}

// Last returns the position of the last event, with seq 0 when there is none.
func (j *Journal) Last() Position {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return Position{j.cfg.Epoch, j.nextSeq - 1}
}

// First returns the position of the first event that is still kept, with seq 0 when
// there is none.
func (j *Journal) First() Position {
	j.mu.RLock()
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
	defer j.mu.RUnlock()
	if p.Epoch != j.cfg.Epoch || p.Seq == 0 {
		return nil, false
	}
	// The first record at or after p.Seq is a note of the event before, or the event.
	i := sort.Search(len(j.records), func(i int) bool { return j.records[i].Pos.Seq >= p.Seq })
	if i < len(j.records) && j.records[i].Pos.Seq == p.Seq && j.records[i].Note == nil {
		return j.records[i], true
	}
	return nil, false
}

// Find returns the newest event that f accepts.
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

// Each calls f for every event that is kept, in order, until f returns false.
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
