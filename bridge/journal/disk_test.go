package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// life is a process with one journal on a file system.
type life struct {
	t   *testing.T
	fs  *faultfs.FS
	w   *Writer
	j   *Journal
	rec Recovery

	logs *Folders // nil if the journal has another owner
}

func begin(t *testing.T, fs *faultfs.FS, cfg WriterConfig) *life {
	t.Helper()
	cfg.FS, cfg.OverrunFile = fs, "overruns"
	if cfg.SegmentBytes == 0 {
		cfg.SegmentBytes = 4 << 10
	}
	l := &life{t: t, fs: fs, w: NewWriter(cfg)}
	d, rec, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	l.rec = rec
	l.j = New(Config{Epoch: epoch, Log: d, MaxEphemeralBytes: 40 * 228})
	return l
}

// joined is the configuration of a life with a small joint log.
var joined = WriterConfig{
	jointEvery: 4 * time.Millisecond,
	limits: joint.Limits{
		FileBytes: 1 << 10, Bytes: 4 << 10, Tails: 2 << 10, Tail: 1 << 10, Stay: 20 * time.Millisecond,
	},
}

// open opens the journal in a folder, beside a joint log.
func (l *life) open() (*Disk, Recovery, error) {
	logs, err := OpenFolders(l.w, "joint", func(name string) string { return "s/" + name })
	if err != nil {
		return nil, Recovery{}, err
	}
	logs.Start(nil)
	l.logs = logs
	return OpenLog(logs, "one", 1, epoch, "s/one", l.w)
}

// bothWays runs a test with a joint log that keeps all events, and with one that they leave soon.
func bothWays(t *testing.T, test func(t *testing.T, cfg WriterConfig)) {
	t.Parallel()
	t.Run("kept", func(t *testing.T) { t.Parallel(); test(t, WriterConfig{}) })
	t.Run("moved", func(t *testing.T) { t.Parallel(); test(t, joined) })
}

// disk is a file system on which an earlier life has been.
func disk(t *testing.T) *faultfs.FS {
	t.Helper()
	fs := &faultfs.FS{}
	if _, err := segment.OpenCell(fs, "overruns", true, nil); err != nil {
		t.Fatal(err)
	}
	return fs
}

// awaitShown waits until everything that was appended is shown.
func (l *life) awaitShown() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.j.AwaitShown(ctx); err != nil {
		l.t.Fatal(err)
	}
}

// close ends the life in peace.
func (l *life) close() {
	l.t.Helper()
	if err := l.j.Close(context.Background()); err != nil {
		l.t.Fatal(err)
	}
	l.w.Close()
	if l.logs == nil {
		return
	}
	if err := l.logs.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// kill ends it as a crash does: nothing more is written. power says that the machine
// crashed too.
func (l *life) kill(power bool) *faultfs.FS {
	next := l.fs.Restart(power)
	l.w.Close()
	return next
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

func words(from, to int, kind string) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprint(kind, i))
	}
	return out
}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestJournalOutlivesItsProcess(t *testing.T) { bothWays(t, testJournalOutlivesItsProcess) }

