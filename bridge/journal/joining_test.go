package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// crowd is a process with many journals and a joint log.
type crowd struct {
	t    *testing.T
	fs   segment.FS
	w    *Writer
	logs *Folders
	j    []*Journal
	rec  []Recovery
}

func assemble(t *testing.T, fs segment.FS, count int, cfg WriterConfig) *crowd {
	t.Helper()
	cfg.FS, cfg.OverrunFile = fs, "overruns"
	c := &crowd{t: t, fs: fs, w: NewWriter(cfg)}
	var err error
	if c.logs, err = OpenFolders(c.w, "joint", func(name string) string { return "s/" + name }); err != nil {
		t.Fatal(err)
	}
	c.logs.Start(nil)
	for i := range count {
		name := fmt.Sprint("j", i)
		d, rec, err := OpenLog(c.logs, name, 1, epoch, "s/"+name, c.w)
		if err != nil {
			t.Fatal(err)
		}
		c.j = append(c.j, New(Config{Epoch: epoch, Log: d}))
		c.rec = append(c.rec, rec)
	}
	return c
}

func (c *crowd) awaitShown() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, j := range c.j {
		if err := j.AwaitShown(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *crowd) close() {
	c.t.Helper()
	for _, j := range c.j {
		if err := j.Close(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	}
	c.end()
}

func (c *crowd) end() {
	c.w.Close()
	if err := c.logs.Close(); err != nil && !errors.Is(err, faultfs.ErrCrashed) {
		c.t.Fatal(err)
	}
}

func (c *crowd) kill(power bool) *faultfs.FS {
	next := c.fs.(*faultfs.FS).Restart(power)
	c.w.Close()
	return next
}

// durables returns the durable events of a journal by number, and whether a gap was reported.
func (c *crowd) durables(i int) (got map[uint64]ID, told bool) {
	got = map[uint64]ID{}
	r := reader(c.t, c.j[i], Position{}, false, nothing)
	for {
		records, gap := r.Next(nil, 1<<20)
		if gap != nil {
			told = told || gap.Reason == Trimmed || gap.Reason == EpochEnded
			continue
		}
		if len(records) == 0 {
			return got, told
		}
		for _, rec := range records {
			got[rec.Pos.Seq] = rec.ID
		}
	}
}

// small makes a joint log move and drop entries after a few.
var small = WriterConfig{jointEvery: 4 * time.Millisecond, SegmentBytes: 2000, limits: joined.limits}

// However a process with many journals ends, no event that a reader has seen is lost without a Gap, and none comes
// twice.
func TestCrashOfManyAnywhere(t *testing.T) {
	t.Parallel()
	for _, policy := range []Fsync{FsyncAlways, FsyncInterval} {
		for _, end := range endings {
			for crash := 0; crash < 400; crash += race.Sample(7) * (1 + crash/50) {
				crowdCrashes(t, policy, end, crash)
			}
		}
	}
}

func crowdCrashes(t *testing.T, policy Fsync, end ending, crash int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(crash), 9))
	fs := disk(t)
	cfg := small
	cfg.Fsync, cfg.Interval = policy, time.Millisecond
	const count = 12
	c := assemble(t, fs, count, cfg)
	fs.CrashAfter(crash)
	shown := make([]map[uint64]ID, count)
	readers := make([]*Reader, count)
	for i := range count {
		shown[i], readers[i] = map[uint64]ID{}, reader(t, c.j[i], Position{}, false, nothing)
	}
	for n := 0; n < 40 && len(c.w.Degraded()) == 0; n++ {
		for i, j := range c.j {
			if random.IntN(3) > 0 {
				j.Append(durable(100*i + n))
			}
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
		for i, r := range readers {
			records, _ := r.Next(nil, 1<<20)
			if c.j[i].Degraded() != nil {
				break // what is shown now may be lost
			}
			for _, rec := range records {
				shown[i][rec.Pos.Seq] = rec.ID
			}
		}
	}
	if end != killed {
		cfg.boot = "the next one"
	}
	next := end.restart(fs, random)
	c.w.Close()
	c = assemble(t, next, count, cfg)
	defer c.close()
	for i := range count {
		got, told := c.durables(i)
		for seq, id := range shown[i] {
			if got[seq] != id && (end == killed || !told || got[seq] != ID{}) {
				t.Fatalf("crash at %d (%s, %s): event %d of journal %d was shown, and now is %v; told: %v",
					crash, policy, end, seq, i, got[seq], told)
			}
			if policy == FsyncAlways && got[seq] != id {
				t.Fatalf("crash at %d (%s, %s): event %d of journal %d is lost", crash, policy, end, seq, i)
			}
		}
	}
}

// countingFS counts syncs, and writes to files that have begun.
type countingFS struct {
	segment.FS
	syncs, writes *atomic.Int64
}

type countingFile struct {
	segment.File
	fs *countingFS
}

func (f *countingFS) Open(name string, write bool) (segment.File, error) {
	file, err := f.FS.Open(name, write)
	return countingFile{file, f}, err
}

func (f countingFile) Sync() error {
	f.fs.syncs.Add(1)
	return f.File.Sync()
}

func (f countingFile) WriteAt(p []byte, at int64) (int, error) {
	f.fs.writes.Add(1)
	return f.File.WriteAt(p, at)
}

// A hundred journals that are written between two syncs need a few syncs and not a hundred.
func TestSyncsOfManyJournals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &countingFS{&faultfs.FS{}, new(atomic.Int64), new(atomic.Int64)}
		const count = 100
		c := assemble(t, fs, count, WriterConfig{})
		joinAll(c, 0)
		time.Sleep(2 * DefaultFsyncInterval)
		fs.syncs.Store(0)
		fs.writes.Store(0)
		const rounds = 20
		for n := range rounds {
			for _, j := range c.j {
				j.Append(durable(1 + n))
			}
			time.Sleep(DefaultFsyncInterval)
		}
		if syncs := fs.syncs.Load(); syncs > 12*rounds {
			t.Errorf("%d rounds of %d journals made %d syncs", rounds, count, syncs)
		}
		if writes := fs.writes.Load(); writes > 12*rounds {
			t.Errorf("%d rounds of %d journals made %d writes", rounds, count, writes)
		}
		if c.logs.joint.Bytes() == 0 {
			t.Error("nothing is in the joint log")
		}
		for i := range count {
			if got, _ := c.durables(i); len(got) != rounds+1 {
				t.Errorf("journal %d has %d events", i, len(got))
			}
		}
		time.Sleep(3 * time.Minute)
		if bytes := c.logs.joint.Bytes(); bytes != 0 {
			t.Errorf("%d bytes are still in the joint log", bytes)
		}
		c.close()
	})
}

