package journal

import (
	"runtime"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A journal with a long history costs no more per event than one with a short one: what is
// let go of in memory, event by event, must not move what stays. Not parallel: it counts
// what the process allocates.
func TestLongJournalAllocatesNoMore(t *testing.T) {
	l := begin(t, &faultfs.FS{}, WriterConfig{SegmentBytes: 1 << 20})
	defer l.close()
	n := 0
	for size := 0; size <= 2*maxCachedBytes; n++ {
		rec := durable(n)
		size += rec.size()
		l.j.Append(rec)
	}
	l.awaitShown()
	const events = 500
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range events {
		l.j.Append(durable(n))
		n++
		l.awaitShown() // each event is written and released separately
	}
	runtime.ReadMemStats(&after)
	// The file system of the tests keeps the files in memory, and grows them by copying.
	if per := (after.TotalAlloc - before.TotalAlloc) / events; per > 20<<10 {
		t.Errorf("an event allocates %d bytes", per)
	}
}
