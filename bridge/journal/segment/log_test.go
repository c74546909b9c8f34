package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

const dir = "log"

// body is what the entry of a number holds.
func body(n uint64) []byte {
	return append(fmt.Appendf(nil, "entry %d ", n), bytes.Repeat([]byte{byte(n)}, int(n%97))...)
}

func entries(from, to uint64) (out []segment.Entry) {
	for n := from; n <= to; n++ {
		out = append(out, segment.Entry{Number: n, Body: body(n)})
	}
	return out
}

// open opens the log and returns the numbers of its entries, after checking their bodies.
func open(t *testing.T, o segment.Options) (*segment.Log, segment.Recovered, []uint64) {
	t.Helper()
	var numbers []uint64
	l, found, err := segment.Open(dir, 7, o, func(n uint64, b []byte) error {
		if !bytes.Equal(b, body(n)) {
			t.Errorf("entry %d is %q", n, b)
		}
		numbers = append(numbers, n)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Rest() })
	return l, found, numbers
}

func upTo(from, to uint64) (out []uint64) {
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

// readAll reads the entries after a number.
func readAll(t *testing.T, l *segment.Log, after uint64) (out []uint64) {
	t.Helper()
	err := l.Read(after, func(n uint64, b []byte) bool {
		if !bytes.Equal(b, body(n)) {
			t.Errorf("entry %d is read as %q", n, b)
		}
		out = append(out, n)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAppendReadReopen(t *testing.T) {
	t.Parallel()
	for name, fsys := range map[string]segment.FS{"memory": &faultfs.FS{}, "disk": rooted{segment.OS{}, t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := segment.Options{FS: fsys, SegmentBytes: 2000, SyncFiles: true}
			l, found, have := open(t, o)
			if len(have) != 0 || found.Mark != nil || l.Epoch() != 7 {
				t.Fatalf("a new log has %v, mark %q, epoch %d", have, found.Mark, l.Epoch())
			}
			for n := uint64(1); n <= 200; n += 5 {
				must(t, l.Append(append(entries(n, n+4), segment.Entry{Mark: true, Body: fmt.Append(nil, n)})))
			}
			through, err := l.Sync()
			if err != nil || through != 200 {
				t.Fatalf("synced through %d, %v", through, err)
			}
			for _, after := range []uint64{0, 1, 57, 199, 200, 1000} {
				if got := readAll(t, l, after); !slices.Equal(got, upTo(after+1, 200)) {
					t.Errorf("after %d come %v", after, got)
				}
			}
			must(t, l.Rest())
			l, found, have = open(t, o)
			if !slices.Equal(have, upTo(1, 200)) || string(found.Mark) != "196" || found.Cut != 0 ||
				found.SetAside != nil {
				t.Errorf("opened again: %v, %+v", have, found)
			}
			must(t, l.Append(entries(300, 310))) // numbers may be left out
			if got := readAll(t, l, 200); !slices.Equal(got, upTo(300, 310)) {
				t.Errorf("after 200 come %v", got)
			}
			if err := l.Append(entries(310, 311)); err == nil {
				t.Error("a number was taken twice")
			}
		})
	}
}

// A file that a killed process has begun with a part of its header is none of the log; what was something else is kept.
func TestBegunFile(t *testing.T) {
	t.Parallel()
	whole := &faultfs.FS{}
	l, _, _ := open(t, segment.Options{FS: whole})
	must(t, l.Append(entries(1, 1)))
	name := whole.Names()[0]
	header := whole.Content(name)[:20]
	for what, test := range map[string]struct {
		content []byte
		kept    bool
	}{
		"nothing":          {content: nil},
		"a byte":           {content: header[:1]},
		"half a header":    {content: header[:11]},
		"other bytes":      {content: make([]byte, 20), kept: true},
		"a damaged header": {content: append(slices.Clone(whole.Content(name)[:19]), 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9), kept: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			fs := whole.Restart(false)
			fs.Put(name, test.content)
			_, found, have := open(t, segment.Options{FS: fs})
			if aside := len(found.SetAside) > 0; aside != test.kept || len(have) > 0 || slices.Contains(fs.Names(), name+".bad") != test.kept {
				t.Errorf("it has %v; set aside are %q, and there are %q", have, found.SetAside, fs.Names())
			}
		})
	}
}

// rooted puts the log into a directory.
type rooted struct {
	segment.OS
	root string
}

func (r rooted) Open(name string, write bool) (segment.File, error) {
	return r.OS.Open(filepath.Join(r.root, name), write)
}
func (r rooted) Size(name string) (int64, error) { return r.OS.Size(filepath.Join(r.root, name)) }
func (r rooted) MkdirAll(name string) error      { return r.OS.MkdirAll(filepath.Join(r.root, name)) }
func (r rooted) RemoveAll(name string) error     { return r.OS.RemoveAll(filepath.Join(r.root, name)) }
func (r rooted) SyncDir(name string) error       { return r.OS.SyncDir(filepath.Join(r.root, name)) }
func (r rooted) Rename(from, to string) error {
	return r.OS.Rename(filepath.Join(r.root, from), filepath.Join(r.root, to))
}

func (r rooted) ReadDir(name string) ([]fs.DirEntry, error) {
	return r.OS.ReadDir(filepath.Join(r.root, name))
}

func TestTrim(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	fsys := &faultfs.FS{}
	o := segment.Options{FS: fsys, SegmentBytes: 1000, Now: func() time.Time { return now }}
	l, _, _ := open(t, o)
	must(t, l.Append([]segment.Entry{{Mark: true, Body: []byte("kept")}}))
	for n := uint64(1); n <= 100; n++ {
		now = now.Add(time.Second)
		must(t, l.Append(entries(n, n)))
	}
	trimmed, err := l.Trim(3000, time.Time{})
	if err != nil || trimmed == 0 || l.Size() > 3000 || l.Trimmed() != trimmed {
		t.Fatalf("trimmed through %d to %d bytes, %v", trimmed, l.Size(), err)
	}
	if got := readAll(t, l, 0); !slices.Equal(got, upTo(trimmed+1, 100)) {
		t.Errorf("%v are left after %d", got, trimmed)
	}
	aged, err := l.Trim(0, now.Add(time.Hour))
	if err != nil || aged <= trimmed || aged == 100 {
		t.Errorf("trimmed by age through %d, %v: the file that is written must stay", aged, err)
	}
	l, found, have := open(t, o)
	if string(found.Mark) != "kept" || !slices.Equal(have, upTo(aged+1, 100)) || l.Trimmed() != aged ||
		l.Last() != 100 {
		t.Errorf("opened again: %v, %q, trimmed %d", have, found.Mark, l.Trimmed())
	}
	fsys.Fail(faultfs.Remove, errors.New("no"))
	must(t, l.Append(entries(101, 200)))
	must(t, l.Append(entries(201, 300)))
	if _, err := l.Trim(1, time.Time{}); err == nil || len(readAll(t, l, aged)) != 300-int(aged) {
		t.Errorf("a file that could not be removed is no longer read: %v", err)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	fsys := &faultfs.FS{}
	o := segment.Options{FS: fsys, SegmentBytes: 500, SyncFiles: true}
	l, _, _ := open(t, o)
	must(t, l.Append(entries(1, 50)))
	if err := l.Replace(7, entries(1, 3)); err == nil {
		t.Error("the same epoch again was taken")
	}
	must(t, l.Replace(9, append(entries(1, 5), segment.Entry{Mark: true, Body: []byte("m")})))
	must(t, l.Append(entries(6, 8)))
	if got := readAll(t, l, 0); !slices.Equal(got, upTo(1, 8)) {
		t.Errorf("%v are left", got)
	}
	l, found, have := open(t, o)
	if l.Epoch() != 9 || !slices.Equal(have, upTo(1, 8)) || string(found.Mark) != "m" {
		t.Errorf("opened again: epoch %d, %v, %q", l.Epoch(), have, found.Mark)
	}
	for _, name := range fsys.Names() {
		if !strings.Contains(name, "0000000000000009-") {
			t.Errorf("%s is left", name)
		}
	}
}

// Damaged files are not removed together with the files that a new epoch replaces: their content may exist only
// there.
func TestReplaceKeepsWhatIsDamaged(t *testing.T) {
	t.Parallel()
	for name, reopened := range map[string]bool{"found when opened": true, "found when read": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys := &faultfs.FS{}
			o := segment.Options{FS: fsys, SegmentBytes: 300}
			l, _, _ := open(t, o)
			for n := uint64(1); n <= 30; n++ {
				must(t, l.Append(entries(n, n)))
			}
			damaged := fsys.Names()[2]
			fsys.Content(damaged)[100] ^= 1
			var found segment.Recovered
			if reopened {
				l, found, _ = open(t, o)
			} else {
				err := l.Read(0, func(uint64, []byte) bool { return true })
				damage, ok := errors.AsType[*segment.DamageError](err)
				if !ok {
					t.Fatalf("read with %v", err)
				}
				found.Holes = []segment.Hole{damage.Hole}
			}
			must(t, l.Replace(9, entries(1, 5)))
			names := fsys.Names()
			if len(found.Holes) != 1 || len(names) != 2 || !slices.Contains(names, damaged+".bad") {
				t.Errorf("with %v, %v are left", found.Holes, names)
			}
			if _, again, have := open(t, o); again.Damaged() || !slices.Equal(have, upTo(1, 5)) {
				t.Errorf("opened again: %v, %+v", have, again)
			}
		})
	}
}

// A write that fails leaves no trace, and the next one works.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	fsys := &faultfs.FS{}
	o := segment.Options{FS: fsys, SegmentBytes: 600}
	l, _, _ := open(t, o)
	last := uint64(0)
	for round := range 50 {
		fsys.Room(int64(round * 13))
		if err := l.Append(entries(last+1, last+7)); err == nil {
			last += 7
		} else if l.Last() != last {
			t.Fatalf("entries through %d count after a failed write, want %d", l.Last(), last)
		}
		fsys.Room(-1)
		must(t, l.Append(entries(last+1, last+2)))
		last += 2
	}
	if got := readAll(t, l, 0); !slices.Equal(got, upTo(1, last)) {
		t.Errorf("read %v", got)
	}
	if _, found, have := open(t, o); !slices.Equal(have, upTo(1, last)) || found.Cut != 0 {
		t.Errorf("recovered %v, %d bytes cut", have, found.Cut)
	}
}

