package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// Defaults of Config.
const (
	// DefaultStartTimeout bounds the time from spawn to handshake; a first start
	// that has to unpack takes 3 s on an idle machine.
	DefaultStartTimeout = time.Minute
	// DefaultPingInterval is how often the CLI is asked whether it is there.
	DefaultPingInterval = 15 * time.Second
	// DefaultPingTimeout is how long it may be silent then. The worst seen on
	// a working CLI, with a 64 MiB prompt in it, was 8 s.
	DefaultPingTimeout = 30 * time.Second
	// DefaultShutdownTimeout bounds runtime.shutdown, which takes some 20 ms.
	DefaultShutdownTimeout = 5 * time.Second
)

// exitGrace is how long a lost connection may be without an exit status to
// explain it.
const exitGrace = time.Second

// Config says what to start.
type Config struct {
	// Runner gets the stream.
	Runner Runner
	// Profile is what the runtime is to be.
	Profile Profile
	// RPC has the handlers of the connection.
	RPC rpcconn.Options
	// Prepare, if set, runs after the handshake, before anybody else can use
	// the runtime: for what must be set before the first session. Its error
	// fails the start.
	Prepare func(ctx context.Context, r *Runtime) error
	// Logger gets what the operator should know. Nil discards it.
	Logger *slog.Logger

	// Replacements of the defaults when not zero.
	StartTimeout time.Duration
	// AnyVersion allows a CLI outside the range of versions that were tested.
	AnyVersion      bool
	PingInterval    time.Duration
	PingTimeout     time.Duration
	ShutdownTimeout time.Duration

	// MaxRSS is how much memory the process may have before it is ended, in bytes; 0
	// sets no limit. It is looked at with each ping.
	MaxRSS int64
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	c.PingInterval = cmp.Or(c.PingInterval, DefaultPingInterval)
	c.PingTimeout = cmp.Or(c.PingTimeout, DefaultPingTimeout)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	return c
}

// Info is what is known of a runtime from its start on.
type Info struct {
	// CLIVersion and Protocol are what the CLI said of itself.
	CLIVersion string
	Protocol   int
	// Newer says that the CLI is newer than any that was tested.
	Newer bool
	// TaskKinds are the kinds of background task the CLI has, if it said.
	TaskKinds []string
	// Greeting is what it answered to connect, as JSON.
	Greeting json.RawMessage
	// Peer is where it runs.
	Peer Peer
	// StartedAt is when it answered the handshake, StartTook how long that took.
	StartedAt time.Time
	StartTook time.Duration
}

// Runtime is a CLI that answered the handshake. All methods may be used from
// any goroutine.
type Runtime struct {
	cfg       Config
	info      Info
	transport Transport
	conn      *rpcconn.Conn
	life      context.Context
	kill      context.CancelCauseFunc

	stopOnce sync.Once
	shut     chan struct{} // made by the first Stop, closed when it has asked the CLI to end
	stopping atomic.Bool
	health   health
	extras   extras

	lostOnce sync.Once
	lost     chan struct{}
	done     chan struct{}
	err      *fault.Error // set before done closes
}

// Start starts a runtime and returns when it is ready. ctx bounds the start
// only; afterwards the runtime lives until it ends or is stopped.
func Start(ctx context.Context, cfg Config) (*Runtime, error) {
	cfg = cfg.withDefaults()
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() { kill(context.Cause(ctx)) })
	defer release()
	begin := time.Now()
	transport, err := cfg.Runner.Start(life, Spec{Profile: cfg.Profile, Logger: cfg.Logger})
	if err != nil {
		kill(err)
		return nil, asFault(err, fault.CLIStartFailed, "start the copilot CLI")
	}
	r := &Runtime{
		cfg: cfg, transport: transport, conn: rpcconn.New(transport, cfg.RPC),
		life: life, kill: kill, lost: make(chan struct{}), done: make(chan struct{}),
	}
	err = r.ready(ctx)
	if err == nil && !release() {
		err = context.Cause(ctx) // it ended just now, and took the life with it
	}
	if err != nil {
		return nil, r.abandon(err)
	}
	r.info.StartTook = r.info.StartedAt.Sub(begin)
	cfg.Logger.Info("runtime ready", slog.String("profile", cfg.Profile.Hash()), slog.Int("pid", r.info.Peer.PID),
		slog.String("cli_version", r.info.CLIVersion), slog.Duration("took", r.info.StartTook))
	go r.supervise()
	return r, nil
}