func testJournalOutlivesItsProcess(t *testing.T, cfg WriterConfig) {
	l := begin(t, &faultfs.FS{}, cfg)
	for i := range 100 {
		l.j.Append(durable(i))
	}
	l.j.Append(ephemeral(1))
	l.j.Append(&Record{Type: "session.idle", Ephemeral: true, Bridge: true, Agent: "a", JSON: []byte(`{"idle":1}`)})
	l.close()

	l = begin(t, l.fs, cfg)
	if l.j.Last() != (Position{Epoch: epoch, Seq: 102}) || l.j.First() != (Position{Epoch: epoch, Seq: 1}) || !l.rec.Clean ||
		l.rec.Events != 101 {
		t.Errorf("after a restart the journal goes from %v to %v; %+v", l.j.First(), l.j.Last(), l.rec)
	}
	if l.j.Append(durable(5)) {
		t.Error("an event was taken a second time")
	}
	l.j.Append(durable(100))
	l.awaitShown()
	check(t, "from the beginning", read(t, reader(t, l.j, Position{}, false, nothing)),
		append(words(1, 100, "d"), "session.idle102", "d103"))
	check(t, "from a position", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 99}, true, nothing)),
		[]string{"gap 99-102", "d100", "session.idle102", "d103"})
	check(t, "from the end", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 102}, true, nothing)), []string{"d103"})
	if rec, ok := l.j.Get(Position{Epoch: epoch, Seq: 102}); !ok || string(rec.JSON) != `{"idle":1}` || !rec.Bridge ||
		rec.Agent != "a" || !rec.Ephemeral {
		t.Errorf("event 102 has become %+v", rec)
	}
	if _, ok := l.j.Get(Position{Epoch: epoch, Seq: 101}); ok {
		t.Error("an ephemeral event is back")
	}
	if p, ok := l.j.Lookup(ParseID([]byte("d7"))); !ok || p.Seq != 8 {
		t.Errorf("event d7 is at %v", p)
	}
	l.close()
}

// After a crash the reserved numbers are skipped: no number is used twice, and a reader that has seen one of
// them can resume.
func TestCrashGivesNoNumberTwice(t *testing.T) { bothWays(t, testCrashGivesNoNumberTwice) }

func testCrashGivesNoNumberTwice(t *testing.T, cfg WriterConfig) {
	l := begin(t, &faultfs.FS{}, cfg)
	seen := uint64(0)
	for crash := range 4 {
		l.j.Append(durable(crash))
		for i := range 5 {
			l.j.Append(ephemeral(10*crash + i))
		}
		l.awaitShown()
		first := l.j.Last().Seq - 5
		if first <= seen {
			t.Fatalf("event %d came after event %d", first, seen)
		}
		seen = l.j.Last().Seq
		l = begin(t, l.kill(false), cfg)
		if got := l.j.Last().Seq; got < seen {
			t.Fatalf("after a crash at %d the journal is at %d", seen, got)
		}
		r := reader(t, l.j, Position{Epoch: epoch, Seq: seen}, true, nothing)
		check(t, "who had seen it all", read(t, r), []string{fmt.Sprintf("gap %d-%d", seen, l.j.Last().Seq)})
		if r.Position() != l.j.Last() {
			t.Errorf("the reader stands at %v, not %v", r.Position(), l.j.Last())
		}
		durableOnly := reader(t, l.j, Position{Epoch: epoch, Seq: first}, false, nothing)
		check(t, "who wants no ephemeral events", read(t, durableOnly), nil)
		if durableOnly.Position() != l.j.Last() {
			t.Errorf("the reader stands at %v, not %v", durableOnly.Position(), l.j.Last())
		}
	}
	l.close()
}

// Nothing is shown that a crash could take back: neither an event nor its number.
func TestShownOnlyWhenWritten(t *testing.T) { bothWays(t, testShownOnlyWhenWritten) }

func testShownOnlyWhenWritten(t *testing.T, cfg WriterConfig) {
	fs := disk(t)
	release := fs.Stall()
	l := begin(t, fs, cfg)
	woken := make(chan struct{}, 100)
	r := reader(t, l.j, Position{}, true, func() { woken <- struct{}{} })
	check(t, "before", read(t, r), nil)
	l.j.Append(ephemeral(1)) // its number is not reserved
	l.j.Append(durable(1))
	l.j.Append(ephemeral(2))
	check(t, "while the disk writes", read(t, r), nil)
	if got := l.j.Last(); got.Seq != 0 {
		t.Errorf("position %v is told before it is reserved", got)
	}
	release()
	<-woken
	l.awaitShown()
	check(t, "then", read(t, r), []string{"e1", "d2", "e3"})
	release = fs.Stall()
	l.j.Append(ephemeral(3))
	check(t, "with nothing to write", read(t, r), []string{"e4"})
	l.j.Append(durable(2))
	l.j.Append(ephemeral(4))
	check(t, "again", read(t, r), nil)
	release()
	l.awaitShown()
	check(t, "at last", read(t, r), []string{"d5", "e6"})
	l.close()
}

