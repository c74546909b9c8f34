package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// place is a position, as a key.
type place struct{ epoch, seq uint64 }

func placeOf(p *bridgev1.Position) place { return place{p.GetEpoch(), p.GetSeq()} }

func (p place) before(q place) bool { return p.epoch < q.epoch || p.epoch == q.epoch && p.seq < q.seq }

func (p place) proto() *bridgev1.Position { return &bridgev1.Position{Epoch: p.epoch, Seq: p.seq} }

// taste is a filter of events.
type taste int

// The filters of readers.
const (
	everything taste = iota
	ordinary         // all but the large ones
	durableOnly
	spoken // prompts and answers
	tastes
)

func (t taste) filter() *bridgev1.EventFilter {
	switch t {
	case everything:
		return &bridgev1.EventFilter{IncludeLarge: true}
	case durableOnly:
		return &bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true}
	case spoken:
		return &bridgev1.EventFilter{Types: []string{"assistant.message", "user.*"}}
	default:
		return nil
	}
}

// passes says whether a reader of the taste gets an event.
func (t taste) passes(e entry) bool {
	switch t {
	case everything:
		return true
	case durableOnly:
		return !e.ephemeral
	case spoken:
		return e.kind == "assistant.message" || strings.HasPrefix(e.kind, "user.")
	default:
		return e.kind != "system.message" && e.kind != "model.messages_snapshot"
	}
}

// entry is an event at its place.
type entry struct {
	at        place
	id, kind  string
	ephemeral bool
}

// kept says whether a journal keeps the event for good.
func (e entry) kept() bool { return !e.ephemeral || journal.KeptTypes[e.kind] }

func entryOf(e *bridgev1.Event) entry {
	return entry{at: placeOf(e.GetPosition()), id: e.GetEvent().GetId(), kind: e.GetEvent().GetEventType(),
		ephemeral: e.GetEvent().GetEphemeral()}
}

// positions are the positions that readers got, of all sessions.
type positions struct {
	mu    sync.Mutex
	given map[string]map[place]string
}

// give notes that an event is at a place, and returns what is there already.
func (p *positions) give(session string, e entry) (other string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.given[session]
	if of == nil {
		of = map[place]string{}
		p.given[session] = of
	}
	if id, ok := of[e.at]; ok && id != e.id {
		return id
	}
	of[e.at] = e.id
	return ""
}

// of returns the positions of a session.
func (p *positions) of(session string) map[place]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.given[session])
}

// track is the view of one reader of a session, over all its streams.
type track struct {
	w       *world
	name    string
	session string
	taste   taste

	mu     sync.Mutex
	open   bool    // begin is known
	begin  place   // its stream begins after this
	at     place   // it has come to here
	loose  place   // up to here events may be missing
	lost   []place // pairs: durable events may be missing in between
	events []entry // since begin
	gaps   map[bridgev1.GapReason]int
	closed bool
	moved  chan struct{} // closed and replaced when at moves
}

func newTrack(w *world, name, session string, t taste) *track {
	return &track{w: w, name: name, session: session, taste: t, gaps: map[bridgev1.GapReason]int{},
		moved: make(chan struct{})}
}

func (t *track) violated(format string, args ...any) {
	t.w.rec.violated("%s of session %s at %v: %s", t.name, t.session, t.at, fmt.Sprintf(format, args...))
}

// resume is where a new stream begins, nil for the first.
func (t *track) resume() *bridgev1.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return nil
	}
	return t.at.proto()
}

// frame takes a frame of a stream.
func (t *track) frame(f *bridgev1.SubscribeResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := placeOf(f.GetResumeAfter())
	switch {
	case f.GetGoAway() != nil:
		return
	case f.GetStarted() != nil:
		if t.open && after != t.at {
			t.violated("a stream that was to go on there begins at %v", after)
		}
		if !t.open {
			t.open, t.begin, t.at = true, after, after
		}
		return
	case f.GetEvents() != nil:
		for _, e := range f.GetEvents().GetEvents() {
			t.event(entryOf(e))
		}
	case f.GetGap() != nil:
		t.gap(f.GetGap())
	case f.GetClosed() != nil:
		t.closed = true
	}
	if after.before(t.at) {
		t.violated("a frame says that the stream has come to %v", after)
	}
	known := t.known()
	if f.GetTurnEnded() != nil || f.GetMessageResent() != nil {
		known.seq++ // these may have a position
	}
	if t.taste == everything && t.at != after && known.before(after) {
		t.violated("went on to %v without an event: %v", after, f)
	}
	t.at = after
	close(t.moved)
	t.moved = make(chan struct{})
}

// event takes one event. The caller holds mu.
func (t *track) event(e entry) {
	if !t.at.before(e.at) || e.at.epoch != t.at.epoch {
		t.violated("then comes %v, %s", e.at, e.kind)
	}
	if t.taste == everything && t.known().seq+1 < e.at.seq {
		t.violated("then comes %v, %s, and no gap was told", e.at, e.kind)
	}
	if !t.taste.passes(e) {
		t.violated("it has no wish for %s", e.kind)
	}
	if other := t.w.positions.give(t.session, e); other != "" {
		t.violated("%v was given to %s, and now to %s", e.at, other, e.id)
	}
	t.at = e.at
	t.events = append(t.events, e)
}

// known is where the next event comes after at the latest. The caller holds mu.
func (t *track) known() place {
	if t.at.before(t.loose) {
		return t.loose
	}
	return t.at
}

// gap takes a gap. The caller holds mu.
func (t *track) gap(g *bridgev1.Gap) {
	t.gaps[g.GetReason()]++
	after, through := placeOf(g.GetAfter()), placeOf(g.GetThrough())
	switch g.GetReason() {
	case bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST:
	case bridgev1.GapReason_GAP_REASON_TRIMMED:
		t.lost = append(t.lost, after, through)
	case bridgev1.GapReason_GAP_REASON_EPOCH_ENDED:
		t.begin, t.at, t.events, t.lost = through, through, nil, nil
	default:
		t.violated("a gap without a reason: %v", g)
	}
	if t.loose.before(through) {
		t.loose = through
	}
}

// reached waits until the track has come to a place. It need not if it is over.
func (t *track) reached(ctx context.Context, end place, over <-chan struct{}) bool {
	for {
		t.mu.Lock()
		at, moved := t.at, t.moved
		t.mu.Unlock()
		if !at.before(end) {
			return true
		}
		select {
		case <-moved:
		case <-over:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
