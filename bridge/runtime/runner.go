package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// Runner knows one way to get a stream to a CLI.
type Runner interface {
	// Start opens the stream. It lives no longer than ctx: when that ends, the
	// transport ends, by force if need be, with the cause of ctx as its reason.
	Start(ctx context.Context, spec Spec) (Transport, error)
	// Diagnose says in plain words what works, what is missing and how to mend
	// it. It starts no runtime and installs nothing.
	Diagnose(ctx context.Context) []Finding
}

// Spec is what a Runner has to know about the runtime to be.
type Spec struct {
	// Profile says what the runtime is to be.
	Profile Profile
	// Logger gets what the CLI writes to stderr, and oddities. Never nil.
	Logger *slog.Logger
}

// Transport is a stream to a CLI and what is known about its other end.
type Transport interface {
	// Close closes the stream. If the CLI is ours, that begins its end.
	io.ReadWriteCloser
	// Peer describes the other end.
	Peer() Peer
	// Done is closed when all is over: the process, if it is ours, has exited
	// and left nothing behind.
	Done() <-chan struct{}
	// Exit says how it ended. It is complete once Done is closed.
	Exit() process.Exit
	// StderrTail is the last that the CLI wrote to stderr, "" if not ours.
	StderrTail() string
}

// Peer describes the CLI at the other end of a Transport.
type Peer struct {
	// PID is the process id, 0 if it is not our child.
	PID int
	// Path is the executable, "" if not ours.
	Path string
	// Address is where it was dialled, "" if it was not.
	Address string
	// Token is what connect has to present, "" for none.
	Token string
	// Owned says that the CLI is ours alone: it may be told to shut down, and
	// nobody else is its client.
	Owned bool
}

// Level says how grave a Finding is.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Finding is one result of a diagnosis.
type Finding struct {
	// Level says how grave it is; only LevelError keeps runtimes from starting.
	Level Level
	// Subject is what was looked at, in two or three words.
	Subject string
	// Text says what was found.
	Text string
	// Remedy says what to do about it; "" when nothing needs doing.
	Remedy string
}

// stream is the Transport over something that is not a child of ours.
type stream struct {
	io.ReadWriteCloser
	peer Peer

	once sync.Once
	stop func() bool
	done chan struct{}
	exit process.Exit // set before done closes
}

// newStream ties rwc to the life of ctx.
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

// CloseWrite closes our half of the stream if it can be closed by halves.
func (s *stream) CloseWrite() error {
	if half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (s *stream) Peer() Peer            { return s.peer }
func (s *stream) Done() <-chan struct{} { return s.done }
func (s *stream) StderrTail() string    { return "" }

// Exit is meaningful once Done is closed, which orders the reads after the write.
func (s *stream) Exit() process.Exit {
	select {
	case <-s.done:
		return s.exit
	default:
		return process.Exit{}
	}
}

// InProcess is a Runner whose CLI is a function in this process, for tests and
// for programs that bring their own.
type InProcess func(ctx context.Context, spec Spec) (io.ReadWriteCloser, error)

// Start calls the function.
func (f InProcess) Start(ctx context.Context, spec Spec) (Transport, error) {
	rwc, err := f(ctx, spec)
	if err != nil {
		return nil, err
	}
	return newStream(ctx, rwc, Peer{Owned: true}), nil
}

// Diagnose has nothing to look at.
func (f InProcess) Diagnose(context.Context) []Finding {
	return []Finding{{Level: LevelOK, Subject: "copilot CLI", Text: "replaced by an implementation in this process"}}
}
