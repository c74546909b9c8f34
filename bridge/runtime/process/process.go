// Package process owns one child process: its start, its three standard streams, its end and its remaining
// descendants.
//
// # Ownership
//
// Each child has one goroutine, locked to its OS thread, that starts it and waits for it. Linux ties the signal that
// a child gets at its parent's death to the thread that forked it, so that thread must live as long as the child.
//
// # The end
//
// A child exits on its own, or is ended when its context ends or its stream is closed. In the last two cases the
// package closes its input, then sends SIGTERM to its process group, then SIGKILL, each after a grace time.
//
// # Remaining descendants
//
// Descendants that changed their session or lost their parent are found by a marker in their environment, and not by
// ancestry. The alternative, PR_SET_CHILD_SUBREAPER, would make this package the parent of all orphans of the host
// program; reaping them needs wait4(-1), which takes the exit status of children that os/exec waits for. Markers also
// survive this process: SweepAbandoned finds what a killed predecessor left. A descendant that clears its environment
// and leaves the process group is not found.
package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// Defaults of Options.
const (
	// DefaultInputGrace is how long a child may run after its input was closed.
	DefaultInputGrace = 3 * time.Second
	// DefaultTermGrace is how long it may run after SIGTERM.
	DefaultTermGrace = 2 * time.Second
	// DefaultOrphanGrace is how long descendants may run after SIGTERM.
	DefaultOrphanGrace = 500 * time.Millisecond
)

// lingerGrace is how long the streams of an exited child stay readable if an unknown descendant keeps them open.
const lingerGrace = 2 * time.Second

// Options describe the child and how to end it.
type Options struct {
	// Path is the executable.
	Path string
	// Args are its arguments without the program's name.
	Args []string
	// Env is its complete environment; only the marker is added.
	Env []string
	// Dir is its working directory; empty means the caller's.
	Dir string
	// User is the user of the child; nil means the caller's. Only on Unix.
	User *User
	// Stderr, if set, is called for each line of stderr, without line end and truncated to a limit. It runs on the
	// goroutine that reads stderr: if it blocks, the child may block too.
	Stderr func(line string)
	// Cleanup, if set, runs after the child and its descendants have ended and before its pid can be reused.
	Cleanup func(pid int, exit Exit)

	// InputGrace, TermGrace and OrphanGrace replace the defaults if not zero.
	InputGrace  time.Duration
	TermGrace   time.Duration
	OrphanGrace time.Duration
}

// User is a user of the operating system.
type User struct{ UID, GID uint32 }

// Process is a started child. Read, Write, CloseWrite and Close use its standard output and input.
type Process struct {
	opts   Options
	marker string
	cmd    *exec.Cmd

	stdin  *os.File
	stdout *os.File
	stderr *os.File
	input  *atOnce // stdin
	tail   tail

	closeOnce sync.Once
	closed    chan struct{} // Close was called
	exited    chan struct{} // it has exited; maybe not yet reaped
	done      chan struct{} // the end is complete and exit is set

	mu     sync.Mutex
	reaped bool // the pid may be reused
	exit   Exit
}

// Start starts a child that is ended with ctx.
func Start(ctx context.Context, o Options) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	o.InputGrace = cmp.Or(o.InputGrace, DefaultInputGrace)
	o.TermGrace = cmp.Or(o.TermGrace, DefaultTermGrace)
	o.OrphanGrace = cmp.Or(o.OrphanGrace, DefaultOrphanGrace)
	p := &Process{
		opts:   o,
		marker: newMarker(),
		closed: make(chan struct{}),
		exited: make(chan struct{}),
		done:   make(chan struct{}),
	}
	children, err := p.prepare()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go p.own(started)
	err = <-started
	for _, f := range children {
		f.Close() // the child has its own copies now
	}
	if err != nil {
		p.closeStreams()
		return nil, err
	}
	go p.end(ctx)
	return p, nil
}

// prepare creates the command and its pipes, and returns the child's ends. The ends kept here are non-blocking: reads
// block a goroutine and no thread, and deadlines work.
func (p *Process) prepare() (children []*os.File, err error) {
	p.cmd = exec.Command(p.opts.Path, p.opts.Args...)
	p.cmd.Dir = p.opts.Dir
	p.cmd.Env = append(p.opts.Env[:len(p.opts.Env):len(p.opts.Env)], MarkerEnv+"="+p.marker)
	p.cmd.SysProcAttr = sysProcAttr(p.opts.User)

	var ends [3][2]*os.File
	for i := range ends {
		if ends[i][0], ends[i][1], err = os.Pipe(); err == nil && i == 0 {
			p.input, err = newAtOnce(ends[i][1])
		}
		if err != nil {
			for _, e := range ends[:i+1] {
				e[0].Close()
				e[1].Close()
			}
			return nil, fmt.Errorf("open pipe: %w", err)
		}
	}
	p.cmd.Stdin, p.stdin = ends[0][0], ends[0][1]
	p.stdout, p.cmd.Stdout = ends[1][0], ends[1][1]
	p.stderr, p.cmd.Stderr = ends[2][0], ends[2][1]
	return []*os.File{ends[0][0], ends[1][1], ends[2][1]}, nil
}

// own is the child's goroutine: it starts the child, is the only one to wait for it, and cleans up.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread() // see "Ownership" in the package comment
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.readStderr()
	}()

	awaitExit(p.cmd.Process.Pid)
	if keepsPid {
		p.afterExit()
	}
	_ = p.cmd.Wait() // ProcessState has the details
	if !keepsPid {
		p.afterExit()
	}
	p.mu.Lock()
	p.reaped = true
	p.exit.fill(p.cmd.ProcessState)
	exit := p.exit
	p.mu.Unlock()

	<-read
	_ = p.CloseWrite() // the process has ended
	exit.Stderr = p.tail.String()
	p.mu.Lock()
	p.exit = exit
	p.mu.Unlock()
	close(p.done)
}

// afterExit ends the descendants and calls Cleanup.
func (p *Process) afterExit() {
	close(p.exited)
	orphans := endMarked(p.marker, p.opts.OrphanGrace)
	p.signalGroup(kill)
	// No known process has the write ends open; do not wait for others.
	deadline := time.Now().Add(lingerGrace)
	_ = p.stdout.SetReadDeadline(deadline)
	_ = p.stderr.SetReadDeadline(deadline)
	p.mu.Lock()
	p.exit.Orphans = orphans
	exit := p.exit
	p.mu.Unlock()
	if p.opts.Cleanup != nil {
		p.opts.Cleanup(p.cmd.Process.Pid, exit)
	}
}

// PID returns the process id of the child.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child was reaped, its descendants have ended and Cleanup has returned.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit describes the child's end. It is complete after Done is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// StderrTail returns the end of the stderr output so far.
func (p *Process) StderrTail() string { return p.tail.String() }
