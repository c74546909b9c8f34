package journal

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const epoch = 7

func durable(n int) *Record {
	return &Record{Type: "d", ID: ParseID(fmt.Append(nil, "d", n)), JSON: make([]byte, 100)}
}

func ephemeral(n int) *Record {
	return &Record{Type: "e", ID: ParseID(fmt.Append(nil, "e", n)), JSON: make([]byte, 100), Ephemeral: true}
}

// roomFor is a journal that keeps n ephemeral records of the size used here.
func roomFor(n int) *Journal { return New(Config{Epoch: epoch, MaxEphemeralBytes: n * 228}) }

func reader(t *testing.T, j *Journal, after Position, ephemeral bool, wake func()) *Reader {
	t.Helper()
	r, err := j.NewReader(after, ephemeral, wake)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func nothing() {}

// read reads to the end, and returns what it got as words.
func read(t *testing.T, r *Reader) (got []string) {
	t.Helper()
	for {
		records, gap := r.Next(nil, 1000)
		if gap != nil {
			word := fmt.Sprintf("gap %d-%d", gap.From.Seq, gap.To.Seq)
			if gap.Reason == EpochEnded {
				word = fmt.Sprintf("epoch %d-%d", gap.From.Epoch, gap.To.Epoch)
			}
			if gap.NotesLost {
				word += " notes"
			}
			got = append(got, word)
			continue
		}
		if len(records) == 0 {
			return got
		}
		for _, rec := range records {
			if rec.Note != nil {
				got = append(got, fmt.Sprint("note ", rec.Note))
			} else {
				got = append(got, fmt.Sprint(rec.Type, rec.Pos.Seq))
			}
		}
	}
}

func TestPositionsAreGapless(t *testing.T) {
	t.Parallel()
	j := roomFor(100)
	if got := j.Last(); got != (Position{Epoch: epoch, Seq: 0}) {
		t.Errorf("last of an empty journal is %v", got)
	}
	if got := j.First(); got != (Position{Epoch: epoch, Seq: 0}) {
		t.Errorf("first of an empty journal is %v", got)
	}
	j.Note("n")
	for i := range 10 {
		rec := durable(i)
		if !j.Append(rec) || j.Append(durable(i)) {
			t.Fatal("not appended exactly once")
		}
		j.Note(i)
		if want := (Position{Epoch: epoch, Seq: uint64(i + 1)}); rec.Pos != want || j.Last() != want {
			t.Errorf("event %d is at %v, the last at %v, want %v", i, rec.Pos, j.Last(), want)
		}
		if got, ok := j.Get(rec.Pos); !ok || got != rec {
			t.Errorf("Get(%v) gives %v", rec.Pos, got)
		}
	}
	for _, p := range []Position{{}, {Epoch: epoch, Seq: 0}, {Epoch: epoch, Seq: 11}, {Epoch: epoch - 1, Seq: 3}, {Epoch: epoch + 1, Seq: 3}} {
		if rec, ok := j.Get(p); ok {
			t.Errorf("Get(%v) gives %v", p, rec)
		}
	}
	if got, ok := j.Find(func(r *Record) bool { return r.Pos.Seq < 5 }); !ok || got.Pos.Seq != 4 {
		t.Errorf("Find gives %v", got)
	}
	var seen []uint64
	j.Each(func(r *Record) bool { seen = append(seen, r.Pos.Seq); return len(seen) < 3 })
	if !slices.Equal(seen, []uint64{1, 2, 3}) {
		t.Errorf("Each gives %v", seen)
	}
}

func TestReadersBegin(t *testing.T) {
	t.Parallel()
	j := roomFor(100)
	for i := range 3 {
		j.Append(durable(i))
		j.Note(i)
	}
	for name, test := range map[string]struct {
		after Position
		want  []string
		err   error
	}{
		"at the beginning": {after: Position{}, want: []string{"d1", "d2", "d3", "d4", "note late"}},
		"after seq 0":      {after: Position{Epoch: epoch, Seq: 0}, want: []string{"d1", "d2", "d3", "d4", "note late"}},
		"in the middle":    {after: Position{Epoch: epoch, Seq: 2}, want: []string{"d3", "d4", "note late"}},
		"at the end":       {after: Position{Epoch: epoch, Seq: 3}, want: []string{"d4", "note late"}},
		"in the future":    {after: Position{Epoch: epoch, Seq: 4}, err: ErrFuture},
		"in an epoch that was lost": {after: Position{Epoch: epoch + 1, Seq: 1},
			want: []string{"epoch 8-7", "d1", "d2", "d3", "d4", "note late"}},
		"in an epoch before": {after: Position{Epoch: epoch - 1, Seq: 99},
			want: []string{"epoch 6-7", "d1", "d2", "d3", "d4", "note late"}},
	} {
		r, err := j.NewReader(test.after, true, nothing)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if got := read(t, r); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
			r.Close()
		})
	}
	j.Append(durable(3))
	j.Note("late")
}