// move gives a journal an event so large that it goes to its own log, behind the others.
func (c *crowd) move(i int, e *Record) {
	c.t.Helper()
	e.JSON = append(e.JSON, strings.Repeat(" ", maxJoining)...)
	c.j[i].Append(e)
	c.awaitShown()
}

// joinAll gives each journal of a crowd an event and n further ones, all in the joint log.
func joinAll(c *crowd, n int) {
	c.t.Helper()
	for _, j := range c.j {
		j.Append(durable(0))
	}
	c.awaitShown()
	for i := range n {
		for _, j := range c.j {
			j.Append(durable(1 + i))
		}
		c.awaitShown()
	}
}

// The joint log is full, or fails, while the logs of the journals do not: these have all events.
func TestJointLogFails(t *testing.T) {
	t.Parallel()
	for _, op := range []faultfs.Op{faultfs.Write, faultfs.Sync} {
		for _, policy := range []Fsync{FsyncInterval, FsyncAlways} {
			synctest.Test(t, func(t *testing.T) {
				fs := &faultfs.FS{}
				c := assemble(t, fs, 20, WriterConfig{Fsync: policy})
				joinAll(c, 3)
				fs.FailIn("joint", op, syscall.EIO)
				for _, j := range c.j {
					j.Append(durable(10))
				}
				time.Sleep(5 * time.Second)
				if degraded := c.w.Degraded(); len(degraded) > 0 {
					t.Errorf("%s, %s: degraded are %v", op, policy, degraded)
				}
				fs.FailIn("", op, nil)
				next := assemble(t, c.kill(true), 20, WriterConfig{Fsync: policy, boot: "next"})
				for i := range next.j {
					if got, _ := next.durables(i); len(got) != 5 {
						t.Errorf("%s, %s: journal %d has %d events: %v", op, policy, i, len(got), got)
					}
				}
				next.close()
			})
		}
	}
}