// The process dies at every change in turn: what is found is what was acknowledged, or
// that and some of what was being written.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	for _, power := range []bool{false, true} {
		for crash := 0; ; crash++ {
			fsys := &faultfs.FS{}
			fsys.CrashAfter(crash)
			acknowledged, attempted, epoch, err := scenario(fsys)
			next := fsys.Restart(power)
			l, _, have := open(t, segment.Options{FS: next, SegmentBytes: 400, SyncFiles: true})
			base := l.Trimmed()
			n := uint64(len(have)) + base
			if l.Epoch() == 7 && epoch == 9 && err == nil || n < acknowledged && l.Epoch() == epoch ||
				n > max(attempted, replaced) || !slices.Equal(have, upTo(base+1, n)) {
				t.Fatalf("crash at change %d (power %v): epoch %d has %v, acknowledged %d of %d in epoch %d", crash,
					power, l.Epoch(), have, acknowledged, attempted, epoch)
			}
			must(t, l.Append(entries(l.Last()+1, l.Last()+3)))
			if got := readAll(t, l, 0); !slices.Equal(got, upTo(base+1, n+3)) {
				t.Fatalf("crash at change %d: after it the log takes up %v", crash, got)
			}
			if err == nil {
				break
			}
		}
	}
}

// replaced is how many entries the scenario's second epoch begins with.
const replaced = 12

