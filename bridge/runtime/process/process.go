// Package process owns one child process: its birth, its three standard
// streams, its end and what it leaves behind.
//
// # Ownership
//
// Each child has one goroutine, locked to its OS thread, that forks it and
// waits for it. Both on the same thread matters on Linux: the signal a child
// gets when its parent dies is tied to the thread that forked it, so that
// thread has to live as long as the child.
//
// # The end
//
// A child ends by itself, when the context it was started with ends, or when
// its stream is closed. In the last two cases its input is closed, then its
// process group gets SIGTERM, then SIGKILL, each after a grace time.
//
// # What it leaves behind
//
// Descendants that changed session or lost their parent are found by a marker
// in their environment, not by ancestry. The alternative, PR_SET_CHILD_SUBREAPER,
// would hand every stray of the host program to this package, and reaping
// those takes wait4(-1), which steals the exit status of children that os/exec
// waits for. Markers also outlive this process: SweepAbandoned finds
// what a killed predecessor left. A descendant that wipes its environment and
// leaves the process group escapes both.
package process

import (
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
	// DefaultInputGrace is how long a child may take to end after its input closed.
	DefaultInputGrace = 3 * time.Second
	// DefaultTermGrace is how long it may take to end after SIGTERM.
	DefaultTermGrace = 2 * time.Second
	// DefaultOrphanGrace is how long descendants may take after SIGTERM.
	DefaultOrphanGrace = 500 * time.Millisecond
)

// lingerGrace is how long the streams of an exited child stay readable when a
// descendant that could not be found keeps them open.
const lingerGrace = 2 * time.Second

// Options says what to start and how to end it.
type Options struct {
	// Path is the executable.
	Path string
	// Args are its arguments, without the name of the program.
	Args []string
	// Env is its whole environment, to which only the marker is added.
	Env []string
	// Dir is its working directory; empty is the caller's.
	Dir string
	// User is the user it runs as; nil is the caller's own. Only on Unix.
	User *User
	// Stderr, if set, takes each line written to stderr, without its end and
	// cut to a bound. It runs on the goroutine that reads stderr: while it
	// blocks, so may the child.
	Stderr func(line string)
	// Cleanup, if set, runs after the child has exited and its descendants
	// have been ended, while its pid cannot have been given to another process.
	Cleanup func(pid int, exit Exit)

	// InputGrace, TermGrace and OrphanGrace replace the defaults when not zero.
	InputGrace  time.Duration
	TermGrace   time.Duration
	OrphanGrace time.Duration
}

// User is a user of the operating system.
type User struct{ UID, GID uint32 }

// Process is a started child. Read, Write, CloseWrite and Close are its
// standard output and input.
type Process struct {
	opts   Options
	marker string
	cmd    *exec.Cmd

	stdin  *os.File
	stdout *os.File
	stderr *os.File
	tail   tail

	closeOnce sync.Once
	closed    chan struct{} // Close was called
	exited    chan struct{} // it has exited; maybe not yet reaped
	done      chan struct{} // everything is over, exit is set

	mu     sync.Mutex
	reaped bool // the pid means nothing any more
	exit   Exit
}

// Start starts a child that lives no longer than ctx.
func Start(ctx context.Context, o Options) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	setDefault(&o.InputGrace, DefaultInputGrace)
	setDefault(&o.TermGrace, DefaultTermGrace)
	setDefault(&o.OrphanGrace, DefaultOrphanGrace)
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

func setDefault(field *time.Duration, value time.Duration) {
	if *field == 0 {
		*field = value
	}
}

// prepare makes the command and its pipes and returns the child's ends. The
// ends kept here are non-blocking: reads park a goroutine, not a thread, and
// deadlines work.
func (p *Process) prepare() (children []*os.File, err error) {
	p.cmd = exec.Command(p.opts.Path, p.opts.Args...)
	p.cmd.Dir = p.opts.Dir
	p.cmd.Env = append(p.opts.Env[:len(p.opts.Env):len(p.opts.Env)], MarkerEnv+"="+p.marker)
	p.cmd.SysProcAttr = sysProcAttr(p.opts.User)

	var ends [3][2]*os.File
	for i := range ends {
		if ends[i][0], ends[i][1], err = os.Pipe(); err != nil {
			for _, e := range ends[:i] {
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

// own is the goroutine to which the child belongs: it starts it, is the only
// one to wait for it, and clears up after it.
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
	_ = p.cmd.Wait() // ProcessState says the same and more
	if !keepsPid {
		p.afterExit()
	}
	p.mu.Lock()
	p.reaped = true
	p.exit.fill(p.cmd.ProcessState)
	exit := p.exit
	p.mu.Unlock()

	<-read
	p.closeStdin()
	exit.Stderr = p.tail.String()
	p.mu.Lock()
	p.exit = exit
	p.mu.Unlock()
	close(p.done)
}

// afterExit ends the descendants and runs the caller's clean-up.
func (p *Process) afterExit() {
	close(p.exited)
	orphans := endMarked(p.marker, p.opts.OrphanGrace)
	p.signalGroup(kill)
	// Nobody we know of holds the write ends now; do not wait for others.
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

// Done is closed when the child has exited, has been waited for, its
// descendants are gone and its clean-up is over.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the child ended. It is complete once Done is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// StderrTail returns the last that the child wrote to stderr, so far.
func (p *Process) StderrTail() string { return p.tail.String() }
