package sim

import (
	"flag"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"testing"
)

var procs = flag.Int("procs", 1, "how many processors the runs use; with more than one, equal runs may differ")

// TestMain makes equal runs behave alike: goroutines on one processor take turns in an order that depends on nothing else,
// unless the garbage collector, the operating system or the race detector comes in between.
func TestMain(m *testing.M) {
	flag.Parse()
	goruntime.GOMAXPROCS(*procs)
	debug.SetGCPercent(-1)        // see play
	debug.SetMemoryLimit(1 << 30) // of a run that does not end
	os.Exit(m.Run())
}