// Durable events leave memory once they are on disk, and are read from there.
func TestEviction(t *testing.T) {
	t.Parallel()
	l := begin(t, &faultfs.FS{}, WriterConfig{Fsync: FsyncAlways, SegmentBytes: 64 << 10})
	slow := reader(t, l.j, Position{}, true, nothing)
	var want []string
	for i := range 400 {
		l.j.Append(&Record{Type: "d", ID: ParseID(fmt.Append(nil, i)), JSON: make([]byte, 40<<10)})
		l.j.Append(ephemeral(i))
		want = append(want, fmt.Sprint("d", 2*i+1))
	}
	l.awaitShown()
	l.j.mu.RLock()
	cached, evicted := l.j.cached, l.j.evicted
	l.j.mu.RUnlock()
	if cached > maxCachedBytes+maxBatchBytes || evicted == 0 {
		t.Errorf("%d bytes are in memory, none up to %d", cached, evicted)
	}
	got := slices.DeleteFunc(read(t, slow), func(w string) bool { return strings.HasPrefix(w, "e") })
	if len(got) == 0 || !strings.HasPrefix(got[0], "gap 0-") {
		t.Fatalf("a slow reader begins with %.1q", got)
	}
	check(t, "a slow reader", got[1:], want)
	l.close()
}

func TestRetention(t *testing.T) { bothWays(t, testRetention) }

func testRetention(t *testing.T, cfg WriterConfig) {
	now := time.Unix(1e9, 0)
	cfg.MaxBytes, cfg.SegmentBytes = 10<<10, 2<<10
	cfg.Now = func() time.Time { return now }
	l := begin(t, &faultfs.FS{}, cfg)
	for i := range 200 {
		l.j.Append(durable(i))
		l.awaitShown()
	}
	l.close()
	cfg.Now, cfg.TidyEvery = nil, time.Millisecond
	l = begin(t, l.fs, cfg)
	eventually(t, func() bool { return l.j.First().Seq >= 100 && l.j.disk.log.Size() <= 10<<10 })
	first := l.j.First().Seq
	check(t, "from before", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 7}, false, nothing)),
		append([]string{fmt.Sprintf("gap 7-%d", first-1)}, words(int(first), 200, "d")...))
	r := reader(t, l.j, Position{Epoch: epoch, Seq: 7}, false, nothing)
	if _, gap := r.Next(nil, 1); gap == nil || gap.Reason != Trimmed || r.Position() != gap.To {
		t.Errorf("the gap is %+v, the reader at %v", gap, r.Position())
	}
	l.close()
}

// A full disk: the service goes on in memory, says so, and catches up.
func TestDiskFull(t *testing.T) { bothWays(t, testDiskFull) }

func testDiskFull(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		fs := &faultfs.FS{}
		l := begin(t, fs, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		fs.Room(50)
		for i := 1; i < 50; i++ {
			l.j.Append(durable(i))
			l.j.Append(ephemeral(i))
		}
		l.awaitShown()
		if err := l.j.Degraded(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the journal is %v", err)
		}
		if w := l.w.Degraded(); !errors.Is(w["s/one"], syscall.ENOSPC) {
			t.Errorf("the writer tells %v", w)
		}
		if got := read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 90}, true, nothing)); len(got) != 9 {
			t.Errorf("after 90 come %v", got)
		}
		fs.Room(-1)
		time.Sleep(2 * maxRetry)
		synctest.Wait()
		if err := l.j.Degraded(); err != nil {
			t.Errorf("with room again the journal is %v", err)
		}
		next := begin(t, l.kill(false), cfg)
		got := read(t, reader(t, next.j, Position{}, false, nothing))
		if len(got) != 50 || next.rec.Lost {
			t.Errorf("%d events are on disk: %v", len(got), got)
		}
		next.close()
	})
}

// With a disk that stays broken, memory stays bounded, the order is kept, and readers receive a gap for lost
// events.
func TestBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, backlog)
}

