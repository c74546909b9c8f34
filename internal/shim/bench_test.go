package shim

import (
	"context"
	"syscall"
	"testing"
)

// BenchmarkCall is a short call's way through the shim and a bridge, beside the way to the
// scripted CLI alone.
func BenchmarkCall(b *testing.B) {
	for name, direct := range map[string]bool{"direct": true, "shim": false} {
		b.Run(name, func(b *testing.B) {
			p := newFixture(b, script).connect(direct)
			p.call("session.create", creation)
			p.await("session.managed_settings_resolved", 1)
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for b.Loop() {
				if _, err := p.conn.Call(context.Background(), "session.mode.get",
					[]byte(`{"sessionId":"s1"}`)); err != nil {
					b.Fatal(err)
				}
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op") // of the scripted CLI, too
		})
	}
}