// ready shakes hands and lets the caller prepare.
func (r *Runtime) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartTimeout)
	defer cancel()
	peer := r.transport.Peer()
	g, err := handshake(ctx, r.conn, connectParams{
		Token: peer.Token, Telemetry: r.cfg.Profile.Telemetry, TaskKinds: taskKinds,
	})
	if err != nil {
		return err
	}
	if refused := checkVersion(g.Version, r.cfg.AnyVersion); refused != nil {
		return refused
	}
	peer.Token = "" // it has served; keep it out of what gets shown
	r.info = Info{
		CLIVersion: g.Version, Protocol: g.ProtocolVersion, TaskKinds: g.TaskKinds, Greeting: g.text,
		Newer: clibin.SupportOf(g.Version) == clibin.Newer,
		Peer:  peer, StartedAt: time.Now(),
	}
	if r.info.Newer {
		r.cfg.Logger.Warn("the copilot CLI is newer than any that was tested",
			slog.String("cli_version", g.Version), slog.String("tested", clibin.PinnedVersion))
	}
	if r.cfg.Prepare != nil {
		return r.cfg.Prepare(ctx, r)
	}
	return nil
}

// abandon ends what did not become a runtime and says why, with what the
// process had to say about it.
func (r *Runtime) abandon(err error) error {
	lost := errors.Is(err, rpcconn.ErrClosed)
	if lost {
		r.awaitExit()
	}
	peer, exited := r.transport.Peer(), isDone(r.transport.Done())
	r.kill(err)
	_ = r.conn.Close()
	<-r.transport.Done()
	r.conn.Wait()

	f := asFault(err, fault.CLIStartFailed, "the copilot CLI did not answer the handshake")
	if lost && exited && peer.PID != 0 {
		f = fault.Wrap(r.transport.Exit(), fault.CLIStartFailed, "the copilot CLI %q ended while starting", peer.Path)
	}
	if tail := r.transport.StderrTail(); tail != "" {
		f = f.With("stderr", tail)
	}
	if peer.Address != "" && f.Reason == fault.CLIStartFailed {
		f = fault.Wrap(f, fault.RuntimeDialFailed, "%q does not behave like a copilot server", peer.Address)
	}
	return f
}

// awaitExit gives a process whose stream ended a moment to be seen exiting, so
// that the error can say how.
func (r *Runtime) awaitExit() {
	if r.transport.Peer().PID == 0 {
		return
	}
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-r.transport.Done():
	case <-timer.C:
	}
}

// Conn is the connection to the CLI.
func (r *Runtime) Conn() *rpcconn.Conn { return r.conn }

// Info describes the runtime.
func (r *Runtime) Info() Info { return r.info }

// Profile is what it was started with.
func (r *Runtime) Profile() Profile { return r.cfg.Profile }

// Lost is closed when the runtime is of no more use: it died, or began to stop.
// What remains of it may take some time to end; Done tells when that is over.
func (r *Runtime) Lost() <-chan struct{} { return r.lost }

// Exited is closed when the process has ended; what it wrote last may not have been read yet.
func (r *Runtime) Exited() <-chan struct{} { return r.transport.Done() }

func (r *Runtime) setLost() { r.lostOnce.Do(func() { close(r.lost) }) }

// Done is closed when the runtime is over and everything of it is gone: process,
// descendants, lock files, goroutines.
func (r *Runtime) Done() <-chan struct{} { return r.done }

// Err is nil until Done is closed. After that it is a *fault.Error that says
// what ended the runtime: CLIExited, CLIHung, CLIProtocolError, or
// RuntimeStopping when it was asked to end.
func (r *Runtime) Err() error {
	if isDone(r.done) {
		return r.err
	}
	return nil
}

// Stop ends the runtime in order: it is told to shut down, or merely left if
// it is not ours. When ctx ends first, the end is forced. Stop returns when the
// runtime is over; further calls wait for the same.
func (r *Runtime) Stop(ctx context.Context) error {
	r.stopOnce.Do(func() {
		r.stopping.Store(true)
		r.setLost()
		r.cfg.Logger.Debug("runtime stopping", slog.Int("pid", r.info.Peer.PID))
		r.shut = make(chan struct{})
		go func() {
			defer close(r.shut)
			r.shutdown(ctx)
		}()
	})
	select {
	case <-r.done:
	case <-ctx.Done():
		r.kill(errStopped)
		<-r.done
	}
	<-r.shut
	return nil
}

