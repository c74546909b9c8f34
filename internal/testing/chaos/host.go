package chaos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// host is a server and its CLIs, life after life.
type host interface {
	// start begins a life of the server.
	start() error
	// stop drains the server and ends it.
	stop() error
	// crash ends the server without its having a say. With power, what was not synced is
	// gone from its disk.
	crash(power bool) error
	// kill ends the CLI without its having a say, deafen makes it stop reading, and
	// nonsense has it do a fault of package fakecli.
	kill()
	deafen()
	nonsense(fakecli.Fault)
	// entries is the log of all fake CLIs so far, nil of real ones.
	entries() ([]fakecli.Entry, error)
	// said is what the server's log says so far, line by line.
	said() []string
	// home is where the CLI keeps its histories.
	home() string
	// lives is how many CLIs there have been.
	lives() int
	// close ends everything and tells what was left behind.
	close() error
}

// Everything that waits in the server does so for so long.
const (
	callbackTimeout = 2 * time.Second
	stallTimeout    = 1500 * time.Millisecond
	idleUnload      = 250 * time.Millisecond
	drainGrace      = 300 * time.Millisecond
	pingInterval    = 400 * time.Millisecond
	pingTimeout     = 1500 * time.Millisecond
	// heartbeat is how often a silent stream says how far it has come.
	heartbeat = time.Second
)

// The real CLI is slower, and shares two cores with others.
const (
	realCallbackTimeout = 5 * time.Second
	realStallTimeout    = 6 * time.Second
	realIdleUnload      = 1500 * time.Millisecond
	realPingTimeout     = 5 * time.Second
)

// restarts have no breaker to speak of: a schedule kills more often than any crash loop.
func restarts() app.Option {
	return app.WithRestarts(runtime.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond},
		runtime.Breaker{Limit: 1 << 20})
}

// configure is what all servers have.
func configure(p Plan, dir string) app.Config {
	c := app.Config{
		Version: "chaos", Listen: []string{"unix:" + filepath.Join(dir, "s")},
		Home: filepath.Join(dir, "home"), UserHome: dir, WorkDir: dir, DataDir: filepath.Join(dir, "data"),
		NoLogin:         true,
		CallbackTimeout: callbackTimeout, StallTimeout: stallTimeout, ModelCallTimeout: stallTimeout,
		IdleUnload: idleUnload,
		DrainGrace: drainGrace, PingInterval: pingInterval, PingTimeout: pingTimeout,
		FsyncInterval: 20 * time.Millisecond,
		// Small, so that readers that are slow do lose ephemeral events, and get a Gap.
		MaxEphemeralBytes: 256 << 10,
	}
	if p.Mode == Real {
		c.CallbackTimeout, c.StallTimeout, c.ModelCallTimeout = realCallbackTimeout, realStallTimeout, realStallTimeout
		c.IdleUnload, c.PingTimeout = realIdleUnload, realPingTimeout
	}
	if p.Soak {
		c.CallbackTimeout, c.StallTimeout, c.ModelCallTimeout, c.IdleUnload = 0, 0, 0, 0 // as a server has them
		c.PingInterval, c.PingTimeout = 0, 0
		return c
	}
	policies := []journal.Fsync{journal.FsyncAlways, journal.FsyncInterval, journal.FsyncNever}
	c.Fsync = string(policies[p.Seed%uint64(len(policies))])
	for _, s := range draw(p) {
		if s.op == "power_loss" { // the other policies may lose what was shown then
			c.Fsync = string(journal.FsyncAlways)
		}
	}
	return c
}

func newHost(w *world) (host, error) {
	if w.plan.Mode == Memory {
		return newMemory(w)
	}
	return newProcess(w)
}

// memory is a server in this process, on a disk in memory.
type memory struct {
	w       *world
	config  app.Config
	disk    *faultfs.FS
	app     *app.App
	end     context.CancelFunc
	stopped chan error

	// crashed says that the server has crashed: it starts no more CLIs, and nothing that it writes reaches one.
	crashed atomic.Bool

	mu   sync.Mutex
	rng  *rand.Rand
	clis []*fakecli.CLI
}