// scenario appends, syncs, trims and replaces until something fails. It returns what was
// synced and tried in the epoch it came to.
func scenario(fsys *faultfs.FS) (acknowledged, attempted, epoch uint64, err error) {
	l, _, err := segment.Open(dir, 7, segment.Options{FS: fsys, SegmentBytes: 400, SyncFiles: true},
		func(uint64, []byte) error { return nil })
	if err != nil {
		return 0, 0, 7, err
	}
	step := func(n uint64) error {
		attempted = n + 2
		if err := l.Append(entries(n, n+2)); err != nil {
			return err
		}
		if _, err := l.Sync(); err != nil {
			return err
		}
		acknowledged = n + 2
		return nil
	}
	for n := uint64(1); n < 30; n += 3 {
		if err := step(n); err != nil {
			return acknowledged, attempted, 7, err
		}
	}
	if _, err := l.Trim(500, time.Time{}); err != nil {
		return acknowledged, attempted, 7, err
	}
	if err := l.Replace(9, entries(1, replaced)); err != nil {
		return 0, attempted, 9, err
	}
	acknowledged, attempted = replaced, replaced
	for n := uint64(replaced + 1); n < 40; n += 3 {
		if err := step(n); err != nil {
			return acknowledged, attempted, 9, err
		}
	}
	return acknowledged, attempted, 9, nil
}

// After any damage to one file, recovery returns the undamaged entries, reports the missing numbers, and leaves
// a usable log.
func TestDamage(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		fsys := written(t)
		names := fsys.Names()
		name := names[random.IntN(len(names))]
		data := fsys.Content(name)
		switch random.IntN(4) {
		case 0:
			data[random.IntN(len(data))] ^= 1 << random.IntN(8)
		case 1:
			fsys.Put(name, data[:random.IntN(len(data))])
		case 2:
			fsys.Put(name, append(slices.Clone(data), make([]byte, random.IntN(50))...))
		case 3:
			must(t, fsys.RemoveAll(name))
		}
		checkRecovery(t, fsys)
	}
}

func written(t *testing.T) *faultfs.FS {
	fsys := &faultfs.FS{}
	l, _, _ := open(t, segment.Options{FS: fsys, SegmentBytes: 300})
	must(t, l.Append(entries(1, 20)))
	must(t, l.Append(append(entries(21, 25), segment.Entry{Mark: true, Body: []byte("mark")})))
	must(t, l.Append(entries(26, 30)))
	return fsys
}

