package journal

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// ending is how a process ends.
type ending string

const (
	killed ending = "killed"
	// power ends the machine, with everything that was not synced.
	power ending = "power"
	// torn is the same, but some blocks of what was not synced are there.
	torn ending = "torn"
)

var endings = []ending{killed, power, torn}

// restart returns a file system as the next process finds it.
func (e ending) restart(fs *faultfs.FS, random *rand.Rand) *faultfs.FS {
	if e != torn {
		return fs.Restart(e == power)
	}
	return fs.Tear(64, func() bool { return random.IntN(3) > 0 })
}

// After a crash of the process or of the machine at any change, each event that a reader has seen is in its
// place, or a gap covers it, and no number is used twice.
func TestCrashAnywhere(t *testing.T) { bothWays(t, testCrashAnywhere) }

func testCrashAnywhere(t *testing.T, cfg WriterConfig) {
	for _, policy := range []Fsync{FsyncAlways, FsyncInterval} {
		for _, end := range endings {
			for crash := 0; crash < 120; crash += race.Sample(3) * (1 + crash/20) {
				crashAt(t, cfg, policy, end, crash)
			}
		}
	}
}

func crashAt(t *testing.T, cfg WriterConfig, policy Fsync, end ending, crash int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(crash), 7))
	fs := disk(t)
	fs.CrashAfter(crash)
	cfg.Fsync, cfg.Interval, cfg.SegmentBytes = policy, time.Millisecond, 2000
	l := begin(t, fs, cfg)
	r := reader(t, l.j, Position{}, true, nothing)
	shown := map[uint64]ID{} // by seq
	last := uint64(0)
	for i := 0; i < 60 && l.j.Degraded() == nil; i++ {
		rec := durable(i)
		if random.IntN(3) == 0 {
			rec = ephemeral(i)
		}
		l.j.Append(rec)
		if random.IntN(2) == 0 {
			eventually(t, func() bool {
				l.j.mu.RLock()
				defer l.j.mu.RUnlock()
				return l.j.shownSeq == l.j.nextSeq-1 || l.j.disk.degraded != nil
			})
		}
		// Events that readers see while the disk is known to fail may be lost.
		records, _ := r.Next(nil, 1<<20)
		if l.j.Degraded() != nil {
			break
		}
		for _, rec := range records {
			last = rec.Pos.Seq
			if !rec.Ephemeral {
				shown[rec.Pos.Seq] = rec.ID
			}
		}
	}
	if end != killed {
		cfg.boot = "the next one"
	}
	after := end.restart(fs, random)
	l.w.Close()
	l = begin(t, after, cfg)
	defer l.close()
	if l.j.Last().Epoch == epoch && l.j.Last().Seq < last {
		t.Fatalf("crash at %d (%s, %s): event %d was shown, and the journal is at %d", crash, policy, end, last,
			l.j.Last().Seq)
	}
	got := map[uint64]ID{}
	told := false
	next := reader(t, l.j, Position{}, false, nothing)
	for {
		records, gap := next.Next(nil, 1<<20)
		if gap != nil {
			told = told || gap.Reason == Trimmed || gap.Reason == EpochEnded
			continue
		}
		if len(records) == 0 {
			break
		}
		for _, rec := range records {
			got[rec.Pos.Seq] = rec.ID
		}
	}
	for seq, id := range shown {
		if got[seq] != id && !told {
			t.Fatalf("crash at %d (%s, %s): event %d was shown and is lost without a word; %d of %d are there",
				crash, policy, end, seq, len(got), len(shown))
		}
		if got[seq] != (ID{}) && got[seq] != id {
			t.Fatalf("crash at %d: another event is at %d", crash, seq)
		}
		if end == killed && got[seq] != id {
			t.Fatalf("crash at %d (%s): event %d was shown and has not outlived the process", crash, policy, seq)
		}
	}
}
