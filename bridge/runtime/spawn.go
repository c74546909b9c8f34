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
// start and remembers it. Before each start it verifies that neither that file nor what
// it unpacked has changed.
type Spawner struct {
	// Locator finds the executable.
	Locator clibin.Locator
	// Environ replaces os.Environ.
	Environ func() []string
	// InputGrace and TermGrace replace those of package process when not zero.
	InputGrace time.Duration
	TermGrace  time.Duration
	// AnyVersion allows a CLI outside the range of versions that were tested.
	AnyVersion bool

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
// it, once. Later it verifies them: a changed executable is looked for and judged
// again. Other starts wait meanwhile: they would have to do the same.
func (s *Spawner) launch(ctx context.Context, logger *slog.Logger) (*launch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil && s.Locator.Unchanged(ctx, s.found.bin) {
		l := &launch{bin: s.found.bin}
		return l, s.unpack(ctx, l, logger)
	}
	if s.found != nil {
		logger.Warn("the executable of the copilot CLI has changed", slog.String("path", s.found.bin.Path))
	} else if n := process.SweepAbandoned(); n > 0 {
		logger.Warn("ended what a killed bridge had left running", slog.Int("processes", n))
	}
	s.found = nil
	bin, err := s.Locator.Locate(ctx)
	if err != nil {
		return nil, err
	}
	if bin.Version != "" {
		if err := checkVersion(bin.Version, s.AnyVersion); err != nil {
			return nil, err.With("path", bin.Path)
		}
	}
	l := &launch{bin: bin}
	if err := s.unpack(ctx, l, logger); err != nil {
		return nil, err
	}
	logger.Info("copilot CLI found", slog.String("path", bin.Path), slog.String("source", string(bin.Source)),
		slog.String("version", bin.Version), slog.String("trust", string(bin.Trust)))
	if bin.Trust == clibin.TrustChanged {
		logger.Warn("the copilot CLI is not the published executable of its version", slog.String("path", bin.Path),
			slog.String("version", bin.Version), slog.String("sha256", bin.Digest))
	}
	s.found = l
	return l, nil
}

// unpack has the executable unpack itself, or verifies what it has unpacked.
func (s *Spawner) unpack(ctx context.Context, l *launch, logger *slog.Logger) (err error) {
	l.pkgCache, err = s.Locator.Unpack(ctx, l.bin)
	if err == nil {
		return nil
	}
	l.pkgCache = ""
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if fault.ReasonOf(err) == fault.CLIUnverified {
		return err
	}
	// Only a saving of time and space; the CLI can do without.
	logger.Warn("cannot unpack the CLI ahead of time", slog.Any("error", err))
	return nil
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