func backlog(t *testing.T) {
	fs := &faultfs.FS{}
	l := begin(t, fs, WriterConfig{})
	l.j.Append(durable(0))
	l.awaitShown()
	release := fs.Stall()
	const events, size = 80, 1 << 20
	for i := range events {
		l.j.Append(&Record{Type: "d", ID: ParseID(fmt.Append(nil, i, "big")), JSON: make([]byte, size)})
		if i == events/4 { // before it is known that the disk does not move
			if err := l.j.Degraded(); err != nil {
				t.Errorf("at once the journal is %v", err)
			}
			time.Sleep(DefaultPatience + time.Second)
		}
	}
	if err := l.j.Degraded(); !errors.Is(err, ErrBacklog) {
		t.Errorf("the journal is %v", err)
	}
	l.j.mu.RLock()
	cached := l.j.cached
	l.j.mu.RUnlock()
	if cached > maxUnwrittenBytes+2*size {
		t.Errorf("%d MiB are in memory", cached>>20)
	}
	release()
	synctest.Wait()
	if err := l.j.Degraded(); err != nil {
		t.Errorf("the disk is back, and the journal %v", err)
	}
	got := read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 1}, false, nothing))
	if len(got) < 20 || !strings.HasPrefix(got[0], "gap ") || got[len(got)-1] != fmt.Sprint("d", events+1) {
		t.Errorf("read %v", got)
	}
	next := begin(t, func() *faultfs.FS { l.close(); return l.fs }(), WriterConfig{})
	again := read(t, reader(t, next.j, Position{Epoch: epoch, Seq: 1}, false, nothing))
	if !strings.HasPrefix(again[0], "gap ") ||
		!slices.Equal(again[1:],
			slices.DeleteFunc(slices.Clone(got), func(w string) bool { return strings.HasPrefix(w, "gap") })) {
		t.Errorf("after a restart %v, before %v", again, got)
	}
	next.close()
}

// A write that hangs does not keep readers from what is in memory for long.
func TestHangingDisk(t *testing.T) { bothWays(t, testHangingDisk) }

func testHangingDisk(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		fs := &faultfs.FS{}
		l := begin(t, fs, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		release := fs.Stall()
		begun := time.Now()
		l.j.Append(durable(1))
		l.awaitShown()
		if waited := time.Since(begun); waited > 2*stallTimeout || !errors.Is(l.j.Degraded(), ErrStalled) {
			t.Errorf("shown after %v; the journal is %v", waited, l.j.Degraded())
		}
		release()
		synctest.Wait()
		if err := l.j.Degraded(); err != nil {
			t.Errorf("the journal is still %v", err)
		}
		l.close()
	})
}

// A sync that fails has what it was to make safe written anew.
func TestSyncFails(t *testing.T) { bothWays(t, testSyncFails) }

func testSyncFails(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		fs := &faultfs.FS{}
		l := begin(t, fs, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		fs.Fail(faultfs.Sync, syscall.EIO)
		l.j.Append(durable(1))
		time.Sleep(time.Second)
		if err := l.j.Degraded(); !errors.Is(err, syscall.EIO) {
			t.Errorf("the journal is %v", err)
		}
		fs.Fail(faultfs.Sync, nil)
		time.Sleep(2 * maxRetry)
		synctest.Wait()
		if err := l.j.Degraded(); err != nil {
			t.Errorf("the journal is still %v", err)
		}
		next := begin(t, l.kill(true), cfg)
		got := read(t, reader(t, next.j, Position{}, false, nothing))
		check(t, "after a crash of the machine", got[:min(2, len(got))], []string{"d1", "d2"})
		next.close()
	})
}

