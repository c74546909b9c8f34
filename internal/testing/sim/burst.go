package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
)

// streamed are the pieces of answers that CLI processes have sent, and what the reader has got of them.
type streamed struct {
	pieces map[string]*piece // by their JSON
	// count is how many have happened before those of the burst that goes on.
	count, got, last int
	// late: the bridge may have handed pieces on before others, since those took too long.
	late bool
	// trimmed: more events came at once than the journal keeps.
	trimmed bool
	// watched: the bridge may hold events back: the CLI has sent second copies, or many events, since the session was idle.
	watched bool
}

// The size of a burst: pieces of text before the CLI falls behind, those that it sends again, those that it sends too early, and those
// behind them.
const (
	burstInTime = 8
	burstAgain  = 12
	burstEarly  = 12
	burstRest   = 8
)

// manyPieces make a burst without a second copy.
const manyPieces = reorder.BurstEvents/2 + 1

// burst is a part of an answer that the CLI sends in other orders than that in which it has happened.
type burst struct {
	*happening
	c       *cli
	crashes int
	// next are the next pieces: those that are sent from memory, new ones, and second copies of both.
	slow, fast, copies, earlyCopies int
}

// stream has the agent stream a part of its answer, or something happen while it is idle. The CLI falls behind, sends a second copy of
// what it sent before, and then two queues in turns: what it has not sent yet, from its memory, and what happens meanwhile. Each queue
// is in order. It may also pause amid them, for longer than the bridge waits in one of six bursts.
func (w *world) burst(n int) {
	loaded := w.s.Loader().State() == session.Loaded
	w.mu.Lock()
	c := w.cli
	streams := c != nil && loaded && c.phase == thinking && !w.reader.away
	w.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	if !streams {
		w.remark()
		return
	}
	many := n%12 == 11
	if many { // the bridge counts from its beginning
		time.Sleep(reorder.Patience)
	}
	b := &burst{c: c, crashes: w.crashes}
	w.mu.Lock()
	b.happening = w.newHappening(rand.New(rand.NewPCG(uint64(n), w.ids))) //nolint:gosec // a run is made from its seed
	w.streamed.late = false
	inTime, slowly := burstInTime, many && b.rng.IntN(2) == 0
	if b.steady = slowly; many {
		b.pieces(manyPieces - burstInTime*6)
		inTime, b.steady = burstInTime*6, true // a pause where the bridge begins to watch would look like what is missing
	}
	b.pieces(inTime)
	head := len(b.order)
	b.pieces(2)
	b.slow = len(b.order)
	ahead := []time.Duration{7 * time.Millisecond, 60 * time.Millisecond, time.Second, 1600 * time.Millisecond}[b.rng.IntN(4)]
	if b.pieces(burstAgain); !many && b.rng.IntN(4) == 0 {
		b.again()
		ahead += leastPause
	}
	b.fast = len(b.order)
	b.at, b.sized, b.steady = b.at.Add(ahead), ahead < leastPause, false
	early := b.extreme(n)
	b.pieces(burstRest)
	w.skew += b.at.Sub(time.Now().UTC().Add(w.skew))
	w.mu.Unlock()
	b.begin(head, many, slowly)
	again := b.fast
	if n >= extremes {
		b.fill(early, n > extremes)
	}
	b.mix(again, early, n)
	b.say(early, len(b.order))
	b.end()
	w.restart(n)
}

// extremes is the first of three bursts of which more comes early than in the others: nearly as many events as the bridge holds back, as
// many, and more bytes.
const extremes = 36

// extreme makes the events that come early, and returns where they end.
func (b *burst) extreme(n int) (end int) {
	from := len(b.order)
	b.steady = n >= extremes // then all have a place
	b.pieces(burstEarly)
	switch n {
	case extremes, extremes + 1:
		b.pieces(reorder.MaxRun / 2)
		return from + reorder.MaxRun - 1 + n - extremes
	case extremes + 2:
		b.longer = strings.Repeat("x", reorder.MaxBytes/16)
		b.pieces(16)
		b.longer = ""
	}
	return len(b.order)
}

// fill sends what comes early at once. At the bounds the bridge hands it on, the last of it at least to readers that are slow.
func (b *burst) fill(early int, hands bool) {
	from := b.fast
	b.say(from, early)
	b.fast = early
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if last := b.order[early-1]; b.w.readsAtOnce() && last.got != hands {
		b.w.failures = append(b.w.failures, fmt.Sprintf("%d pieces of an answer come early, and the reader gets them: %v", early-from, last.got))
	}
	b.w.streamed.late, b.w.streamed.trimmed = hands, b.w.streamed.trimmed || hands
}

// begin sends what comes in time. The bridge can know then that the CLI is behind: it has got many events in a short time, by its clock
// or by that of the CLI, or second copies.
func (b *burst) begin(head int, many, slowly bool) {
	if slowly {
		for i := range 4 {
			b.say(head*i/4, head*(i+1)/4)
			time.Sleep(600 * time.Millisecond)
		}
	} else {
		b.say(0, head)
	}
	b.w.mu.Lock()
	b.w.streamed.watched = true
	b.w.mu.Unlock()
	if !many {
		for copies := 1 + b.rng.IntN(3); copies > 0; {
			if b.repeat(&b.copies, head) {
				copies--
			}
		}
	}
	b.say(head, b.slow)
}

