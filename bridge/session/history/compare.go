// Package history compares the CLI's history of a session with the bridge's journal and the pending callbacks,
// and decides what to change. It has no lock, clock or goroutine and makes no call; the session carries out the
// decisions.
//
// Each load of a session from the CLI's history reconciles the journal. If the events that the journal lacks
// are the end of the history, they are appended. Otherwise the journal begins a new epoch: readers receive a
// Gap, and then the events in the history's order.
package history

import (
	"hash/fnv"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
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

// happenedBefore reports whether an event is known to have happened before a time.
func happenedBefore(rec *journal.Record, t int64) bool {
	at := reorder.Timestamp(rec.JSON)
	return at > 0 && at < t
}

// Rewrite finds out whether another program has removed messages from the history: the history lacks a message
// of the journal, and has a later one, or the session came to rest behind it. Other messages that are missing only at the end do
// not count, because the CLI writes with a delay, at the latest when the session rests, and loses the last messages when it is
// killed.
type Rewrite struct {
	lookup  Lookup
	there   map[journal.ID]bool
	newest  uint64
	lacks   bool      // the journal lacks a message of the history
	missing []missing // messages of the journal that the history lacks
	rewound bool
	from    uint64 // the number of the first event that calls have cut; 0 if one of them names an unknown event
}

// missing is a message that the history lacks, by its number. Behind one that is settled the session came to rest.
type missing struct {
	seq     uint64
	settled bool
}

// NewRewrite begins with a history.
func NewRewrite(history []*journal.Record, lookup Lookup) *Rewrite {
	r := &Rewrite{lookup: lookup, there: map[journal.ID]bool{}}
	for _, rec := range history {
		if !SaidByUser(rec) {
			continue
		}
		r.there[rec.ID] = true
		at, ok := lookup(rec.ID)
		r.newest, r.lacks = max(r.newest, at.Seq), r.lacks || !ok
	}
	return r
}

// Kept takes the next event of the journal.
func (r *Rewrite) Kept(rec *journal.Record) {
	switch {
	case rec.Type == rewind: // readers know of all that it has cut
		from, _ := r.lookup(journal.ParseID([]byte(event.Text(rec, "upToEventId")))) // of an unknown event: all
		r.missing = slices.DeleteFunc(r.missing, func(m missing) bool { return m.seq >= from.Seq })
		if !r.rewound || from.Seq < r.from {
			r.rewound, r.from = true, from.Seq
		}
	case rec.Type == "session.idle":
		for i := range r.missing {
			r.missing[i].settled = true
		}
	case SaidByUser(rec) && !r.there[rec.ID]:
		r.missing = append(r.missing, missing{seq: rec.Pos.Seq})
	}
}

// Found reports whether the history was cut.
func (r *Rewrite) Found() bool {
	return slices.ContainsFunc(r.missing, func(m missing) bool { return m.settled || r.lacks || m.seq < r.newest })
}

// Rewound reports whether the journal has an event that tells that a call has cut the history, and the number of the first
// event that such calls have cut.
func (r *Rewrite) Rewound() (from uint64, ok bool) { return r.from, r.rewound }

// Extent identifies the user's messages of a history. Its JSON is part of the session's saved form.
type Extent struct {
	// Messages is their number, Sum a hash of their ids in order.
	Messages int    `json:"messages"`
	Sum      uint64 `json:"sum"`
}

// ExtentOf returns the extent of a history, of its first messages at most.
func ExtentOf(history []*journal.Record, most int) (x Extent) {
	sum := fnv.New64a()
	for _, rec := range history {
		if SaidByUser(rec) && x.Messages < most {
			x.Messages++
			_, _ = sum.Write(rec.ID[:]) // never fails
		}
	}
	x.Sum = sum.Sum64()
	return x
}

// SaidByUser reports whether an event is a user's message.
func SaidByUser(rec *journal.Record) bool {
	return rec.Type == "user.message" && rec.Agent == "" && rec.ID != journal.ID{}
}

// Merge merges the events of the history and of the journal. The history decides the order; an event that only
// the journal has follows its predecessor. Merge returns copies: all events, and the events that the journal
// lacked.
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