// A disk that takes nothing from the start: the session works, and says that it is only
// in memory.
func TestDiskNeverWorks(t *testing.T) {
	t.Parallel()
	fs := &faultfs.FS{}
	fs.Fail(faultfs.Open, syscall.EROFS)
	w := NewWriter(WriterConfig{FS: fs})
	d, _, err := OpenDisk("s/one", epoch, w)
	if err != nil { // there is nothing to read
		t.Fatal(err)
	}
	l := &life{t: t, fs: fs, w: w, j: New(Config{Epoch: epoch, Log: d})}
	l.j.Append(durable(1))
	l.j.Append(ephemeral(1))
	l.awaitShown()
	check(t, "in memory", read(t, reader(t, l.j, Position{}, true, nothing)), []string{"d1", "e2"})
	if err := l.j.Close(context.Background()); !errors.Is(err, syscall.EROFS) || l.j.Last().Seq != 2 {
		t.Errorf("closed with %v at %v", err, l.j.Last())
	}
	w.Close()
}

func TestNewEpoch(t *testing.T) { bothWays(t, testNewEpoch) }

func testNewEpoch(t *testing.T, cfg WriterConfig) {
	l := begin(t, &faultfs.FS{}, cfg)
	for i := range 5 {
		l.j.Append(durable(i))
	}
	l.awaitShown()
	r := reader(t, l.j, Position{Epoch: epoch, Seq: 3}, true, nothing)
	check(t, "before", read(t, r), []string{"d4", "d5"})
	l.j.Restart(epoch+2, []*Record{durable(7), durable(8)})
	l.j.Append(durable(9))
	l.awaitShown()
	want := []string{"epoch 7-9", "d1", "d2", "d3"}
	check(t, "a reader that was there", read(t, r), want)
	check(t, "one that comes back", read(t, reader(t, l.j, Position{Epoch: epoch, Seq: 5}, true, nothing)), want)
	next := begin(t, l.kill(true), cfg)
	if next.j.Last().Epoch != epoch+2 {
		t.Errorf("after a crash the epoch is %d", next.j.Last().Epoch)
	}
	if got := read(t, reader(t, next.j, Position{Epoch: epoch, Seq: 5}, false, nothing)); !slices.Equal(got[:3], want[:3]) {
		t.Errorf("after a crash: %v", got)
	}
	next.close()
}

// TestNewEpochBeforeASync: a sync of the log of the earlier epoch says nothing of events of the new one, which the disk lacks.
// They stay in memory.
func TestNewEpochBeforeASync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, &faultfs.FS{}, WriterConfig{Fsync: FsyncInterval})
		for i := range 5 {
			l.j.Append(durable(i))
		}
		l.awaitShown()
		l.fs.Fail(faultfs.Write, syscall.EIO)
		l.j.Restart(epoch+2, []*Record{durable(7), durable(8)})
		r := reader(t, l.j, Position{Epoch: epoch + 2}, false, nothing)
		time.Sleep(2 * DefaultFsyncInterval)
		l.j.shrink()
		if got, _ := r.Next(nil, 1<<20); len(got) != 2 || got[0].ID != durable(7).ID || got[1].ID != durable(8).ID {
			t.Errorf("while the disk fails a reader gets %v", got)
		}
		l.fs.Fail(faultfs.Write, nil)
		time.Sleep(maxRetry)
		l.j.Append(durable(9))
		l.j.shrink()
		l.awaitShown()
		check(t, "then", read(t, r), []string{"d3"})
		l.close()
	})
}

// The memory of all journals together is bounded: those unused for longest give it up.
func TestBudget(t *testing.T) {
	t.Parallel()
	const limit = 100 * 228
	b := NewBudget(limit)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	defer func() { cancel(); <-done }()
	var all []*Journal
	for range 10 {
		j := New(Config{Epoch: epoch, Budget: b})
		all = append(all, j)
		for i := range 20 {
			j.Append(ephemeral(i))
		}
	}
	eventually(t, func() bool { return b.Used() <= limit })
	if got := len(read(t, reader(t, all[9], Position{}, true, nothing))); got != 20 {
		t.Errorf("the journal used last has %d events, want 20", got)
	}
	check(t, "the one unused for longest", read(t, reader(t, all[0], Position{}, true, nothing)), []string{"gap 0-20"})
	for _, j := range all {
		if err := j.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are left", b.Used())
	}
}
