package journal

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// One event in the middle of a journal of many files is damaged: readers receive a gap in its place, and all
// other events keep their positions.
func TestDamagedMiddle(t *testing.T) {
	t.Parallel()
	l := begin(t, &faultfs.FS{}, WriterConfig{SegmentBytes: 1000})
	for i := range 50 {
		l.j.Append(durable(i))
		l.awaitShown()
	}
	l.close()
	name, offset := frameOf(l.fs, ParseID([]byte("d20")))
	l.fs.Content(name)[offset] ^= 1
	want := slices.Concat(words(1, 20, "d"), []string{"gap 20-21"}, words(22, 50, "d"))
	for life := range 3 {
		l = begin(t, l.fs, WriterConfig{SegmentBytes: 1000})
		if l.rec.Lost != (life == 0) || l.rec.Events != 49+life || len(l.rec.SetAside) > 0 ||
			l.j.Last() != (Position{Epoch: epoch, Seq: uint64(50 + life)}) {
			t.Errorf("life %d: recovered %+v, the journal is at %v", life, l.rec, l.j.Last())
		}
		check(t, "from the beginning", read(t, reader(t, l.j, Position{}, false, nothing)), want)
		check(t, "from the event before", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 20}, false, nothing)), want[20:])
		check(t, "from the damaged event", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 21}, false, nothing)), want[21:])
		if _, ok := l.j.Get(Position{Epoch: epoch, Seq: 21}); ok {
			t.Error("the damaged event is there")
		}
		if rec, ok := l.j.Get(Position{Epoch: epoch, Seq: 22}); !ok || rec.ID != ParseID([]byte("d21")) {
			t.Errorf("behind the damage is %+v", rec)
		}
		l.j.Append(durable(100 + life))
		l.awaitShown()
		l.close()
		want = append(want, fmt.Sprint("d", 51+life))
	}
}

// An event is damaged while the process runs: readers receive a gap in its place, also after a restart.
func TestDamagedWhileOpen(t *testing.T) {
	t.Parallel()
	l := begin(t, &faultfs.FS{}, WriterConfig{SegmentBytes: 1000, Fsync: FsyncAlways})
	for i := range 50 {
		l.j.Append(durable(i))
		l.awaitShown()
	}
	l.j.shrink() // all of it is read from disk
	name, offset := frameOf(l.fs, ParseID([]byte("d20")))
	l.fs.Content(name)[offset] ^= 1
	want := slices.Concat(words(1, 20, "d"), []string{"gap 20-21"}, words(22, 50, "d"))
	check(t, "while open", read(t, reader(t, l.j, Position{}, false, nothing)), want)
	check(t, "a second reader", read(t, reader(t, l.j, Position{}, false, nothing)), want)
	if err := l.fs.RemoveAll(l.fs.Names()[5]); err != nil {
		t.Fatal(err)
	}
	without := read(t, reader(t, l.j, Position{}, false, nothing))
	if len(without) >= len(want) || without[len(without)-1] != "d50" {
		t.Errorf("without a file are read %v", without)
	}
	l.close()
	l = begin(t, l.fs, WriterConfig{SegmentBytes: 1000})
	check(t, "in the next life", read(t, reader(t, l.j, Position{}, false, nothing)), without)
	l.close()
}

// frameOf returns the file and the offset of an event's id: in the journal's own file, or else in the joint log.
func frameOf(fs *faultfs.FS, id ID) (name string, offset int) {
	for _, name := range slices.Backward(fs.Names()) { // "s/…" is behind "joint/…"
		if at := bytes.Index(fs.Content(name), id[:]); at >= 0 {
			return name, at
		}
	}
	return "", -1
}

// Damage of every kind, seeded: the journal opens, keeps every event that was not hit at its
// position, tells of every one that was, and never gives a number twice.
func TestSeededDamage(t *testing.T) {
	t.Parallel()
	lives := []*damaged{newDamaged(t, true), newDamaged(t, false)}
	for seed := range uint64(500 / race.Sample(10)) {
		lives[seed%2].run(t, seed)
	}
}

// damaged is a journal of several files, as it is before it is damaged.
type damaged struct {
	fs     *faultfs.FS
	events map[uint64]ID // the durable ones
	last   uint64
	spans  []span // of the frames, by file
}

// span is where the frame of an event is, with all that is between it and the event before.
type span struct {
	name       string
	begin, end int
	seq        uint64
}

func newDamaged(t *testing.T, clean bool) *damaged {
	random := rand.New(rand.NewPCG(1, 1))
	l := begin(t, &faultfs.FS{}, damageConfig)
	d := &damaged{events: map[uint64]ID{}}
	for i := range 400 {
		rec := durable(i)
		if i%3 == 2 {
			rec = ephemeral(i)
		}
		rec.JSON = fmt.Appendf(nil, `{"id":%d,"text":%q}`, i, bytes.Repeat([]byte("word "), random.IntN(200)))
		l.j.Append(rec)
		l.awaitShown()
		if d.last = rec.Pos.Seq; !rec.Ephemeral {
			d.events[rec.Pos.Seq] = rec.ID
		}
	}
	if clean {
		l.close()
		d.fs = l.fs.Restart(false)
	} else {
		d.fs = l.kill(false)
	}
	d.locate()
	return d
}

var damageConfig = WriterConfig{SegmentBytes: 16 << 10}