func TestTrimKeepsDurable(t *testing.T) {
	t.Parallel()
	j := roomFor(8)
	before := reader(t, j, Position{}, true, nothing)
	durableOnly := reader(t, j, Position{}, false, nothing)
	for i := range 4 {
		j.Append(durable(i))
		j.Append(ephemeral(i))
	}
	half := reader(t, j, Position{Epoch: epoch, Seq: 6}, true, nothing)
	for i := 4; i < 9; i++ { // the ninth ephemeral event is one too many: three go
		j.Append(ephemeral(i))
	}
	want := []string{"gap 0-6", "d1", "d3", "d5", "d7", "e8", "e9", "e10", "e11", "e12", "e13"}
	for name, test := range map[string]struct {
		r    *Reader
		want []string
	}{
		"from before":         {before, want},
		"from the beginning":  {reader(t, j, Position{}, true, nothing), want},
		"after what was lost": {half, want[4:]},
		"at the horizon":      {reader(t, j, Position{Epoch: epoch, Seq: 6}, true, nothing), want[4:]},
		"just before": {reader(t, j, Position{Epoch: epoch, Seq: 5}, true, nothing),
			append([]string{"gap 5-6"}, want[4:]...)},
		"who does not want them": {durableOnly, want[1:]},
	} {
		if got := read(t, test.r); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := j.First(); got.Seq != 1 {
		t.Errorf("first is %v", got)
	}
	for i := 9; i < 30; i++ {
		j.Append(ephemeral(i))
	}
	if got := read(t, before)[0]; got != "gap 13-28" {
		t.Errorf("the second loss is told as %q", got)
	}
}

func TestEachLossIsToldOnce(t *testing.T) {
	t.Parallel()
	j := roomFor(8)
	r := reader(t, j, Position{}, true, nothing)
	for i := range 9 {
		j.Append(ephemeral(i))
	}
	if _, gap := r.Next(nil, 1); gap == nil || gap.To.Seq != 3 {
		t.Fatalf("gap is %+v", gap)
	}
	j.Append(ephemeral(9))
	j.Append(ephemeral(10))
	j.Append(ephemeral(11)) // more is lost before it has read on
	if _, gap := r.Next(nil, 1); gap == nil || gap.To.Seq != 6 {
		t.Fatalf("gap is %+v", gap)
	}
	if got := read(t, r); !slices.Equal(got, []string{"e7", "e8", "e9", "e10", "e11", "e12"}) {
		t.Errorf("got %q", got)
	}
}

// A reader receives a gap for lost notes, also if its filter excludes ephemeral events, and also if it had not
// reached its first note.
func TestLostNotesAreTold(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]int{"reader at the end": 0, "reader behind": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := roomFor(8)
			for i := range ahead {
				j.Append(durable(i))
			}
			r := reader(t, j, Position{}, false, nothing)
			j.Note("lost")
			for i := range 9 {
				j.Append(ephemeral(i))
			}
			_, gap := r.Next(nil, 1)
			if gap == nil || !gap.NotesLost {
				t.Fatalf("gap is %+v", gap)
			}
			if got := read(t, r); slices.ContainsFunc(got,
				func(w string) bool { return strings.HasPrefix(w, "gap") || strings.HasPrefix(w, "note") }) {
				t.Errorf("then: %q", got)
			}
		})
	}
}

func TestNextStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	j := roomFor(100)
	for i := range 10 {
		j.Append(durable(i))
	}
	r := reader(t, j, Position{}, true, nothing)
	for _, test := range []struct{ bytes, want int }{{1, 1}, {100, 1}, {101, 2}, {300, 3}, {10_000, 3}} {
		records, gap := r.Next(nil, test.bytes)
		if len(records) != test.want || gap != nil {
			t.Errorf("%d bytes give %d records and gap %v, want %d", test.bytes, len(records), gap, test.want)
		}
	}
	if got := r.Position(); got != j.Last() {
		t.Errorf("the reader is at %v", got)
	}
}

func TestWakesOnceForEachSleep(t *testing.T) {
	t.Parallel()
	j := roomFor(100)
	woken := 0
	r := reader(t, j, Position{}, true, func() { woken++ })
	step := func(do string, want int) {
		t.Helper()
		switch do {
		case "append":
			j.Append(&Record{JSON: []byte("{}")})
		case "note":
			j.Note("n")
		case "read":
			read(t, r)
		case "close":
			r.Close()
		}
		if woken != want {
			t.Errorf("after %s: woken %d times, want %d", do, woken, want)
		}
	}
	for _, s := range []struct {
		do   string
		want int
	}{{"append", 0}, {"read", 0}, {"append", 1}, {"append", 1}, {"read", 1}, {"note", 2}, {"read", 2}, {"close", 2},
		{"append", 2}} {
		step(s.do, s.want)
	}
}