// What was written before the last sync survives a crash of the machine, in the joint log or in a journal.
func TestSyncedEventsSurviveTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := assemble(t, &faultfs.FS{}, 20, WriterConfig{})
		joinAll(c, 3)
		c.move(3, durable(20))
		for _, j := range c.j {
			j.Append(durable(21))
		}
		c.awaitShown()
		time.Sleep(2 * DefaultFsyncInterval)
		next := assemble(t, c.kill(true), 20, WriterConfig{boot: "next"})
		for i := range next.j {
			want := 5
			if i == 3 {
				want++
			}
			if got, _ := next.durables(i); len(got) != want {
				t.Errorf("journal %d has %d events", i, len(got))
			}
		}
		next.close()
	})
}

// Events of the joint log that are damaged are reported as a Gap, and those of other journals behind them are there.
func TestDamagedJointLog(t *testing.T) {
	t.Parallel()
	fs := disk(t)
	c := assemble(t, fs, 20, WriterConfig{})
	joinAll(c, 1)
	lost := durable(50)
	for i, rec := range []*Record{lost, durable(51)} { // of two journals, one after the other
		c.j[i].Append(rec)
		c.awaitShown()
	}
	killed := c.kill(false)
	name, at := frameOf(killed, lost.ID)
	if !strings.HasPrefix(name, "joint/") {
		t.Fatalf("the event is in %q", name)
	}
	killed.Content(name)[at] ^= 1
	next := assemble(t, killed, 20, WriterConfig{})
	for i, want := range []int{2, 3, 2} {
		if got, told := next.durables(i); len(got) != want || i == 0 && !told {
			t.Errorf("journal %d has %d events, and reports a gap: %v", i, len(got), told)
		}
		if !next.rec[i].Doubtful {
			t.Errorf("journal %d is not in doubt", i)
		}
	}
	next.close()
}

// A later owner in the same process has what the earlier one had in the joint log, who can change nothing any more.
func TestJointLogPassesToTheNextOwner(t *testing.T) {
	t.Parallel()
	c := assemble(t, disk(t), 20, WriterConfig{})
	joinAll(c, 3)
	d, rec, err := OpenLog(c.logs, "j3", 2, epoch, "s/j3", c.w)
	if err != nil || rec.Events != 4 || d.log.Last() != c.j[3].Last().Seq {
		t.Fatalf("%v; the next owner finds %+v, and the log ends with %d", err, rec, d.log.Last())
	}
	c.j[3].Append(durable(7))
	c.j[3].disk.writer.wake(c.j[3].disk)
	eventually(t, func() bool { return c.j[3].Degraded() != nil })
	c.j[3] = New(Config{Epoch: epoch, Log: d})
	c.j[3].Append(durable(8))
	c.awaitShown()
	if got, _ := c.durables(3); len(got) != 5 {
		t.Errorf("the journal has %v", got)
	}
	c.close()
}

