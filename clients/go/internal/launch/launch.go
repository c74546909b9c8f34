// Package launch starts private servers: processes that end with this program.
package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Binary is the server's program, and BinaryEnv the variable that names another one.
	Binary    = "copilot-grpc"
	BinaryEnv = "COPILOT_GRPC_BINARY"

	// ready begins the line after which the server accepts calls on all of its listeners.
	ready        = "Try:"
	startTimeout = 2 * time.Minute // may install the CLI
	stopTimeout  = 20 * time.Second
	maxLines     = 1000
)

var (
	// ErrNotFound says that there is no binary of the server, or that it does not start.
	ErrNotFound = errors.New("no server")
	// ErrMissing says that there is no binary of the server.
	ErrMissing = fmt.Errorf("%w: no binary", ErrNotFound)
)

// Options describe a private server.
type Options struct {
	// Binary is the server's program, looked up on PATH; default: that of BinaryEnv, else Binary.
	Binary string
	// Args are further arguments of `copilot-grpc serve`.
	Args []string
	// Env are further environment variables, as NAME=VALUE.
	Env []string
	// Configure writes files into the server's directory and returns arguments that come before Args; may be nil.
	Configure func(dir string) ([]string, error)
}

// Server is a private server on a unix socket in a temporary directory. Its methods are safe for concurrent use,
// except that Restart and Stop must not run at the same time.
type Server struct {
	path string
	args []string
	env  []string
	dir  string

	mu      sync.Mutex
	output  []string
	process *process
}

// process is one process of the server. The goroutine that starts it waits for it on the same thread: on Linux the
// process receives SIGTERM when that thread ends, and so with this program.
type process struct {
	os    *os.Process
	ready chan struct{} // closed when it listens
	ended chan struct{} // closed when it has ended and its output is read
}

// Start starts a server and waits until it listens. ctx bounds the start only. Errors are ErrNotFound, with the
// server's output.
func Start(ctx context.Context, o Options) (*Server, error) {
	binary := o.Binary
	if binary == "" {
		binary = os.Getenv(BinaryEnv)
	}
	if binary == "" {
		binary = Binary
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("copilot: %w: %w: install copilot-grpc, or name its binary", ErrMissing, err)
	}
	dir, err := os.MkdirTemp("", "cgrpc-") // short, since a socket's path must be
	if err != nil {
		return nil, fmt.Errorf("copilot: %w: %w", ErrNotFound, err)
	}
	s := &Server{path: path, dir: dir, env: o.Env}
	s.args = []string{"serve", "--listen", s.Target(), "--data-dir", filepath.Join(dir, "data")}
	if o.Configure != nil {
		more, err := o.Configure(dir)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		s.args = append(s.args, more...)
	}
	s.args = append(s.args, o.Args...)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Target returns the server's address.
func (s *Server) Target() string { return "unix:" + filepath.Join(s.dir, "s.sock") }

// Output returns what the server has printed, up to the last 1000 lines.
func (s *Server) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.output, "")
}

// Restart ends the server and starts it again, with its sessions, on the same socket.
func (s *Server) Restart(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	s.output = nil
	s.mu.Unlock()
	return s.start(ctx)
}

// Stop ends the server and removes its directory.
func (s *Server) Stop() error {
	s.stop()
	return os.RemoveAll(s.dir)
}

func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p := &process{ready: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error, 1)
	go s.run(p, started)
	if err := <-started; err != nil {
		return fmt.Errorf("copilot: %w: %w", ErrNotFound, err)
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	var why string
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		why = "ended"
	case <-ctx.Done():
		s.stop()
		why = "did not listen in time"
	}
	return fmt.Errorf("copilot: %w: %s %s: %s", ErrNotFound, s.path, why, tail(s.Output()))
}

// run starts a process and waits for it, on one thread.
func (s *Server) run(p *process, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	cmd := exec.Command(s.path, s.args...) //nolint:gosec // the program chose the binary
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = sysProcAttr()
	reader, writer, err := os.Pipe()
	if err == nil {
		cmd.Stdout, cmd.Stderr = writer, writer
		err = cmd.Start()
		_ = writer.Close() // the process has its own
	}
	if err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		s.read(reader, p.ready)
	}()
	started <- nil
	_ = cmd.Wait() // the output has the reason
	// Children of the server could hold the pipe open.
	_ = reader.SetReadDeadline(time.Now().Add(time.Second))
	<-reading
	_ = reader.Close()
}

// read reads the output of a process to its end, and closes listens when the process does.
func (s *Server) read(output io.Reader, listens chan<- struct{}) {
	in, open := bufio.NewReader(output), true
	for {
		line, err := in.ReadString('\n')
		s.mu.Lock()
		s.output = append(s.output, line)
		s.output = s.output[max(0, len(s.output)-maxLines):]
		s.mu.Unlock()
		if open && strings.HasPrefix(line, ready) {
			close(listens)
			open = false
		}
		if err != nil {
			return
		}
	}
}

// stop ends the process, by force if it takes too long.
func (s *Server) stop() {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.os.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.os.Kill()
		<-p.ended
	}
}

// tail is the end of a text.
func tail(text string) string {
	const limit = 2000
	return text[max(0, len(text)-limit):]
}