// locate finds the frames by the ids in them.
func (d *damaged) locate() {
	const head, tail = 16, 2 // bytes of a frame before the id at most; the type's text behind it
	for _, seq := range slices.Sorted(maps.Keys(d.events)) {
		id := d.events[seq]
		name, at := frameOf(d.fs, id)
		s := span{name: name, begin: at - head, end: at + len(id) + tail, seq: seq}
		if n := len(d.spans); n > 0 && d.spans[n-1].name == name {
			d.spans[n-1].end = max(d.spans[n-1].end, at-1)
		} else if n > 0 {
			d.spans[n-1].end = len(d.fs.Content(d.spans[n-1].name))
		}
		d.spans = append(d.spans, s)
	}
	d.spans[len(d.spans)-1].end = len(d.fs.Content(d.spans[len(d.spans)-1].name))
}

// run damages a copy and opens it.
func (d *damaged) run(t *testing.T, seed uint64) {
	t.Helper()
	fs := d.fs.Restart(false)
	name, from, to := hurt(fs, rand.New(rand.NewPCG(seed, 3)))
	// A joint log whose end is missing looks like that of a process that was killed while it wrote.
	killed := to > len(fs.Content(name)) && strings.HasPrefix(name, "joint/")
	what := fmt.Sprintf("seed %d, %s damaged from %d to %d", seed, name, from, to)
	hit := map[uint64]bool{}
	for _, s := range d.spans {
		if s.name == name && s.begin < to && from < s.end {
			hit[s.seq] = true
		}
	}
	l := begin(t, fs, damageConfig)
	got, gaps := d.readAll(t, what, l)
	for seq, id := range d.events {
		missing := got[seq] == ID{}
		switch {
		case !missing && got[seq] != id:
			t.Fatalf("%s: another event is at %d", what, seq)
		case missing && !hit[seq]:
			t.Fatalf("%s: event %d was not hit, and is lost", what, seq)
		case missing && killed:
		case missing && !covered(gaps, seq):
			t.Fatalf("%s: event %d is lost without a word; told are %v", what, seq, gaps)
		case !missing && covered(gaps, seq):
			t.Fatalf("%s: event %d is told as lost and is there; told are %v", what, seq, gaps)
		}
	}
	if l.j.Last().Epoch != epoch || l.j.Last().Seq < d.last {
		t.Fatalf("%s: the journal goes on at %v, and %d was given", what, l.j.Last(), d.last)
	}
	l.j.Append(durable(1000))
	l.awaitShown()
	fresh := l.j.Last().Seq
	l.close()
	l = begin(t, l.fs, damageConfig)
	defer l.close()
	again, told := d.readAll(t, what, l)
	got[fresh] = ParseID([]byte("d1000"))
	if !maps.Equal(again, got) || l.rec.Lost || l.j.Last().Seq != fresh {
		t.Fatalf("%s: at second sight %d events of %d, at %v; %+v", what, len(again), len(got), l.j.Last(), l.rec)
	}
	for seq := range d.events {
		if (again[seq] == ID{}) != covered(told, seq) && !killed {
			t.Fatalf("%s: at second sight event %d, told are %v", what, seq, told)
		}
	}
}

// readAll reads the journal from its beginning.
func (d *damaged) readAll(t *testing.T, what string, l *life) (events map[uint64]ID, gaps []Gap) {
	t.Helper()
	events = map[uint64]ID{}
	r := reader(t, l.j, Position{}, false, nothing)
	for last := uint64(0); ; {
		records, gap := r.Next(nil, 1<<20)
		if gap == nil && len(records) == 0 {
			return events, gaps
		}
		if gap != nil {
			gaps = append(gaps, *gap)
		}
		for _, rec := range records {
			if rec.Pos.Seq <= last {
				t.Fatalf("%s: event %d comes after event %d", what, rec.Pos.Seq, last)
			}
			last = rec.Pos.Seq
			events[last] = rec.ID
		}
	}
}

func covered(gaps []Gap, seq uint64) bool {
	return slices.ContainsFunc(gaps, func(g Gap) bool { return g.From.Seq < seq && seq <= g.To.Seq })
}

// hurt damages one file, and returns where.
func hurt(fs *faultfs.FS, random *rand.Rand) (name string, from, to int) {
	names := slices.DeleteFunc(fs.Names(), func(n string) bool { return n == "overruns" })
	name = names[random.IntN(len(names))]
	data := fs.Content(name)
	from = random.IntN(len(data))
	switch random.IntN(4) {
	case 0:
		data[from] ^= 1 << random.IntN(8)
		to = from + 1
	case 1: // a run of zeros
		to = min(from+1+random.IntN(2000), len(data))
		clear(data[from:to])
	case 2: // a page of zeros
		from = from / 4096 * 4096
		to = min(from+4096, len(data))
		clear(data[from:to])
	case 3: // the end of a file is missing
		to = len(data)
		fs.Put(name, slices.Clone(data[:from]))
	}
	return name, from, to
}

// Numbers that were reserved by marks that are damaged are not given again.
func TestDamagedReservation(t *testing.T) {
	t.Parallel()
	l := begin(t, &faultfs.FS{}, WriterConfig{})
	l.j.Append(durable(0))
	l.awaitShown()
	_, end := frameOf(l.fs, ParseID([]byte("d0")))
	for i := range 3 { // as if that many events had come
		l.j.mu.Lock()
		l.j.nextSeq += reserveBlock * 3 / 4
		l.j.mu.Unlock()
		l.j.Append(ephemeral(i))
		l.awaitShown()
	}
	seen := l.j.Last()
	fs := l.kill(false)
	name, _ := frameOf(fs, ParseID([]byte("d0")))
	clear(fs.Content(name)[end+len(ID{})+4+100:]) // behind the event's type, agent and JSON
	l = begin(t, fs, WriterConfig{})
	if got := l.j.Last(); got.Epoch != epoch || got.Seq < seen.Seq || !l.rec.Lost {
		t.Errorf("the journal goes on at %v, and %v was given; %+v", got, seen, l.rec)
	}
	l.close()
}
