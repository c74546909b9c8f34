// Package gcstart lets a program start without a garbage collection. While a program initializes, nearly everything it
// allocates stays, and the small heap would be collected several times.
//
// A program imports the package, which then allows the heap to grow to about startBytes before the first collection.
// From that collection on, or from a call of End, the usual percentage applies. The package imports only the standard
// library and its path is early in the alphabet, so Go initializes it before the packages that allocate most.
package gcstart

import (
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// minHeap is the heap size at which Go collects first with a percentage of 100.
	minHeap = 4 << 20
	// startBytes is about the heap at which the first collection of a starting program begins.
	startBytes   = 40 << 20
	startPercent = 100 * startBytes / minHeap
)

var state = begin(startPercent)

// phase is the time before the usual percentage applies.
type phase struct {
	mu      sync.Mutex
	percent int // the usual one
	ended   bool
}

// begin sets the percentage of the start. It leaves a higher one, or none, as they are.
func begin(percent int) *phase {
	p := &phase{percent: debug.SetGCPercent(percent)}
	if p.percent < 0 || p.percent > percent {
		p.end()
		return p
	}
	// The sentinel becomes garbage here. The first collection finds it.
	sentinel := new([16]byte)
	runtime.AddCleanup(sentinel, func(p *phase) { p.end() }, p)
	return p
}

func (p *phase) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		debug.SetGCPercent(p.percent)
	}
}

func (p *phase) setPercent(percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.percent = percent
	if p.ended {
		debug.SetGCPercent(percent)
	}
}

// SetPercent sets the percentage that applies after the start, like debug.SetGCPercent. The default is GOGC.
func SetPercent(percent int) { state.setPercent(percent) }

// End ends the start: the usual percentage applies from now on. Calls after the first one do nothing.
func End() { state.end() }
