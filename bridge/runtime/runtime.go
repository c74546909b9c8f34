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
)

// Defaults of Config.
const (
	// DefaultStartTimeout bounds the time from spawn to handshake. A first start that unpacks takes 3 s on an idle
	// machine.
	DefaultStartTimeout = time.Minute
	// DefaultPingInterval is the interval of health checks.
	DefaultPingInterval = 15 * time.Second
	// DefaultPingTimeout is the longest permitted time without a reply to a ping. The longest observed on a working
	// CLI, with a 64 MiB prompt, was 8 s.
	DefaultPingTimeout = 30 * time.Second
	// DefaultShutdownTimeout bounds runtime.shutdown, which takes about 20 ms.
	DefaultShutdownTimeout = 5 * time.Second
)

// exitGrace is how long to wait for the exit status that explains a lost connection.
const exitGrace = time.Second

// Config describes the runtime to start.
type Config struct {
	// Runner opens the stream.
	Runner  Runner
	Profile Profile
	// RPC has the handlers of the connection.
	RPC rpcconn.Options
	// Prepare, if set, runs after the handshake and before other callers can use the runtime, for settings that must
	// precede the first session. Its error fails the start.
	Prepare func(ctx context.Context, r *Runtime) error
	// Logger receives messages for the operator. Nil discards them.
	Logger *slog.Logger

	// Replacements of the defaults if not zero.
	StartTimeout time.Duration
	// TestedOnly refuses a CLI that is newer than every tested version.
	TestedOnly      bool
	PingInterval    time.Duration
	PingTimeout     time.Duration
	ShutdownTimeout time.Duration

	// MaxRSS is the memory in bytes above which the process is ended; 0 sets no limit. It is checked with each ping.
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

// Info describes a runtime. It does not change.
type Info struct {
	// CLIVersion and Protocol are the CLI's reported versions.
	CLIVersion string
	Protocol   int
	// Warnings are what the operator should know of the CLI, such as that it is newer than every tested version. They
	// do not contain paths.
	Warnings []Finding
	// TaskKinds are the kinds of background tasks that the CLI reported, if any.
	TaskKinds []string
	// Greeting is the reply to connect, as JSON.
	Greeting json.RawMessage
	// Peer describes the CLI's process or address.
	Peer Peer
	// StartedAt is the time of the handshake, StartTook the duration of the start.
	StartedAt time.Time
	StartTook time.Duration
}

// Runtime is a CLI after a successful handshake. It is safe for concurrent use.
type Runtime struct {
	cfg       Config
	info      Info
	transport Transport
	conn      *rpcconn.Conn
	life      context.Context
	kill      context.CancelCauseFunc

	stopOnce sync.Once
	shut     chan struct{} // created by the first Stop, closed after the request to end was sent
	stopping atomic.Bool
	health   health
	extras   extras
	proven   atomic.Bool

	lostOnce sync.Once
	lost     chan struct{}
	done     chan struct{}
	err      *fault.Error // set before done closes
}

// Start starts a runtime and returns when it is ready. ctx bounds the start only.
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
		err = context.Cause(ctx) // the runtime ended, which cancelled its context
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

// ready performs the handshake and calls Prepare.
func (r *Runtime) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartTimeout)
	defer cancel()
	peer := r.transport.Peer()
	g, err := handshake(ctx, r.conn, connectParams{
		Token: peer.Token, Telemetry: r.cfg.Profile.Telemetry, TaskKinds: taskKinds,
	}, peer)
	if err != nil {
		return err
	}
	if refused := checkVersion(g.Version, r.cfg.TestedOnly, peer); refused != nil {
		return refused
	}
	peer.Token = "" // it has served; keep it out of what gets shown
	r.info = Info{
		CLIVersion: g.Version, Protocol: g.ProtocolVersion, TaskKinds: g.TaskKinds, Greeting: g.text,
		Peer: peer, StartedAt: time.Now(), Warnings: peer.Warnings,
	}
	if newer, ok := newerWarning(g.Version, peer); ok {
		r.info.Warnings = append([]Finding{newer}, peer.Warnings...)
	}
	for _, w := range r.info.Warnings {
		r.cfg.Logger.Warn("started a copilot CLI with a reservation", slog.String("warning", w.Text),
			slog.String("remedy", w.Remedy))
	}
	if r.cfg.Prepare != nil {
		return r.cfg.Prepare(ctx, r)
	}
	return nil
}

