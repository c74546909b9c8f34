// Package worker runs functions beside their caller.
package worker

import "context"

// Worker runs jobs on goroutines beside the caller. It keeps one goroutine between jobs, until ctx ends: to grow the
// stack of a new goroutine took a fifth of the CPU time of a tool call. It is safe for concurrent use.
type Worker struct {
	ctx context.Context
	// jobs is unbuffered: only the goroutine between two jobs receives from it.
	jobs chan func()
	// resting has an element while a goroutine is between two jobs.
	resting chan struct{}
}

// New returns a Worker whose idle goroutine ends with ctx.
func New(ctx context.Context) *Worker {
	return &Worker{ctx: ctx, jobs: make(chan func()), resting: make(chan struct{}, 1)}
}

// Do runs a job on the goroutine between two jobs, or on a new goroutine. It does not wait.
func (w *Worker) Do(job func()) {
	select {
	case w.jobs <- job:
	default:
		go w.run(job)
	}
}

// run runs a job and those that follow, until another goroutine is between two jobs or ctx ends.
func (w *Worker) run(job func()) {
	for {
		job()
		select {
		case w.resting <- struct{}{}:
		default:
			return
		}
		select {
		case job = <-w.jobs:
			<-w.resting
		case <-w.ctx.Done():
			return
		}
	}
}