func newMemory(w *world) (*memory, error) {
	m := &memory{w: w, config: configure(w.plan, w.dir), disk: &faultfs.FS{},
		rng: rand.New(rand.NewPCG(w.plan.Seed, 1))}
	return m, m.disk.MkdirAll(filepath.Join(m.config.DataDir, "sessions"))
}

func (m *memory) start() (err error) {
	log := slog.New(slog.NewTextHandler(logWriter{m.w},
		&slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutTime}))
	m.app, err = app.New(context.Background(), m.config, app.WithLogger(log), app.WithDisk(m.disk), restarts(),
		app.WithRunner(runtime.InProcess(m.run)))
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, m.end = context.WithCancel(context.Background())
	m.stopped = make(chan error, 1)
	go func(a *app.App, stopped chan error) { stopped <- a.Run(ctx) }(m.app, m.stopped)
	return nil
}

func (m *memory) stop() error {
	if m.app == nil {
		return nil
	}
	m.end()
	m.app = nil
	return <-m.stopped
}

func (m *memory) crash(power bool) error {
	m.crashed.Store(true)
	m.disk.CrashAfter(0)
	m.app.Abort()
	m.end()
	m.app = nil
	<-m.stopped // it has much to complain of
	m.disk = m.disk.Restart(power)
	m.crashed.Store(false)
	return nil
}

func (m *memory) close() error {
	err := m.stop()
	for _, cli := range m.all() {
		cli.Close()
	}
	return err
}

// run is a CLI's life.
func (m *memory) run(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed.Load() {
		return nil, errors.New("the server has crashed")
	}
	life := len(m.clis)
	cli := fakecli.New(fakecli.Options{Script: script(rand.New(rand.NewPCG(m.w.plan.Seed, 100+uint64(life))), life),
		Home: m.home()})
	m.clis = append(m.clis, cli)
	m.w.rec.logf("cli %d begins", life)
	return &lifeline{duplex: cli.Connect().(duplex), cli: cli, orderly: m.rng.IntN(2) == 0, cut: &m.crashed}, nil
}

func (m *memory) all() []*fakecli.CLI {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*fakecli.CLI(nil), m.clis...)
}

func (m *memory) newest() *fakecli.CLI {
	if all := m.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (m *memory) kill() {
	if cli := m.newest(); cli != nil {
		cli.Kill()
	}
}

func (m *memory) deafen() { m.nonsense(fakecli.Fault{Kind: fakecli.FaultStopReading}) }

func (m *memory) nonsense(f fakecli.Fault) {
	if cli := m.newest(); cli != nil {
		cli.Strike(f)
	}
}

func (m *memory) entries() (all []fakecli.Entry, err error) {
	for _, cli := range m.all() {
		all = append(all, cli.Log()...)
	}
	return all, nil
}

func (m *memory) home() string { return m.config.Home }

func (m *memory) lives() int { return len(m.all()) }

// duplex is the client's end of a connection to a fake CLI.
type duplex interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
	CloseWrite() error
}

// lifeline is the connection of a CLI that ends with it, as a child ends with its input: of its own accord, or by
// force. Its end is over before Close returns.
type lifeline struct {
	duplex
	cli     *fakecli.CLI
	orderly bool
	// cut says that the client has crashed; what it writes afterwards is lost.
	cut  *atomic.Bool
	once sync.Once
}

// Write implements io.Writer.
func (l *lifeline) Write(b []byte) (int, error) {
	if l.cut.Load() {
		return 0, io.ErrClosedPipe
	}
	return l.duplex.Write(b)
}

// Close implements io.Closer.
func (l *lifeline) Close() (err error) {
	l.once.Do(func() {
		if l.orderly {
			l.cli.Shutdown()
		}
		err = l.duplex.Close()
		l.cli.Close()
	})
	return err
}

// logWriter puts the server's log into the schedule's.
type logWriter struct{ w *world }

// Write implements io.Writer.
func (l logWriter) Write(b []byte) (int, error) {
	l.w.rec.logf("server: %s", bytes.TrimSpace(b))
	return len(b), nil
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func joinErrors(errs ...error) error { return errors.Join(errs...) }
