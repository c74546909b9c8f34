package journal

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A journal of which less is kept than its files usually have is in smaller ones.
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
			l.settle()
		}
	}
	l.close()
	d.trim()
	if size := d.log.Size(); size > most || size < most/2 {
		t.Errorf("%d bytes are kept of at most %d", size, most)
	}
}
