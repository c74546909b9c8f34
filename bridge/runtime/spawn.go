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
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
)

// Spawner is a Runner that starts the CLI as a child, over stdio or, if its profile has Multi set, on a loopback
// port. It finds the executable at the first start and remembers it. Before each start it verifies that the
// executable and its unpacked files are unchanged.
type Spawner struct {
	// Locator finds the executable.
	Locator clibin.Locator
	// Environ replaces os.Environ.
	Environ func() []string
	// InputGrace and TermGrace replace the defaults of package process if not zero.
	InputGrace time.Duration
	TermGrace  time.Duration
	// TestedOnly refuses a CLI that is newer than every tested version.
	TestedOnly bool

	mu    sync.Mutex
	found *launch
	// launching has the starts that are in launch.
	launching progress.Group
}

// launch is the data shared by all starts.
type launch struct {
	bin      clibin.Binary
	pkgCache string // "" if the CLI unpacks its own files
}

// peer describes a process of the executable.
func (l *launch) peer(pid int) Peer {
	peer := Peer{PID: pid, Path: l.bin.Path, Source: l.bin.Source, Version: l.bin.Version, Owned: true}
	unknown := l.bin.Trust == clibin.TrustUnknown && clibin.SupportOf(l.bin.Version) != clibin.Newer
	if unknown || l.bin.Trust == clibin.TrustChanged {
		peer.Warnings = []Finding{trustFinding(l.bin)}
	}
	return peer
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
	spec.Logger.Info("starting the copilot CLI", slog.String("profile", spec.Profile.Hash()),
		slog.String("path", l.bin.Path), slog.String("version", l.bin.Version))
	if spec.Profile.Multi {
		child, err := startListening(ctx, s.options(l, spec), l)
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
	return &child{Process: p, peer: l.peer(p.PID())}, nil
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
	if l.pkgCache != "" && spec.Profile.User == nil { // another user may not be able to read it
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
				spec.Logger.Warn("removed leftovers of a runtime",
					slog.Int("pid", pid), slog.Int("lock_files", n), slog.Int("orphans", exit.Orphans))
			}
		},
		InputGrace: s.InputGrace,
		TermGrace:  s.TermGrace,
	}
	spec.Profile.confine(&o, l.pkgCache)
	return o
}

// launch finds the executable, unpacks it, and ends the processes of a killed predecessor, all once. Later calls
// verify the executable and search again if it has changed. Other starts wait, because they need the same result.
func (s *Spawner) launch(ctx context.Context, logger *slog.Logger) (*launch, error) {
	defer s.launching.Join(ctx)()
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, stop := progress.Watch(ctx, s.launching.Report)
	defer stop()
	if s.found != nil && s.Locator.Unchanged(ctx, s.found.bin) {
		progress.Report(ctx, progress.Starting)
		l := &launch{bin: s.found.bin}
		return l, s.unpack(ctx, l, logger)
	}
	if s.found != nil {
		logger.Warn("the executable of the copilot CLI has changed", slog.String("path", s.found.bin.Path))
	} else if n := process.SweepAbandoned(); n > 0 {
		logger.Warn("ended processes that a killed bridge left running", slog.Int("processes", n))
	}
	s.found = nil
	bin, err := s.Locator.Locate(ctx)
	if err != nil {
		return nil, err
	}
	progress.Report(ctx, progress.Starting)
	l := &launch{bin: bin}
	if bin.Version != "" {
		if err := checkVersion(bin.Version, s.TestedOnly, l.peer(0)); err != nil {
			return nil, err.With("path", bin.Path)
		}
	}
	if err := s.unpack(ctx, l, logger); err != nil {
		return nil, err
	}
	logger.Info("copilot CLI found", slog.String("path", bin.Path), slog.String("source", string(bin.Source)),
		slog.String("version", bin.Version), slog.String("trust", string(bin.Trust)))
	for _, skipped := range bin.Skipped {
		logger.Warn("skipped a file called copilot on PATH", slog.String("path", skipped.Path),
			slog.Any("error", skipped.Err))
	}
	s.found = l
	return l, nil
}

// unpack makes the executable unpack its files, or verifies the unpacked files.
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
	// Unpacking ahead only saves time and space; the CLI works without it.
	logger.Warn("cannot unpack the CLI ahead of time", slog.Any("error", err))
	return nil
}

// forget makes the next start search again, because the CLI may have been moved.
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
