package main

import (
	"fmt"
	"sync"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// recorder holds what happened in a schedule: its log, the violations, the faults and the results of calls.
// It is safe for concurrent use.
type recorder struct {
	begun time.Time

	mu     sync.Mutex
	log    []string
	found  []string // violations
	faults tally
	calls  tally // by method and result
}

func newRecorder() *recorder {
	return &recorder{begun: time.Now(), faults: tally{}, calls: tally{}}
}

// logf writes a line into the log.
func (r *recorder) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := float64(time.Since(r.begun).Microseconds()) / 1000
	r.log = append(r.log, fmt.Sprintf("%9.1f ms  ", at)+fmt.Sprintf(format, args...))
}

// maxFound bounds the recorded violations.
const maxFound = 50

// violated notes that an invariant does not hold.
func (r *recorder) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.logf("VIOLATION %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) < maxFound {
		r.found = append(r.found, text)
	}
}

// struck counts a fault.
func (r *recorder) struck(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[kind]++
}

// count counts the result of a call.
func (r *recorder) count(result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[result]++
}

// outcome counts how turns end. None may end without a status.
func (r *recorder) outcome(o *bridgev1.TurnOutcome) {
	if o.GetStatus() == bridgev1.TurnStatus_TURN_STATUS_UNSPECIFIED {
		r.violated("a turn ended with no status: %v", o)
	}
	r.count("turn " + o.GetStatus().String())
}

// report fills in what was recorded.
func (r *recorder) report(to *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to.Took, to.Faults, to.Calls = time.Since(r.begun), r.faults, r.calls
	if to.Violations = r.found; len(r.found) > 0 {
		to.Log = r.log
	}
}
