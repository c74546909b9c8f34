package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/corpus"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// HostConfig is what tests change about a host.
type HostConfig struct {
	// home is the CLI's state directory; default: one of the host's own, that ends
	// with it.
	home string
	// env is added to the CLI's environment.
	Env map[string]string
	// raw switches RawService on.
	Raw bool
	// callbackTimeout is how long callbacks wait for an answer; default: the bridge's.
	callbackTimeout time.Duration
	// maxPromptBytes bounds prompts; default: the bridge's.
	maxPromptBytes int
	// fake, if set, is what a fake CLI in this process plays, in place of the real one.
	Fake *fakecli.Script
	// record, if set, is a folder in which what goes to and from the CLI is recorded, and not
	// among what all tests record.
	Record string
	// change changes anything else.
	Change func(*app.Config)
}

// Host is a server with its CLI and an offline model.
type Host struct {
	// Dir holds everything that the host writes. Home is the COPILOT_HOME of the CLI that has the sessions, FrontHome
	// that of the CLI that answers calls about no session: the same, except with EntryEnv.
	Dir, Home, FrontHome string
	// Target is the server's socket, owner that of the one with the sessions, if it is another.
	Target, owner string
	Tcp           string // the last address
	token         string // what callers over TCP have to show
	Admin         string // the address of the admin listener, if there is one
	Web           string // the URL of the listener for browsers, if there is one
	CLI           string // the CLI's version
	Model         *offlinemodel.Server
	Logs          *LogBuffer

	ended   sync.Once
	endErr  error
	closers []func() error
}

// startHost starts everything, the CLI included.
func startHost(ctx context.Context, config HostConfig) (_ *Host, err error) {
	h := &Host{Logs: new(LogBuffer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.Dir, err = os.MkdirTemp("", "e2e"); err != nil { // short: it is in a socket's path
		return nil, err
	}
	h.onClose(func() error { return os.RemoveAll(h.Dir) })
	h.Home = config.home
	if h.Home == "" {
		h.Home = filepath.Join(h.Dir, "copilot")
	}
	for _, sub := range []string{"user", "work"} {
		if err := os.Mkdir(filepath.Join(h.Dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if h.Model, err = offlinemodel.Start(ctx, offlinemodel.Options{}); err != nil {
		return nil, err
	}
	h.onClose(func() error { return Bounded(h.Model.Close) })
	if err := h.serve(ctx, config); err != nil {
		return nil, err
	}
	return h, h.Warm(ctx)
}

// serve starts the bridge and the server, as the program does.
func (h *Host) serve(ctx context.Context, config HostConfig) error {
	settings := app.Config{
		Version: "e2e", Listen: []string{"unix:" + filepath.Join(h.Dir, "s")},
		CLIPath: os.Getenv(CLIEnv), Home: h.Home, UserHome: filepath.Join(h.Dir, "user"),
		WorkDir: filepath.Join(h.Dir, "work"), Env: config.Env, NoLogin: true, Raw: config.Raw,
		CallbackTimeout: config.callbackTimeout, MaxPromptBytes: config.maxPromptBytes, DrainGrace: time.Second,
	}
	if config.Change != nil {
		config.Change(&settings)
	}
	logger := slog.New(slog.NewTextHandler(h.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options := []app.Option{app.WithLogger(logger)}
	if config.Fake != nil {
		settings.CLIPath = ""
		cli := fakecli.New(fakecli.Options{Script: *config.Fake})
		h.onClose(func() error { cli.Close(); return nil })
		options = append(options,
			app.WithRunner(runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
				return cli.Connect(), nil
			})))
	} else {
		runner := settings.NewRunner(logger, nil)
		if dir := cmp.Or(config.Record, os.Getenv(corpus.DirEnv)); dir != "" {
			runner = corpus.Record(runner, dir, corpus.DefaultLimit)
		}
		options = append(options, app.WithRunner(runner))
	}
	if os.Getenv(EntryEnv) != "" {
		return h.serveAtEntry(ctx, settings, options)
	}
	a, err := h.run(ctx, settings, options)
	if err != nil {
		return err
	}
	h.reach(a)
	h.FrontHome = h.Home
	return nil
}

// run runs a server until the host ends.
func (h *Host) run(ctx context.Context, settings app.Config, options []app.Option) (*app.App, error) {
	a, err := app.New(ctx, settings, options...)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Run(running) }()
	h.onClose(func() error {
		stop()
		return <-stopped
	})
	return a, nil
}

// reach notes how the tests reach the host's server.
func (h *Host) reach(a *app.App) {
	h.Target, h.token, h.Web = a.Target(), a.Token(), a.WebURL()
	h.Tcp = a.Targets()[len(a.Targets())-1]
	if addr := a.Admin(); addr != nil {
		h.Admin = addr.String()
	}
}

// Warm starts the CLI, so that no test pays for it, and asks for its version.
func (h *Host) Warm(ctx context.Context) error {
	for _, target := range slices.Compact([]string{h.Target, h.sessionsAt()}) {
		if err := h.warm(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// sessionsAt returns the socket of the server with the sessions.
func (h *Host) sessionsAt() string { return cmp.Or(h.owner, h.Target) }

// warm is Warm for one server.
func (h *Host) warm(ctx context.Context, target string) error {
	c, err := copilot.Dial(ctx, target)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it has done its work
	if _, err := c.Runtimes().Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		return fmt.Errorf("start of the CLI: %w", err)
	}
	info, err := c.ServerInfo(ctx)
	h.CLI = info.GetCliVersion()
	return err
}

// Close ends everything, in the reverse order of its making.
func (h *Host) Close() error {
	h.ended.Do(func() {
		for i := len(h.closers) - 1; i >= 0; i-- {
			h.endErr = errors.Join(h.endErr, h.closers[i]())
		}
	})
	return h.endErr
}

func (h *Host) onClose(f func() error) { h.closers = append(h.closers, f) }

// Bounded calls f with the time limit of a cleanup.
func Bounded(f func(context.Context) error) error {
	ctx, cancel := background()
	defer cancel()
	return f(ctx)
}

// shared is the host of most tests, which the first of them starts.
var shared sharedHost

type sharedHost struct {
	once sync.Once
	host *Host
	err  error
}

func (s *sharedHost) get() (*Host, error) {
	s.once.Do(func() {
		ctx, cancel := background()
		defer cancel()
		s.host, s.err = startHost(ctx, HostConfig{})
	})
	return s.host, s.err
}

func (s *sharedHost) close() error {
	if s.host == nil {
		return nil
	}
	return s.host.Close()
}
