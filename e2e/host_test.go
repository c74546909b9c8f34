package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	cliruntime "github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/callback"
	"github.com/copilot-grpc/copilot-grpc/server/event"
	"github.com/copilot-grpc/copilot-grpc/server/raw"
	serverruntime "github.com/copilot-grpc/copilot-grpc/server/runtime"
	"github.com/copilot-grpc/copilot-grpc/server/session"
)

// hostConfig is what tests change about a host.
type hostConfig struct {
	// home is the CLI's state directory; default: one of the host's own, that ends
	// with it.
	home string
	// env is added to the CLI's environment.
	env map[string]string
	// raw switches RawService on.
	raw bool
	// callbackTimeout is how long callbacks wait for an answer; default: the bridge's.
	callbackTimeout time.Duration
	// maxPromptBytes bounds prompts; default: the bridge's.
	maxPromptBytes int
	// change changes anything else.
	change func(*bridge.Config)
}

// host is a server with its CLI and an offline model.
type host struct {
	// dir holds everything that the host writes, home is the CLI's COPILOT_HOME.
	dir, home string
	target    string
	cli       string // the CLI's version
	model     *offlinemodel.Server
	logs      *logBuffer

	stop    context.CancelFunc
	stopped chan struct{}
	runErr  error
	ended   sync.Once
	endErr  error
	closers []func() error
}

// startHost starts everything, the CLI included.
func startHost(ctx context.Context, config hostConfig) (_ *host, err error) {
	h := &host{stopped: make(chan struct{}), logs: new(logBuffer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.dir, err = os.MkdirTemp("", "e2e"); err != nil { // short: it is in a socket's path
		return nil, err
	}
	h.onClose(func() error { return os.RemoveAll(h.dir) })
	h.home = config.home
	if h.home == "" {
		h.home = filepath.Join(h.dir, "copilot")
	}
	for _, sub := range []string{"user", "work"} {
		if err := os.Mkdir(filepath.Join(h.dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if h.model, err = offlinemodel.Start(ctx, offlinemodel.Options{}); err != nil {
		return nil, err
	}
	h.onClose(func() error { return bounded(h.model.Close) })
	if err := h.serve(ctx, config); err != nil {
		return nil, err
	}
	return h, h.warm(ctx)
}

// serve starts the bridge and the server.
func (h *host) serve(ctx context.Context, config hostConfig) error {
	var supervisor *cliruntime.Supervisor
	profile := cliruntime.Profile{
		Home: h.home, UserHome: filepath.Join(h.dir, "user"), Dir: filepath.Join(h.dir, "work"), Env: config.env,
	}
	logger := slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	runner := &cliruntime.Spawner{Locator: clibin.Locator{Explicit: os.Getenv(cliEnv)}}
	settings := bridge.Config{
		Runtimes: func(start bridge.Start) bridge.Runtimes {
			supervisor = cliruntime.NewSupervisor(cliruntime.SupervisorConfig{
				Start: func(ctx context.Context, p cliruntime.Profile) (*cliruntime.Runtime, error) {
					return start(ctx, cliruntime.Config{Runner: runner, Profile: p, Logger: logger})
				},
				Logger: logger,
			})
			return &keeper{supervisor, profile}
		},
		Raw: config.raw, CallbackTimeout: config.callbackTimeout, MaxPromptBytes: config.maxPromptBytes,
		Version: "e2e", Logger: logger,
	}
	if config.change != nil {
		config.change(&settings)
	}
	b, err := bridge.New(settings)
	if err != nil {
		return err
	}
	h.onClose(func() error { b.Close(); return nil })
	h.onClose(func() error { return bounded(supervisor.Stop) })
	s, err := server.New(ctx, server.Config{
		Listen: []string{"unix:" + filepath.Join(h.dir, "s")}, Services: services(b), Drainer: drainer{b}, Logger: logger,
	})
	if err != nil {
		return err
	}
	h.target = "unix:" + filepath.Join(h.dir, "s")
	var running context.Context
	running, h.stop = context.WithCancel(context.Background())
	go func() {
		defer close(h.stopped)
		h.runErr = s.Run(running)
	}()
	h.onClose(func() error {
		h.stop()
		<-h.stopped
		return h.runErr
	})
	return nil
}

// warm starts the CLI, so that no test pays for it, and asks for its version.
func (h *host) warm(ctx context.Context) error {
	c, err := copilot.Dial(ctx, h.target)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it has done its work
	if _, err := c.Runtimes().Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		return fmt.Errorf("start of the CLI: %w", err)
	}
	info, err := c.ServerInfo(ctx)
	h.cli = info.GetCliVersion()
	return err
}

// close ends everything, in the reverse order of its making.
func (h *host) close() error {
	h.ended.Do(func() {
		for i := len(h.closers) - 1; i >= 0; i-- {
			h.endErr = errors.Join(h.endErr, h.closers[i]())
		}
	})
	return h.endErr
}

func (h *host) onClose(f func() error) { h.closers = append(h.closers, f) }

func bounded(f func(context.Context) error) error {
	ctx, cancel := background()
	defer cancel()
	return f(ctx)
}

// shared is the host of most tests, which the first of them starts.
var shared sharedHost

type sharedHost struct {
	once sync.Once
	host *host
	err  error
}

func (s *sharedHost) get() (*host, error) {
	s.once.Do(func() {
		ctx, cancel := background()
		defer cancel()
		s.host, s.err = startHost(ctx, hostConfig{})
	})
	return s.host, s.err
}

func (s *sharedHost) close() error {
	if s.host == nil {
		return nil
	}
	return s.host.close()
}

// keeper gives all sessions the one runtime.
type keeper struct {
	supervisor *cliruntime.Supervisor
	profile    cliruntime.Profile
}

func (k *keeper) Get(ctx context.Context) (*cliruntime.Runtime, error) {
	return k.supervisor.Get(ctx, k.profile)
}

func (k *keeper) Down() (retry time.Time, ok bool) {
	for _, status := range k.supervisor.List() {
		if status.Runtime == nil && status.LastError != nil {
			return status.RetryAt, true
		}
	}
	return time.Time{}, false
}

func services(b *bridge.Bridge) []server.Service {
	return []server.Service{
		session.New(session.Config{Backend: b}),
		event.New(event.Config{Backend: b}),
		callback.New(callback.Config{Backend: participants{b}}),
		serverruntime.New(serverruntime.Config{Backend: b}),
		raw.New(raw.Config{Backend: b}),
	}
}

type participants struct{ *bridge.Bridge }

func (p participants) Attach(ctx context.Context, start *bridgev1.AttachStart) (callback.Attachment, error) {
	a, err := p.Bridge.Attach(ctx, start)
	if err != nil {
		return nil, err
	}
	return a, nil
}

type drainer struct{ bridge *bridge.Bridge }

func (d drainer) Drain(context.Context) error {
	d.bridge.Drain(time.Second)
	return nil
}