// What a killed process left for sessions that nobody opens moves to their folders.
func TestUnopenedLogsAreMoved(t *testing.T) {
	t.Parallel()
	c := assemble(t, disk(t), 20, WriterConfig{})
	joinAll(c, 3)
	fs := c.kill(false)
	next := assemble(t, fs, 0, WriterConfig{})
	if err := next.logs.Move("s/j4"); err != nil {
		t.Fatal(err)
	}
	if next.logs.joint.Inherits("j4") || !next.logs.joint.Inherits("j5") {
		t.Error("other logs were moved, or not this one")
	}
	next.close()
	if names := fs.Names(); strings.Contains(strings.Join(names, " "), "joint") {
		t.Errorf("the joint log is still there: %v", names)
	}
	last := assemble(t, fs, 20, WriterConfig{})
	for i := range last.j {
		if got, _ := last.durables(i); len(got) != 4 || last.rec[i].Lost {
			t.Errorf("journal %d has %v: %+v", i, slices.Sorted(maps.Keys(got)), last.rec[i])
		}
	}
	last.close()
}

// A journal that could not be closed is moved before its folder is moved.
func TestMoveAfterAFailedClose(t *testing.T) {
	t.Parallel()
	fs := disk(t)
	c := assemble(t, fs, 20, WriterConfig{})
	joinAll(c, 3)
	fs.FailIn("s/j4/", faultfs.Write, syscall.EACCES)
	if err := c.j[4].Close(context.Background()); err == nil {
		t.Error("the journal was closed")
	}
	if err := c.logs.Move("s/j4"); err == nil {
		t.Error("the journal was moved")
	}
	fs.FailIn("", faultfs.Write, nil)
	if err := c.logs.Move("s/j4"); err != nil {
		t.Error(err)
	}
	next := c.kill(true)
	if err := next.RemoveAll("joint"); err != nil {
		t.Fatal(err)
	}
	last := assemble(t, next, 20, WriterConfig{})
	if got, _ := last.durables(4); len(got) != 4 {
		t.Errorf("the journal has %d events", len(got))
	}
	last.close()
}

// A session whose folder takes nothing keeps its events in the joint log, which has a limit: beyond it the other
// journals write to their own logs.
func TestOneFolderTakesNothing(t *testing.T) {
	t.Parallel()
	fs := disk(t)
	cfg := small
	c := assemble(t, fs, 12, cfg)
	joinAll(c, 1)
	fs.FailIn("s/j0/", faultfs.Write, syscall.EACCES)
	for n := range 100 {
		for _, j := range c.j {
			j.Append(durable(10 + n))
		}
		c.awaitShown()
	}
	if bytes := c.logs.joint.Bytes(); bytes > 3*small.limits.Bytes {
		t.Errorf("the joint log has %d bytes", bytes)
	}
	for i := range c.j[1:] {
		if err := c.j[1+i].Degraded(); err != nil {
			t.Errorf("journal %d: %v", 1+i, err)
		}
	}
	fs.FailIn("", faultfs.Write, nil)
	eventually(t, func() bool { return len(c.w.Degraded()) == 0 })
	next := assemble(t, c.kill(false), 12, cfg)
	for i := range next.j {
		if got, _ := next.durables(i); len(got) != 102 {
			t.Errorf("journal %d has %d events", i, len(got))
		}
	}
	next.close()
}

// A journal that is deleted leaves nothing that a later one with its name could find.
func TestDeletedJournalLeavesTheJointLog(t *testing.T) {
	t.Parallel()
	fs := disk(t)
	c := assemble(t, fs, 20, WriterConfig{})
	joinAll(c, 3)
	if err := c.j[5].Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	d, rec, err := OpenLog(c.logs, "j5", 3, epoch+1, "s/j5", c.w)
	if err != nil || rec.Events != 0 || !rec.New {
		t.Fatalf("%v; found %+v", err, rec)
	}
	c.j[5] = New(Config{Epoch: epoch + 1, Log: d})
	c.j[5].Append(durable(1))
	c.awaitShown()
	next := assemble(t, c.kill(false), 20, WriterConfig{})
	if got, _ := next.durables(5); len(got) != 1 {
		t.Errorf("the journal has %v", got)
	}
	next.close()
}