// Readers that sleep until they are woken see everything while many write.
// Encoded forms are kept up to a size, and made again for who comes later.
func TestWiresAreBounded(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	encoded := 0
	j := New(Config{Epoch: epoch, Encode: func(*Record, Form) []byte {
		encoded++
		return make([]byte, size)
	}})
	var records []*Record
	for i := range 4 * maxWireBytes / size {
		r := durable(i)
		j.Append(r)
		records = append(records, r)
		j.Wire(nil, []*Record{r}, Tidy)
		j.Wire(nil, []*Record{r}, Tidy)
	}
	if encoded != len(records) {
		t.Errorf("encoded %d times, want %d: once for readers that are together", encoded, len(records))
	}
	kept := 0
	for _, r := range records {
		kept += len(r.tidy)
	}
	if kept == 0 || kept > maxWireBytes || kept != j.encoded.bytes {
		t.Errorf("%d bytes are kept and %d counted, want at most %d", kept, j.encoded.bytes, maxWireBytes)
	}
	if n := len(j.encoded.queue); n > 2*maxWireBytes/size+2 {
		t.Errorf("the queue has %d entries", n)
	}
	if got := j.Wire(nil, records[:1], Tidy); len(got[0]) != size || encoded != len(records)+1 {
		t.Errorf("the first event came as %d bytes after %d encodings", len(got[0]), encoded)
	}
}

func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	const writers, each, readers = 4, 2000, 4
	j := New(Config{Epoch: epoch})
	var work sync.WaitGroup
	for range readers {
		signal := make(chan struct{}, 1)
		r := reader(t, j, Position{}, true, func() {
			select {
			case signal <- struct{}{}:
			default:
			}
		})
		work.Go(func() {
			seq := uint64(0)
			for seq < writers*each {
				records, gap := r.Next(nil, 4096)
				if gap != nil {
					t.Errorf("gap %+v", gap)
					return
				}
				if len(records) == 0 {
					<-signal // a lost wake-up ends in the test's timeout
					continue
				}
				for _, rec := range records {
					if seq++; rec.Pos.Seq != seq {
						t.Errorf("seq %d follows %d", rec.Pos.Seq, seq-1)
						return
					}
				}
			}
		})
	}
	for range writers {
		work.Go(func() {
			for range each {
				j.Append(&Record{Ephemeral: true, JSON: []byte("{}")})
			}
		})
	}
	work.Wait()
}

// An event that comes just when a reader falls asleep wakes it. Each round is one such race.
func TestEventWhileFallingAsleep(t *testing.T) {
	t.Parallel()
	const rounds = 50_000
	j := New(Config{Epoch: epoch})
	signal := make(chan struct{}, 1)
	r := reader(t, j, Position{}, true, func() {
		select {
		case signal <- struct{}{}:
		default:
		}
	})
	var got atomic.Int64
	var work sync.WaitGroup
	work.Go(func() {
		for got.Load() < rounds {
			records, _ := r.Next(nil, 4096)
			if len(records) > 0 {
				got.Add(int64(len(records))) // the writer goes on, and this goroutine falls asleep
				continue
			}
			select {
			case <-signal:
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Second):
				t.Error("a wake-up is lost")
				got.Store(rounds)
			}
		}
	})
	work.Go(func() {
		for sent := int64(0); sent < rounds; sent++ {
			for got.Load() < sent {
				runtime.Gosched()
			}
			j.Append(&Record{Ephemeral: true, JSON: []byte("{}")})
		}
	})
	work.Wait()
}

func TestWireIsEncodedOnce(t *testing.T) {
	t.Parallel()
	var encoded atomic.Int32
	j := New(Config{Epoch: epoch, Encode: func(r *Record, f Form) []byte {
		encoded.Add(1)
		return fmt.Appendf(nil, "%s%d", r.Type, f)
	}})
	j.Append(durable(1))
	j.Note("n")
	j.Append(ephemeral(1))
	var work sync.WaitGroup
	for range 8 {
		r := reader(t, j, Position{}, true, nothing)
		work.Go(func() {
			records, _ := r.Next(nil, 1<<20)
			for range 2 {
				wire := j.Wire(nil, records, Exact)
				if fmt.Sprintf("%q", wire) != `["d1" "e1"]` {
					t.Errorf("wire is %q", wire)
				}
			}
		})
	}
	work.Wait()
	if n := encoded.Load(); n != 2 {
		t.Errorf("encoded %d times", n)
	}
	all := []*Record{{Type: "a"}, {Note: "n"}, {Type: "b"}}
	if wire := j.Wire(nil, all, TidyOriginal); len(wire) != 3 || wire[1] != nil || string(wire[2]) != "b2" {
		t.Errorf("wire is %q", wire)
	}
}
