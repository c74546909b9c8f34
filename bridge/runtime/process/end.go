package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrStreamClosed is the Cause of an exit that followed Close.
var ErrStreamClosed = errors.New("its stream was closed")

// settle is how long after Close an exit still counts as the child's own doing.
const settle = 20 * time.Millisecond

// Exit says how a child ended.
type Exit struct {
	// Code is the exit status, -1 when a signal ended it.
	Code int
	// Signal names the signal that ended it, "" if none did.
	Signal string
	// Cause is who asked for the end: the cause of the context, ErrStreamClosed,
	// or nil when it ended by itself.
	Cause error
	// Forced names the strongest signal we sent, "" when none was needed.
	Forced string
	// Orphans counts the descendants that outlived it and were ended.
	Orphans int
	// Stderr is the last it wrote to stderr.
	Stderr string
}

// Clean tells whether the child ended in order: status 0, no signal.
func (e Exit) Clean() bool { return e.Code == 0 && e.Signal == "" }

// Error describes the exit in one line; an Exit is usable as a cause.
func (e Exit) Error() string {
	var b strings.Builder
	if e.Signal != "" {
		fmt.Fprintf(&b, "ended by signal %q", e.Signal)
	} else {
		fmt.Fprintf(&b, "exit status %d", e.Code)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ", asked to end because %v", e.Cause)
	}
	if e.Forced != "" {
		fmt.Fprintf(&b, ", sent %s", e.Forced)
	}
	if e.Stderr != "" {
		fmt.Fprintf(&b, ", stderr %q", e.Stderr)
	}
	return b.String()
}

// Unwrap returns who asked for the end.
func (e Exit) Unwrap() error { return e.Cause }

func (e *Exit) fill(state *os.ProcessState) {
	if state == nil {
		e.Code = -1
		return
	}
	e.Code = state.ExitCode()
	e.Signal = signalOf(state)
}

// end waits until somebody wants the child to end and sees to it.
func (p *Process) end(ctx context.Context) {
	var cause error
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-p.closed:
		// A child that ends by itself is often noticed first by whoever reads
		// its output, who then closes the stream: do not take the blame for that.
		if p.exitsWithin(settle) {
			return
		}
		cause = ErrStreamClosed
		if err := context.Cause(ctx); err != nil {
			cause = err
		}
	}
	p.note(func(e *Exit) { e.Cause = cause })
	_ = p.closeStdin()
	if p.exitsWithin(p.opts.InputGrace) {
		return
	}
	p.note(func(e *Exit) { e.Forced = "SIGTERM" })
	p.signalGroup(terminate)
	if p.exitsWithin(p.opts.TermGrace) {
		return
	}
	p.note(func(e *Exit) { e.Forced = "SIGKILL" })
	p.signalGroup(kill)
}

func (p *Process) note(f func(*Exit)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.exit)
}

func (p *Process) exitsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// signalGroup signals the group of the child unless its id may by now be
// somebody else's.
func (p *Process) signalGroup(s strength) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		sendGroup(p.cmd.Process, s)
	}
}

// strength is how hard to ask for an end.
type strength int

const (
	terminate strength = iota
	kill
)
