package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// world is a schedule being played.
type world struct {
	plan Plan
	dir  string
	host *process
	// ctx ends with the schedule, or when it has taken far too long.
	ctx    context.Context
	cancel context.CancelFunc

	rec       *recorder
	calls     *calls
	prompts   prompts
	positions positions

	callers   []*caller
	sessions  []*conversation
	audience  audience
	model     *model       // of the real CLI
	abandoned atomic.Int64 // sessions of calls that failed, which may exist
}

// Report is what came of a schedule.
type Report struct {
	Plan   Plan
	Took   time.Duration
	Faults tally
	Calls  tally
	// Counts is how much was compared.
	Counts tally
	// Violations is empty when all is well. Log is only there when it is not.
	Violations []string
	Log        []string
}

// play plays a schedule.
func play(ctx context.Context, p Plan) *Report {
	w := &world{plan: p, rec: newRecorder(), positions: positions{given: map[string]map[place]string{}}}
	w.ctx, w.cancel = context.WithTimeout(ctx, tooLong)
	defer w.cancel()
	w.calls = &calls{ctx: w.ctx, giveUp: w.cancel, rec: w.rec}
	r := &Report{Plan: p, Counts: tally{"steps": p.Steps}}
	var err error
	if w.dir, err = os.MkdirTemp("", "chaos"); err == nil {
		err = w.play(r)
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	if err != nil {
		w.rec.violated("the schedule could not be played: %v", err)
	}
	r.Counts["sessions"] = len(w.sessions)
	w.rec.report(r)
	return r
}

// play is the schedule in a new directory.
func (w *world) play(r *Report) (err error) {
	if w.host, err = newProcess(w); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.host.close()) }()
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
		w.rec.logf("step %d: %s %v", i, s.op, s.pick)
		do[s.op].do(w, s)
		pause(w.ctx, s.after)
	}
	w.settle(r)
	return context.Cause(w.ctx)
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
