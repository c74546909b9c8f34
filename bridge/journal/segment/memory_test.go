package segment_test

import (
	"runtime"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A small log is opened and read with little memory: a server opens thousands. Not parallel: it counts what the process
// allocates.
func TestSmallLogNeedsLittleMemory(t *testing.T) {
	o := segment.Options{FS: &faultfs.FS{}}
	l, _, _ := open(t, o)
	if err := l.Append(entries(1, 10)); err != nil {
		t.Fatal(err)
	}
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		again, _, _ := open(t, o)
		readAll(t, again, 0)
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / times; bytes > 64<<10 {
		t.Errorf("it needs %d bytes", bytes)
	}
}
