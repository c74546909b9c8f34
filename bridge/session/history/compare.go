// Package history compares the CLI's history of a session with the bridge's journal and with what
// is pending, and decides what has to change. It is pure: it has no lock, clock or goroutine and
// makes no call; the session carries out what it decides.
//
// Whenever a session is loaded from the CLI's history, the journal is brought in step with it.
// What the CLI wrote and the journal lacks goes to the journal's end, if it is the end of the
// history too. Where the two cannot be tied like that, the journal begins a new epoch: readers
// are told, and read what happened in the history's order.
package history

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
)

// rewind is the event that tells that the history was cut by a call.
const rewind = "session.snapshot_rewind"

// Lookup finds an event's position in the journal.
type Lookup func(id journal.ID) (journal.Position, bool)

// Ordered reports whether what the journal lacks of the history comes after all it has.
// That those which both have are in another order is no matter: the CLI writes some later
// than it tells of them (an abort behind the end of the turn that it ended), and the journal
// has them as they happened. Nor is one that was written so late that it stands behind what
// the journal lacks, if it happened before that.
func Ordered(history []*journal.Record, lookup Lookup) bool {
	var newest uint64
	var since int64 // when the first that the journal lacks happened
	lacks := false
	for _, rec := range history {
		at, ok := lookup(rec.ID)
		switch {
		case rec.ID == journal.ID{}:
		case !ok && lacks:
			since = min(since, reorder.Timestamp(rec.JSON))
		case !ok:
			lacks, since = true, reorder.Timestamp(rec.JSON)
		case at.Seq <= newest:
		case lacks && !happenedBefore(rec, since):
			return false
		default:
			newest = at.Seq
		}
	}
	return true
}

// happenedBefore reports whether an event happened before a time, as far as can be told.
func happenedBefore(rec *journal.Record, t int64) bool {
	at := reorder.Timestamp(rec.JSON)
	return at > 0 && at < t
}

// Rewrite finds out whether a message that the journal has is no longer in the history although
// later ones are: another program has cut it. What is missing at the end is another matter: the
// CLI writes late, and a process that is killed takes the last of it along.
type Rewrite struct {
	there  map[journal.ID]bool
	newest uint64
	lacks  bool // the journal lacks a message of the history
	gone   bool
}

// NewRewrite begins with a history.
func NewRewrite(history []*journal.Record, lookup Lookup) *Rewrite {
	r := &Rewrite{there: map[journal.ID]bool{}}
	for _, rec := range history {
		if !saidByUser(rec) {
			continue
		}
		r.there[rec.ID] = true
		at, ok := lookup(rec.ID)
		r.newest, r.lacks = max(r.newest, at.Seq), r.lacks || !ok
	}
	return r
}

// Kept takes the next event of the journal, and reports that it wants more.
func (r *Rewrite) Kept(rec *journal.Record) bool {
	switch {
	case rec.Type == rewind:
		r.gone = false // readers were told
	case saidByUser(rec) && !r.there[rec.ID] && (r.lacks || rec.Pos.Seq < r.newest):
		r.gone = true
	}
	return true
}

// Found reports whether the history was cut.
func (r *Rewrite) Found() bool { return r.gone }

func saidByUser(rec *journal.Record) bool {
	return rec.Type == "user.message" && rec.Agent == "" && rec.ID != journal.ID{}
}

// Merge puts two records of the same session in one order: that of the history, with what
// only the journal has behind what it came after there. It returns copies, and those that
// only the history has.
func Merge(history, kept []*journal.Record) (all, fresh []*journal.Record) {
	own := map[journal.ID]bool{}
	for _, rec := range history {
		own[rec.ID] = rec.ID != journal.ID{}
	}
	behind := map[journal.ID][]*journal.Record{}
	known := map[journal.ID]*journal.Record{}
	var before journal.ID // zero: those at the beginning
	for _, rec := range kept {
		if own[rec.ID] {
			before, known[rec.ID] = rec.ID, rec
			continue
		}
		behind[before] = append(behind[before], rec)
	}
	put := func(recs ...*journal.Record) {
		for _, rec := range recs {
			again := journal.Record{Type: rec.Type, Agent: rec.Agent, ID: rec.ID, JSON: rec.JSON, Ephemeral: rec.Ephemeral, Bridge: rec.Bridge}
			all = append(all, &again)
		}
	}
	put(behind[journal.ID{}]...)
	for _, rec := range history {
		if k := known[rec.ID]; k != nil {
			rec = k
		} else {
			fresh = append(fresh, rec)
		}
		put(rec)
		if rec.ID != (journal.ID{}) {
			put(behind[rec.ID]...)
		}
	}
	return all, fresh
}
