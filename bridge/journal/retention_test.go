package journal

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A journal with a retention below the usual file size has smaller files.
func TestRetentionOfLittle(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	fs := &faultfs.FS{}
	w := NewWriter(WriterConfig{FS: fs, MaxBytes: most})
	d, _, err := OpenDisk("s/one", epoch, w)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, fs: fs, w: w, j: New(Config{Epoch: epoch, Log: d})}
	for i := range 3 * most >> 10 {
		rec := durable(i)
		rec.JSON = append(rec.JSON, make([]byte, 1<<10)...)
		l.j.Append(rec)
		if i%64 == 0 {
			l.awaitShown()
		}
	}
	l.close()
	d.trim()
	if size := d.log.Size(); size > most || size < most/2 {
		t.Errorf("%d bytes are kept of at most %d", size, most)
	}
}

// A reader that starts while retention removes files receives a gap, also before the journal has recorded which
// events were removed.
func TestReadWhileTrimmed(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	w := NewWriter(WriterConfig{FS: &faultfs.FS{}, MaxBytes: most, Fsync: FsyncAlways})
	d, _, err := OpenDisk("s/one", epoch, w)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, w: w, j: New(Config{Epoch: epoch, Log: d})}
	for i := range 8 * most >> 10 {
		rec := durable(i)
		rec.JSON = append(rec.JSON, make([]byte, 1<<10)...)
		l.j.Append(rec)
	}
	l.awaitShown()
	l.j.mu.Lock()
	l.j.evict(0) // what is in memory is not lost
	l.j.mu.Unlock()
	trimmed, err := d.log.Trim(most, time.Time{})
	if err != nil || trimmed == 0 {
		t.Fatalf("up to %d went, %v", trimmed, err)
	}
	r, err := l.j.NewReader(Position{Epoch: epoch, Seq: 1}, false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	records, gap := r.Next(nil, 1<<20)
	if gap == nil || gap.Reason != Trimmed || gap.To.Seq != trimmed || len(records) > 0 {
		t.Errorf("first came %d events and the gap %+v, want what went up to %d", len(records), gap, trimmed)
	}
	r, err = l.j.NewReader(Position{Epoch: epoch - 1, Seq: 1}, false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, want := range []GapReason{EpochEnded, Trimmed} {
		if records, gap := r.Next(nil, 1<<20); gap == nil || gap.Reason != want || len(records) > 0 {
			t.Errorf("a reader of an earlier epoch gets %d events and the gap %+v, want the reason %d", len(records), gap, want)
		}
	}
	l.close()
}
