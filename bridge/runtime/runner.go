package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
)

// Runner opens a stream to a CLI.
type Runner interface {
	// Start opens the stream. When ctx ends, the transport ends, by force if necessary, with the cause of ctx as its
	// reason.
	Start(ctx context.Context, spec Spec) (Transport, error)
	// Diagnose reports what works, what is missing and how to fix it. It starts no runtime and installs nothing.
	Diagnose(ctx context.Context) []Finding
}

// Spec describes the runtime to start.
type Spec struct {
	Profile Profile
	// Logger receives the CLI's stderr and warnings. It is never nil.
	Logger *slog.Logger
}

// Transport is a stream to a CLI and its description.
type Transport interface {
	// Close closes the stream. It also ends the CLI if the bridge owns it.
	io.ReadWriteCloser
	// Peer describes the other end.
	Peer() Peer
	// Done is closed when everything has ended; an owned process has exited and has no descendants left.
	Done() <-chan struct{}
	// Exit describes the end. It is complete after Done is closed.
	Exit() process.Exit
	// StderrTail returns the end of the CLI's stderr; "" if the bridge does not own it.
	StderrTail() string
}

// Peer describes the CLI at the other end of a Transport.
type Peer struct {
	// PID is the process id; 0 if it is not a child.
	PID int
	// Path is the executable, Source where it was found, and Version what it says of itself; "" if unknown.
	Path    string
	Source  clibin.Source
	Version string
	// Warnings are what the operator should know of the executable. They do not contain its path.
	Warnings []Finding
	// Address is the dialled address; "" if there is none.
	Address string
	// Token is the token for connect; "" for none.
	Token string
	// Owned reports that the bridge is the CLI's only client and may shut it down.
	Owned bool
}

// Level is the severity of a Finding.
type Level string

const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Finding is one result of a diagnosis.
type Finding struct {
	// Level is the severity. Only LevelError prevents runtimes from starting.
	Level Level
	// Subject is the checked item, in two or three words.
	Subject string
	// Text is the result.
	Text string
	// Remedy is what to do; "" if nothing is necessary.
	Remedy string
}

// stream is the Transport over something other than a child.
type stream struct {
	io.ReadWriteCloser
	peer Peer

	once sync.Once
	stop func() bool
	done chan struct{}
	exit process.Exit // set before done closes
}

// newStream closes rwc when ctx ends.
func newStream(ctx context.Context, rwc io.ReadWriteCloser, peer Peer) *stream {
	s := &stream{ReadWriteCloser: rwc, peer: peer, done: make(chan struct{})}
	s.stop = context.AfterFunc(ctx, func() { _ = s.end(context.Cause(ctx)) })
	return s
}

// Close closes the stream.
func (s *stream) Close() error {
	s.stop()
	return s.end(process.ErrStreamClosed)
}

func (s *stream) end(cause error) (err error) {
	s.once.Do(func() {
		err = s.ReadWriteCloser.Close()
		s.exit.Cause = cause
		close(s.done)
	})
	return err
}

// CloseWrite closes the writing half of the stream, if possible.
func (s *stream) CloseWrite() error {
	if half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (s *stream) Peer() Peer            { return s.peer }
func (s *stream) Done() <-chan struct{} { return s.done }
func (s *stream) StderrTail() string    { return "" }

// Exit is valid after Done is closed, which orders the reads after the write.
func (s *stream) Exit() process.Exit {
	select {
	case <-s.done:
		return s.exit
	default:
		return process.Exit{}
	}
}

// InProcess is a Runner whose CLI is a function in this process, for tests and for programs with their own
// implementation.
type InProcess func(ctx context.Context, spec Spec) (io.ReadWriteCloser, error)

// Start calls the function.
func (f InProcess) Start(ctx context.Context, spec Spec) (Transport, error) {
	progress.Report(ctx, progress.Starting)
	rwc, err := f(ctx, spec)
	if err != nil {
		return nil, err
	}
	return newStream(ctx, rwc, Peer{Owned: true}), nil
}

// Diagnose reports that there is nothing to check.
func (f InProcess) Diagnose(context.Context) []Finding {
	return []Finding{{Level: LevelOK, Subject: "copilot CLI", Text: "replaced by an implementation in this process"}}
}
