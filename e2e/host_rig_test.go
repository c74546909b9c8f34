package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
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
	// fake, if set, is what a fake CLI in this process plays, in place of the real one.
	fake *fakecli.Script
	// record, if set, is a folder in which what goes to and from the CLI is recorded, and not
	// among what all tests record.
	record string
	// change changes anything else.
	change func(*app.Config)
}

// host is a server with its CLI and an offline model.
type host struct {
	// dir holds everything that the host writes, home is the CLI's COPILOT_HOME.
	dir, home string
	target    string
	tcp       string // the last address
	token     string // what callers over TCP have to show
	admin     string // the address of the admin listener, if there is one
	cli       string // the CLI's version
	model     *offlinemodel.Server
	logs      *logBuffer

	ended   sync.Once
	endErr  error
	closers []func() error
}

// startHost starts everything, the CLI included.
func startHost(ctx context.Context, config hostConfig) (_ *host, err error) {
	h := &host{logs: new(logBuffer)}
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

// serve starts the bridge and the server, as the program does.
func (h *host) serve(ctx context.Context, config hostConfig) error {
	settings := app.Config{
		Version: "e2e", Listen: []string{"unix:" + filepath.Join(h.dir, "s")},
		CLIPath: os.Getenv(cliEnv), Home: h.home, UserHome: filepath.Join(h.dir, "user"),
		WorkDir: filepath.Join(h.dir, "work"), Env: config.env, NoLogin: true, Raw: config.raw,
		CallbackTimeout: config.callbackTimeout, MaxPromptBytes: config.maxPromptBytes, DrainGrace: time.Second,
	}
	if config.change != nil {
		config.change(&settings)
	}
	logger := slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options := []app.Option{app.WithLogger(logger)}
	if config.fake != nil {
		settings.CLIPath = ""
		cli := fakecli.New(fakecli.Options{Script: *config.fake})
		h.onClose(func() error { cli.Close(); return nil })
		options = append(options, app.WithRunner(runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
			return cli.Connect(), nil
		})))
	} else {
		runner := settings.NewRunner(logger, nil)
		if dir := cmp.Or(config.record, os.Getenv(corpus.DirEnv)); dir != "" {
			runner = corpus.Record(runner, dir, corpus.DefaultLimit)
		}
		options = append(options, app.WithRunner(runner))
	}
	a, err := app.New(ctx, settings, options...)
	if err != nil {
		return err
	}
	h.target, h.token = a.Target(), a.Token()
	h.tcp = a.Targets()[len(a.Targets())-1]
	if addr := a.Admin(); addr != nil {
		h.admin = addr.String()
	}
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Run(running) }()
	h.onClose(func() error {
		stop()
		return <-stopped
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