// checkRecovery opens the rest of the log. The missing numbers are reported as holes, and stay the same after
// later appends.
func checkRecovery(t *testing.T, fsys *faultfs.FS) {
	t.Helper()
	l, found, have := open(t, segment.Options{FS: fsys, SegmentBytes: 300})
	checkHoles(t, l.Trimmed(), l.Last(), have, found.Holes)
	if len(found.Mark) > 0 && string(found.Mark) != "mark" {
		t.Fatalf("recovered mark %q", found.Mark)
	}
	if got := readHoles(t, l, found.Holes); !slices.Equal(got, have) {
		t.Fatalf("of %v is read %v", have, got)
	}
	next := l.Last() + 1
	must(t, l.Append(entries(next, next+1)))
	_, again, reopened := open(t, segment.Options{FS: fsys, SegmentBytes: 300})
	if !slices.Equal(reopened, append(have, next, next+1)) || again.Cut != 0 ||
		!slices.Equal(again.Holes, found.Holes) {
		t.Fatalf("of %v with holes %v is recovered %v with holes %v at second sight", have, found.Holes, reopened,
			again.Holes)
	}
}

// checkHoles compares the numbers that are missing with the holes.
func checkHoles(t *testing.T, trimmed, last uint64, have []uint64, holes []segment.Hole) {
	t.Helper()
	told := map[uint64]bool{}
	for _, h := range holes {
		for n := h.After + 1; n <= h.Through; n++ {
			told[n] = true
		}
	}
	for n := trimmed + 1; n <= last; n++ {
		if told[n] == slices.Contains(have, n) {
			t.Fatalf("recovered %v after %d through %d, with holes %v", have, trimmed, last, holes)
		}
	}
}

// readHoles reads the log past its holes, which must be the ones that are known.
func readHoles(t *testing.T, l *segment.Log, holes []segment.Hole) (out []uint64) {
	t.Helper()
	after := uint64(0)
	for {
		err := l.Read(after, func(n uint64, b []byte) bool {
			if !bytes.Equal(b, body(n)) {
				t.Errorf("entry %d is read as %q", n, b)
			}
			out = append(out, n)
			return true
		})
		var damage *segment.DamageError
		if !errors.As(err, &damage) {
			must(t, err)
			return out
		}
		if !slices.ContainsFunc(holes,
			func(h segment.Hole) bool { return damage.Through > h.After && damage.Through <= h.Through }) {
			t.Fatalf("a hole %v is read, and %v were found", damage.Hole, holes)
		}
		after = damage.Through
	}
}

// FuzzRecovery gives recovery any file in the place of the log's: it must not invent
// entries, and must leave a log that works.
func FuzzRecovery(f *testing.F) {
	fsys := &faultfs.FS{}
	l, _, err := segment.Open(dir, 7, segment.Options{FS: fsys}, func(uint64, []byte) error { return nil })
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Append(append(entries(1, 12), segment.Entry{Mark: true, Body: []byte("mark")})); err != nil {
		f.Fatal(err)
	}
	name := fsys.Names()[0]
	good := slices.Clone(fsys.Content(name))
	f.Add(good, uint16(len(good)), uint16(0), byte(0))
	f.Add(good, uint16(100), uint16(40), byte(1))
	f.Add([]byte{}, uint16(0), uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, length, flip uint16, with byte) {
		data = slices.Clone(data[:min(len(data), int(length))])
		if len(data) > 0 {
			data[int(flip)%len(data)] ^= with
		}
		fsys := &faultfs.FS{}
		must(t, fsys.MkdirAll(dir))
		fsys.Put(name, data)
		var bodies [][]byte
		last := uint64(0)
		l, _, err := segment.Open(dir, 7, segment.Options{FS: fsys}, func(n uint64, b []byte) error {
			if n <= last && len(bodies) > 0 {
				t.Fatalf("entry %d after %d", n, last)
			}
			// A returned entry stands in the file, behind its checksum.
			if !bytes.Contains(data, b) {
				t.Fatalf("entry %d is not in the file", n)
			}
			last, bodies = n, append(bodies, slices.Clone(b))
			return nil
		})
		must(t, err)
		before := l.Last()
		if before == 1<<64-1 {
			return // no number is left
		}
		must(t, l.Append([]segment.Entry{{Number: before + 1, Body: []byte("next")}}))
		must(t, l.Rest())
		var again [][]byte
		_, _, err = segment.Open(dir, 7, segment.Options{FS: fsys}, func(_ uint64, b []byte) error {
			again = append(again, slices.Clone(b))
			return nil
		})
		must(t, err)
		if len(again) != len(bodies)+1 || string(again[len(bodies)]) != "next" {
			t.Fatalf("%d entries after appending to %d", len(again), len(bodies))
		}
	})
}
