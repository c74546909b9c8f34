package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// callTimeout is how long any call may take before it counts as one that never ends:
// everything in a schedule is bounded well below.
const callTimeout = 30 * time.Second

// startCallTimeout is the same where CLIs are processes, which may be made deaf while they
// start: that takes as long as a start may.
const startCallTimeout = 100 * time.Second

func (w *world) callTimeout() time.Duration {
	if w.plan.Mode != Memory {
		return startCallTimeout
	}
	return callTimeout
}

// world is a schedule being played.
type world struct {
	plan   Plan
	dir    string
	host   host
	begun  time.Time
	cancel context.CancelFunc
	// ctx ends with the schedule, patience with it or when it has taken far too long.
	ctx context.Context

	callers      []*caller
	sessions     []*conversation
	readers      []*reader
	participants []*participant
	model        *model // of Real

	calls sync.WaitGroup

	mu        sync.Mutex
	log       []string
	found     []string // violations
	faults    map[string]int
	done      map[string]int // calls by method and result
	asked     []*asking      // that can be repeated
	prompts   []*prompt
	positions positions
	abandoned int

	disorders []disorder      // set for the check
	early     map[string]bool // events that the CLI told early, found by the check
}

// logf writes a line into the schedule's log.
func (w *world) logf(format string, args ...any) {
	if w.plan.Soak {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%9.1f ms  ", float64(time.Since(w.begun).Microseconds())/1000)+fmt.Sprintf(format, args...))
}

// maxFound bounds the violations that are kept.
const maxFound = 50

// violated notes that an invariant does not hold.
func (w *world) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.logf("VIOLATION %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) < maxFound {
		w.found = append(w.found, text)
	}
}

// struck counts a fault.
func (w *world) struck(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[kind]++
}

// rng is a source of its own for what runs beside the schedule.
func (w *world) rng(s step) *rand.Rand {
	return rand.New(rand.NewPCG(w.plan.Seed, uint64(s.pick[0])<<32|uint64(s.pick[1])))
}

// Report is what came of a schedule.
type Report struct {
	Plan     Plan           `json:"plan"`
	Took     time.Duration  `json:"took"`
	Steps    int            `json:"steps"`
	Sessions int            `json:"sessions"`
	Faults   map[string]int `json:"faults"`
	Calls    map[string]int `json:"calls"`
	Counts   Counts         `json:"counts"`
	// Violations is empty when all is well. Log is only there when it is not.
	Violations []string `json:"violations,omitempty"`
	Log        []string `json:"log,omitempty"`
}

// Counts is how much was compared.
type Counts struct {
	Durable   int `json:"durable"`   // events of the CLI's histories
	Delivered int `json:"delivered"` // events that readers got
	Readers   int `json:"readers"`
	Gaps      int `json:"gaps"`
	Callbacks int `json:"callbacks"` // that the CLI was answered
	Lives     int `json:"lives"`     // of CLI processes
	Unordered int `json:"unordered"` // bursts that the server left out of order
	Early     int `json:"early"`     // events of histories that the CLI told before what came before them
	Heap      int `json:"heap"`      // bytes in use at the end
}

// Run plays a schedule.
func Run(ctx context.Context, p Plan) *Report {
	before := takeStock()
	w := &world{plan: p, positions: positions{given: map[string]map[place]string{}}, begun: time.Now(), faults: map[string]int{}, done: map[string]int{}, early: map[string]bool{}}
	w.ctx, w.cancel = context.WithCancel(ctx)
	defer w.cancel()
	r := &Report{Plan: p, Steps: p.Steps}
	var err error
	if w.dir, err = os.MkdirTemp("", "chaos"); err == nil {
		err = w.play(r)
		err = joinErrors(err, os.RemoveAll(w.dir))
	}
	if err != nil {
		w.violated("the schedule could not be played: %v", err)
	}
	w.cancel()
	for _, left := range before.compare() {
		w.violated("left behind: %s", left)
	}
	r.Counts.Heap = heap()
	r.Took, r.Sessions, r.Faults, r.Calls = time.Since(w.begun), len(w.sessions), w.faults, w.done
	if r.Violations = w.found; len(r.Violations) > 0 {
		r.Log = w.log
	}
	return r
}

// play is Run in a directory of its own.
func (w *world) play(r *Report) (err error) {
	if w.host, err = newHost(w); err != nil {
		return err
	}
	defer func() { err = joinErrors(err, w.host.close()) }()
	if err := w.host.start(); err != nil {
		return err
	}
	defer func() {
		for _, c := range w.callers {
			c.close()
		}
	}()
	for i := range 3 {
		c, err := newCaller(w, i)
		if err != nil {
			return err
		}
		w.callers = append(w.callers, c)
	}
	for i := range minSessions {
		w.create(step{pick: [4]uint32{uint32(i), uint32(i), 0, 0}})
	}
	do := map[string]op{}
	for _, o := range ops() {
		do[o.name] = o
	}
	for i, s := range draw(w.plan) {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		w.logf("step %d: %s %v", i, s.op, s.pick)
		do[s.op].do(w, s)
		w.pause(s.after)
	}
	w.settle(r)
	return nil
}

func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}
