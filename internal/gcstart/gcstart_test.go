package gcstart

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// percent returns the percentage in use.
func percent() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}

// The percentage is the process's, so the cases run one after the other.
func TestStart(t *testing.T) {
	state.end() // the start of the test's own process: otherwise it ends with a collection, in any of the cases
	before := percent()
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Run("End", func(t *testing.T) {
		debug.SetGCPercent(120)
		p := begin(startPercent)
		if got := percent(); got != startPercent {
			t.Errorf("the start has %d %%", got)
		}
		p.end()
		if got := percent(); got != 120 {
			t.Errorf("after the end it is %d %%", got)
		}
		p.setPercent(130)
		p.end()
		if got := percent(); got != 130 {
			t.Errorf("a percentage set later is %d %%", got)
		}
	})
	t.Run("set before the end", func(t *testing.T) {
		debug.SetGCPercent(120)
		p := begin(startPercent)
		p.setPercent(150)
		if got := percent(); got != startPercent {
			t.Errorf("the start has %d %%", got)
		}
		p.end()
		if got := percent(); got != 150 {
			t.Errorf("after the end it is %d %%", got)
		}
	})
	t.Run("first collection", func(t *testing.T) {
		debug.SetGCPercent(120)
		p := begin(startPercent)
		runtime.GC()
		limit := time.Now().Add(30 * time.Second)
		for ended := false; !ended; runtime.Gosched() { // the cleanup has a goroutine of its own
			p.mu.Lock()
			ended = p.ended
			p.mu.Unlock()
			if time.Now().After(limit) {
				t.Fatal("a collection does not end the start")
			}
		}
		if got := percent(); got != 120 {
			t.Errorf("after it it is %d %%", got)
		}
	})
	for name, given := range map[string]int{"off": -1, "higher": 5000} {
		t.Run(name, func(t *testing.T) {
			debug.SetGCPercent(given)
			begin(startPercent)
			if got := percent(); got != given {
				t.Errorf("the start has %d %%, want %d", got, given)
			}
		})
	}
}