// mix sends both queues in turns.
func (b *burst) mix(again, early, n int) {
	b.earlyCopies = again
	for pauses := 0; b.slow < again || b.fast < early; {
		k := 1 + b.rng.IntN(8)
		if b.fast > again && b.slow < again && b.rng.IntN(2) == 0 { // who is early is so by some pieces
			b.say(b.slow, min(b.slow+k, again))
			b.slow = min(b.slow+k, again)
			if pauses < 3 && b.rng.IntN(6) == 0 { // the next one is in time
				pauses++
				time.Sleep(reorder.Patience * 3 / 4)
			}
		} else if b.fast < early {
			b.say(b.fast, min(b.fast+k, early))
			b.fast = min(b.fast+k, early)
		}
		switch b.rng.IntN(8) {
		case 0, 1, 2:
			b.repeat(&b.copies, b.slow)
		case 3:
			b.repeat(&b.earlyCopies, b.fast)
		case 4:
			if n%6 == 5 {
				b.pause()
			}
		}
	}
}

// say sends pieces.
func (b *burst) say(from, to int) {
	b.w.mu.Lock()
	for _, p := range b.order[from:to] {
		b.c.notify(p.json)
		p.arrived = true
	}
	b.w.mu.Unlock()
	synctest.Wait()
	b.check(false)
}

// repeat sends a second copy of the next piece, and reports whether that has one.
func (b *burst) repeat(next *int, before int) bool {
	if *next >= before {
		return false
	}
	p := b.order[*next]
	*next++
	if !p.id || !p.arrived || p.copied {
		return false
	}
	p.copied = true
	b.c.notify(p.json)
	synctest.Wait()
	return true
}

// pause lets the time go by in which the rest of a burst should have come: then the reader has what there is.
func (b *burst) pause() {
	b.w.mu.Lock()
	b.w.streamed.late = true
	b.w.mu.Unlock()
	time.Sleep(reorder.Patience + instant)
	synctest.Wait()
	b.check(true)
}

// end lets the burst end with a pause, or an event that the CLI stores.
func (b *burst) end() {
	if b.rng.IntN(2) == 0 {
		time.Sleep(reorder.Patience + instant)
	} else {
		b.w.also(func(c *cli) { c.help(2) })
	}
	synctest.Wait()
	b.check(true)
	b.w.mu.Lock()
	b.w.streamed.count += len(b.order)
	b.w.mu.Unlock()
}

// check: the reader has the pieces that have arrived with all before them, but for the last texts, which may be more than what is
// missing; and all that have arrived if nothing may be held back.
func (b *burst) check(all bool) {
	w := b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.readsAtOnce() || w.crashes != b.crashes || w.cli != b.c {
		return
	}
	arrived := 0
	for arrived < len(b.order) && b.order[arrived].arrived {
		arrived++
	}
	for texts := 0; arrived > 0 && texts < 2; arrived-- {
		if b.order[arrived-1].text {
			texts++
		}
	}
	for i, p := range b.order {
		if must := all && !w.streamed.trimmed || !p.timed || i < arrived && !w.streamed.late; must && p.arrived && !p.got {
			w.failures = append(w.failures, fmt.Sprintf("piece %d of an answer is kept from the reader: %s", p.place, p.json))
			return
		}
	}
}

// readsAtOnce reports whether the reader gets at once what the CLI sends. The caller holds the world's lock.
func (w *world) readsAtOnce() bool {
	return w.lives(w.life) && w.cli != nil && w.cli.loaded && !w.reader.away && !w.variant.narrow() && !w.failed && w.release == nil && !w.clustered &&
		w.disconnects == 0 && w.deletion.underway == 0
}

// remark has something happen outside of a burst: the reader gets it at once.
func (w *world) remark() {
	loaded := w.s.Loader().State() == session.Loaded
	w.mu.Lock()
	c := w.cli
	if !loaded || !w.readsAtOnce() {
		w.mu.Unlock()
		return
	}
	h := &happening{w: w, rng: rand.New(rand.NewPCG(w.ids, 2)), at: time.Now().UTC().Add(w.skew)} //nolint:gosec // a run is made from its seed
	h.happens("assistant.streaming_delta", `{"totalResponseSizeBytes":100}`, false)
	w.streamed.count++
	c.notify(h.order[0].json)
	w.mu.Unlock()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := h.order[0]
	if !p.got && !w.streamed.watched && w.readsAtOnce() && w.cli == c {
		w.failures = append(w.failures, "an event that comes outside of a burst is kept from the reader: "+p.json)
	}
	if !p.got { // the session may end
		delete(w.streamed.pieces, p.json)
	}
}

// stream notes a piece that the reader gets. The caller holds the world's lock.
func (w *world) stream(rec *journal.Record) {
	s := &w.streamed
	if rec.Type == "session.idle" {
		s.watched = false
	}
	p := s.pieces[string(rec.JSON)]
	switch {
	case p == nil:
		return
	case p.got:
		w.failures = append(w.failures, fmt.Sprintf("the reader gets piece %d of an answer twice: %s", p.place, p.json))
	case p.place < s.last && !s.late && p.timed:
		w.failures = append(w.failures, fmt.Sprintf("the reader gets piece %d of an answer behind piece %d: %s", p.place, s.last, p.json))
	}
	if !p.got {
		p.got = true
		s.got++
	}
	if p.timed {
		s.last = max(s.last, p.place)
	}
}

// checkStreamed: the reader has got all pieces, unless a process has ended or the memory is too small for them.
func (w *world) checkStreamed() {
	if n := len(w.streamed.pieces); w.crashes == 0 && !w.variant.narrow() && !w.streamed.trimmed && w.streamed.got != n {
		w.fail("the reader has got %d of %d pieces of answers", w.streamed.got, n)
	}
}