// errStopped is the cause of an end that Stop asked for.
var errStopped = fault.New(fault.RuntimeStopping, "the runtime was stopped")

// shutdown asks the CLI to end, and then ends its input. The process has its
// grace from there on.
func (r *Runtime) shutdown(ctx context.Context) {
	if r.info.Peer.Owned {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.ShutdownTimeout)
		defer cancel()
		// The CLI may well be gone before its answer is: an error says little.
		if _, err := r.conn.Call(ctx, "runtime.shutdown", []byte("{}"), rpcconn.Priority()); err != nil {
			r.cfg.Logger.Debug("runtime.shutdown failed", slog.Any("error", err))
		}
	}
	r.kill(errStopped)
}

// Kill ends the runtime without asking the CLI. Its process still has its grace
// times after the end of its input.
func (r *Runtime) Kill(cause error) { r.kill(cause) }

// lastWords bounds the reading of what a process that has exited wrote before.
const lastWords = 3 * time.Second

// supervise is the goroutine that owns the runtime from ready to over.
func (r *Runtime) supervise() {
	cause := r.watch()
	r.setLost()
	if errors.Is(cause, rpcconn.ErrClosed) {
		r.awaitExit() // that the process exited says more than that its stream ended
	}
	r.kill(cause)
	if r.transport.Peer().PID != 0 {
		// Its output is read to the end: last words are still delivered. The
		// process sees to its own end.
		<-r.transport.Done()
		select {
		case <-r.conn.Done():
		case <-time.After(lastWords): // its stream should have ended by then
		}
	}
	r.extras.end()
	_ = r.conn.Close()
	<-r.transport.Done()
	r.conn.Wait()
	r.err = r.verdict(cause)
	level := slog.LevelWarn
	if r.err.Reason == fault.RuntimeStopping {
		level = slog.LevelInfo
	}
	r.cfg.Logger.Log(context.Background(), level, "runtime ended", slog.String("profile", r.cfg.Profile.Hash()),
		slog.Int("pid", r.info.Peer.PID), slog.String("reason", fault.Name(r.err.Reason)), slog.Any("error", r.err))
	close(r.done)
}

// watch returns what ends the runtime. When we end it ourselves, everything
// else that happens follows from that.
func (r *Runtime) watch() error {
	err := r.first()
	if cause := context.Cause(r.life); cause != nil {
		return cause
	}
	return err
}

// first waits for the first thing to go.
func (r *Runtime) first() error {
	ticker := time.NewTicker(r.cfg.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-r.life.Done():
			return context.Cause(r.life)
		case <-r.transport.Done():
			return r.transport.Exit()
		case <-r.conn.Done():
			return r.conn.Err()
		case <-ticker.C:
			if err := r.check(); err != nil {
				return err
			}
		}
	}
}

// verdict turns the first cause into the reason of the end.
func (r *Runtime) verdict(cause error) *fault.Error {
	exit := r.transport.Exit()
	var f *fault.Error
	switch {
	case errors.As(cause, &f):
	case r.stopping.Load():
		f = errStopped
	case errors.Is(cause, rpcconn.ErrBadFrame), errors.Is(cause, rpcconn.ErrFrameTooLarge), errors.Is(cause, rpcconn.ErrPeerStalled):
		f = fault.Wrap(cause, fault.CLIProtocolError, "the copilot CLI broke the protocol")
	case r.info.Peer.PID == 0:
		f = fault.Wrap(cause, fault.CLIExited, "the connection to the copilot CLI was lost")
	case errors.Is(cause, rpcconn.ErrClosed) || exit.Cause == nil:
		f = fault.Wrap(exit, fault.CLIExited, "the copilot CLI ended by itself")
	default:
		f = fault.Wrap(cause, fault.CLIExited, "the copilot CLI was ended")
	}
	if r.info.Peer.PID == 0 {
		return f
	}
	f = f.With("pid", strconv.Itoa(r.info.Peer.PID)).With("exit_code", strconv.Itoa(exit.Code))
	if exit.Signal != "" {
		f = f.With("signal", exit.Signal)
	}
	if exit.Stderr != "" {
		f = f.With("stderr", exit.Stderr)
	}
	return f
}

// asFault keeps an error that has a reason and gives one to any other.
func asFault(err error, reason fault.Reason, format string, args ...any) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(err, reason, "%s", fmt.Sprintf(format, args...))
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
