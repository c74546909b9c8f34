package sim

import (
	"flag"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"testing"
)

var procs = flag.Int("procs", 1, "how many processors the runs use; with more than one, equal runs may differ")

// sleep waits for ever with a stack of some KiB. A goroutine begins with as much stack as those used on average when the last
// garbage was collected, so that with many of these the goroutines of runs need not have theirs copied to larger ones.
func sleep(kib int) int {
	var used [1 << 10]byte
	if kib == 0 {
		select {}
	}
	return sleep(kib-1) + int(used[kib])
}

// TestMain makes equal runs behave alike: goroutines on one processor take turns in an order that depends on nothing else,
// unless the garbage collector, the operating system or the race detector comes in between.
func TestMain(m *testing.M) {
	flag.Parse()
	goruntime.GOMAXPROCS(*procs)
	debug.SetGCPercent(-1)        // see play
	debug.SetMemoryLimit(1 << 30) // of a run that does not end
	for range 200 {
		go sleep(6)
	}
	os.Exit(m.Run())
}
