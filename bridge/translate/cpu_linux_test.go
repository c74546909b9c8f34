package translate_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// perCPU has a benchmark report the CPU time of the process per operation, the collector's
// included, when what it returns is called: on a busy machine the time of day says little.
func perCPU(b *testing.B) func() {
	b.Helper()
	now := func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return t.Nano()
	}
	begin := now()
	return func() { b.ReportMetric(float64(now()-begin)/float64(b.N), "cpu-ns/op") }
}