// abandon ends a runtime that failed to start, and returns an error with the process's explanation.
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
	if why := peer.untested(); why != "" && f.Reason == fault.CLIStartFailed {
		f.Message += "; " + why
		f = f.WithRemedy("%s", peer.useTested())
	}
	if tail := r.transport.StderrTail(); tail != "" {
		f = f.With("stderr", tail)
	}
	if peer.Address != "" && f.Reason == fault.CLIStartFailed {
		f = fault.Wrap(f, fault.RuntimeDialFailed, "%q does not behave like a copilot server", peer.Address)
	}
	return f
}

// awaitExit waits shortly for the exit of a process whose stream ended, so that the error can include the exit
// status.
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

// Conn returns the connection to the CLI.
func (r *Runtime) Conn() *rpcconn.Conn { return r.conn }

// Info describes the runtime.
func (r *Runtime) Info() Info { return r.info }

// Profile returns the profile it was started with.
func (r *Runtime) Profile() Profile { return r.cfg.Profile }

// Lost is closed when the runtime can no longer be used: it died or began to stop. The complete end may take longer;
// see Done.
func (r *Runtime) Lost() <-chan struct{} { return r.lost }

// Exited is closed when the process has exited. Its last output may not have been read yet.
func (r *Runtime) Exited() <-chan struct{} { return r.transport.Done() }

func (r *Runtime) setLost() { r.lostOnce.Do(func() { close(r.lost) }) }

// Done is closed when everything of the runtime has ended: process, descendants, lock files, goroutines.
func (r *Runtime) Done() <-chan struct{} { return r.done }

// Err returns nil until Done is closed, and then a *fault.Error with the reason: CLIExited, CLIHung,
// CLIProtocolError, or RuntimeStopping after Stop.
func (r *Runtime) Err() error {
	if isDone(r.done) {
		return r.err
	}
	return nil
}

// Stop ends the runtime in order: it asks an owned CLI to shut down, and disconnects from others. When ctx ends
// first, the end is forced. Stop returns when the runtime has ended; further calls wait too.
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

// errStopped is the cause of an end by Stop.
var errStopped = fault.New(fault.RuntimeStopping, "the runtime was stopped")

// shutdown asks the CLI to end, and then closes its input, which starts the grace time.
func (r *Runtime) shutdown(ctx context.Context) {
	if r.info.Peer.Owned {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.ShutdownTimeout)
		defer cancel()
		// The CLI may exit before it replies, so an error means little.
		if _, err := r.conn.Call(ctx, "runtime.shutdown", []byte("{}"), rpcconn.Priority()); err != nil {
			r.cfg.Logger.Debug("runtime.shutdown failed", slog.Any("error", err))
		}
	}
	r.kill(errStopped)
}

// Kill ends the runtime without asking the CLI. The process still has its grace times after its input was closed.
func (r *Runtime) Kill(cause error) { r.kill(cause) }

// lastWords bounds the reading of the remaining output of an exited process.
const lastWords = 3 * time.Second

// supervise is the goroutine that owns the runtime from its start to its end.
func (r *Runtime) supervise() {
	cause := r.watch()
	r.setLost()
	if errors.Is(cause, rpcconn.ErrClosed) {
		r.awaitExit() // the exit status explains more than the end of the stream
	}
	r.kill(cause)
	if r.transport.Peer().PID != 0 {
		// The output is read to its end, so that the last messages are delivered. The process ends on its own.
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

// watch returns the cause of the runtime's end. A requested end is the cause of everything that follows it.
func (r *Runtime) watch() error {
	err := r.first()
	if cause := context.Cause(r.life); cause != nil {
		return cause
	}
	return err
}

// first waits for the first failure.
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

// verdict converts the first cause into the reason of the end.
func (r *Runtime) verdict(cause error) *fault.Error {
	exit := r.transport.Exit()
	var f *fault.Error
	switch {
	case errors.As(cause, &f):
	case r.stopping.Load():
		f = errStopped
	case errors.Is(cause, rpcconn.ErrBadFrame), errors.Is(cause, rpcconn.ErrFrameTooLarge), errors.Is(cause,
		rpcconn.ErrPeerStalled):
		f = fault.Wrap(cause, fault.CLIProtocolError, "the copilot CLI broke the protocol")
	case r.info.Peer.PID == 0:
		f = fault.Wrap(cause, fault.CLIExited, "the connection to the copilot CLI was lost")
	case errors.Is(cause, rpcconn.ErrClosed) || exit.Cause == nil:
		f = fault.Wrap(exit, fault.CLIExited, "the copilot CLI ended unexpectedly")
	default:
		f = fault.Wrap(cause, fault.CLIExited, "the bridge ended the copilot CLI")
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

// asFault returns err if it has a reason, and wraps it otherwise.
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

// TurnCompleted notes that the runtime has completed a turn of a session. Its end then counts as that of a stable
// runtime, however early it comes; see [Breaker].
func (r *Runtime) TurnCompleted() { r.proven.Store(true) }
