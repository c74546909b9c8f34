package runtime

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// Spawner is a Runner that starts the CLI as a child, over stdio or, where its profile
// wants several connections, on a loopback port. It finds the executable at the first
// start and remembers it.
type Spawner struct {
	// Locator finds the executable.
	Locator clibin.Locator
	// Environ replaces os.Environ.
	Environ func() []string
	// InputGrace and TermGrace replace those of package process when not zero.
	InputGrace time.Duration
	TermGrace  time.Duration

	mu    sync.Mutex
	found *launch
}

// launch is what stays the same from start to start.
type launch struct {
	bin      clibin.Binary
	pkgCache string // "" if the CLI has to unpack itself
}

// Start starts a CLI.
func (s *Spawner) Start(ctx context.Context, spec Spec) (Transport, error) {
	if err := spec.Profile.Validate(); err != nil {
		return nil, err
	}
	l, err := s.launch(ctx, spec.Logger)
	if err != nil {
		return nil, err
	}
	if err := spec.Profile.makeDirs(); err != nil {
		return nil, err
	}
	if spec.Profile.Multi {
		child, err := startListening(ctx, s.options(l, spec), l.bin.Path)
		if err != nil {
			s.forget()
			return nil, fault.Wrap(err, fault.CLIStartFailed, "start %q", l.bin.Path)
		}
		return child, nil
	}
	p, err := process.Start(ctx, s.options(l, spec))
	if err != nil {
		s.forget()
		return nil, fault.Wrap(err, fault.CLIStartFailed, "start %q", l.bin.Path)
	}
	return &child{Process: p, peer: Peer{PID: p.PID(), Path: l.bin.Path, Owned: true}}, nil
}

func (s *Spawner) options(l *launch, spec Spec) process.Options {
	environ := os.Environ
	if s.Environ != nil {
		environ = s.Environ
	}
	env, withheld := environment(spec.Profile, environ())
	for _, name := range withheld {
		spec.Logger.Warn("proxy variable withheld from the CLI because it holds a password", slog.String("name", name))
	}
	if l.pkgCache != "" && spec.Profile.User == nil { // another user may not read it
		env[clibin.PkgCacheEnv] = l.pkgCache
	}
	o := process.Options{
		Path: l.bin.Path,
		Args: spec.Profile.args(),
		Env:  sortedEnv(env),
		Dir:  spec.Profile.Dir,
		Stderr: func(line string) {
			spec.Logger.Info("copilot stderr", slog.String("line", line))
		},
		Cleanup: func(pid int, exit process.Exit) {
			if n := spec.Profile.removeLocks(pid); n > 0 || exit.Orphans > 0 {
				spec.Logger.Warn("cleaned up after a runtime",
					slog.Int("pid", pid), slog.Int("lock_files", n), slog.Int("orphans", exit.Orphans))
			}
		},
		InputGrace: s.InputGrace,
		TermGrace:  s.TermGrace,
	}
	spec.Profile.confine(&o, l.pkgCache)
	return o
}

// launch clears up after a killed predecessor, finds the executable and unpacks
// it, once. Other starts wait
// meanwhile: they would have to do the same.
func (s *Spawner) launch(ctx context.Context, logger *slog.Logger) (*launch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil {
		return s.found, nil
	}
	if n := process.SweepAbandoned(); n > 0 {
		logger.Warn("ended what a killed bridge had left running", slog.Int("processes", n))
	}
	bin, err := s.Locator.Locate(ctx)
	if err != nil {
		return nil, err
	}
	if bin.Version != "" && clibin.SupportOf(bin.Version) == clibin.Unsupported {
		return nil, unsupported(bin.Version).With("path", bin.Path)
	}
	l := &launch{bin: bin}
	if l.pkgCache, err = s.Locator.Unpack(ctx, bin); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		// Only a saving of time and space; the CLI can do without.
		logger.Warn("cannot unpack the CLI ahead of time", slog.Any("error", err))
	}
	logger.Info("copilot CLI found", slog.String("path", bin.Path),
		slog.String("source", string(bin.Source)), slog.String("version", bin.Version))
	s.found = l
	return l, nil
}

// forget makes the next start search again: the CLI may have been moved.
func (s *Spawner) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = nil
}

// child is the Transport to a child.
type child struct {
	*process.Process
	peer Peer
}

func (c *child) Peer() Peer { return c.peer }
