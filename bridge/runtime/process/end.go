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

// lateExit is the time after Close in which an exit still counts as unrequested.
const lateExit = 20 * time.Millisecond

// Exit describes the end of a child.
type Exit struct {
	// Code is the exit status; -1 if a signal ended it.
	Code int
	// Signal is the signal that ended it; "" if none.
	Signal string
	// Cause is why the end was requested: the cause of the context or ErrStreamClosed; nil if it was not requested.
	Cause error
	// Forced is the strongest signal that was sent; "" if none.
	Forced string
	// Orphans counts the remaining descendants that were ended.
	Orphans int
	// Stderr is the end of its stderr.
	Stderr string
}

// Clean reports whether the child exited normally: status 0, no signal.
func (e Exit) Clean() bool { return e.Code == 0 && e.Signal == "" }

// Error describes the exit in one line, so that an Exit can be an error's cause.
func (e Exit) Error() string {
	var b strings.Builder
	if e.Signal != "" {
		fmt.Fprintf(&b, "ended by signal %q", e.Signal)
	} else {
		fmt.Fprintf(&b, "exit status %d", e.Code)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ", stopped because %v", e.Cause)
	}
	if e.Forced != "" {
		fmt.Fprintf(&b, ", sent %s", e.Forced)
	}
	if e.Stderr != "" {
		fmt.Fprintf(&b, ", stderr %q", e.Stderr)
	}
	return b.String()
}

// Unwrap returns the cause of the request to end.
func (e Exit) Unwrap() error { return e.Cause }

func (e *Exit) fill(state *os.ProcessState) {
	if state == nil {
		e.Code = -1
		return
	}
	e.Code = state.ExitCode()
	e.Signal = signalOf(state)
}

// end waits for a request to end the child, and ends it.
func (p *Process) end(ctx context.Context) {
	var cause error
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-p.closed:
		// The reader of its output often notices the end of the child first and closes the stream: such an exit was
		// not requested.
		if p.exitsWithin(lateExit) {
			return
		}
		cause = ErrStreamClosed
		if err := context.Cause(ctx); err != nil {
			cause = err
		}
	}
	p.note(func(e *Exit) { e.Cause = cause })
	_ = p.CloseWrite()
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

// signalGroup signals the child's process group, unless its id may have been reused.
func (p *Process) signalGroup(s strength) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		sendGroup(p.cmd.Process, s)
	}
}

// strength is the force of a request to end.
type strength int

const (
	terminate strength = iota
	kill
)
