// Package clibin finds the Copilot CLI's executable, installs a private copy if there is none, and unpacks it once.
//
// The search order is: the explicit path, the environment variable COPILOT_CLI_PATH, "copilot" on PATH, the private
// copy. If one of the first two is set and not usable, the search fails and does not continue.
//
// The package starts no goroutines that outlive a call. Locks are files, which serialise processes of one user.
package clibin

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// PathEnv is the environment variable that names the executable.
const PathEnv = "COPILOT_CLI_PATH"

// Source says where an executable was found.
type Source string

// Sources in the order of the search.
const (
	SourceExplicit Source = "explicit path"
	SourceEnv      Source = "environment"
	SourcePath     Source = "PATH"
	SourceCache    Source = "private copy"
)

// Binary is a CLI executable.
type Binary struct {
	// Path is the file to execute, free of symbolic links.
	Path   string
	Source Source
	// Version is the version from the package or from the program itself; "" if unknown.
	Version string
	// Digest is the SHA-256 of the file, in hexadecimal. Trust is the result of comparing it with the table of known
	// executables.
	Digest string
	Trust  Trust
	// Script reports that Path is npm's start script, and that its platform package was not found. The script needs
	// node.
	Script bool
}

// Stage names a lengthy part of getting the CLI ready.
type Stage string

const (
	StageInstall Stage = "install"
	StageUnpack  Stage = "unpack"
)

// Progress reports a stage: once when it starts, every second, and once when it ends.
type Progress struct {
	Stage   Stage
	Text    string
	Elapsed time.Duration
	Done    bool
}

// Locator finds the executable. The zero value searches as described in the package comment.
type Locator struct {
	// Explicit is the path that the user set; "" if none.
	Explicit string
	// CacheDir is where private copies and unpacked files live; "" means
	// copilot-grpc in the user's cache directory.
	CacheDir string
	// NoInstall makes the search fail instead of installing a private copy.
	NoInstall bool
	// Verify selects the executables that must be in the table of known ones. The default is VerifyFound.
	Verify Verify
	// AnyVersion accepts a CLI on PATH whose version is not in the table. A file that differs from the table's file
	// of its version is refused nevertheless.
	AnyVersion bool
	// Logger, if set, receives messages for the operator.
	Logger *slog.Logger
	// Progress, if set, is called for stages that take long. It must not block.
	Progress func(Progress)
	// Getenv replaces os.Getenv.
	Getenv func(string) string

	pins pinTable // replaces the table of this repository in tests
}

// Locate returns the executable. It installs the private copy if no other is found and installing is permitted.
func (l *Locator) Locate(ctx context.Context) (Binary, error) {
	bin, err := l.Find(ctx)
	if err == nil || l.NoInstall || fault.ReasonOf(err) != fault.CLINotFound || l.Named() {
		return bin, err
	}
	return l.install(ctx)
}

// Find is like Locate, but installs nothing.
func (l *Locator) Find(ctx context.Context) (Binary, error) {
	if l.Explicit != "" {
		return l.demanded(ctx, l.Explicit, SourceExplicit)
	}
	if path := l.getenv(PathEnv); path != "" {
		return l.demanded(ctx, path, SourceEnv)
	}
	if bin, ok, err := l.onPath(ctx); ok || err != nil {
		return bin, err
	}
	if bin, ok, err := l.cached(ctx); ok || err != nil {
		return bin, err
	}
	return Binary{}, notFound()
}

func notFound() *fault.Error {
	return fault.New(fault.CLINotFound, "no copilot CLI found in --cli, on PATH or in the private copy; "+
		"install it with \"npm install -g @github/copilot\" or set %s", PathEnv)
}

// Named reports whether the executable's path was set explicitly.
func (l *Locator) Named() bool { return l.Explicit != "" || l.getenv(PathEnv) != "" }

func (l *Locator) getenv(name string) string {
	if l.Getenv != nil {
		return l.Getenv(name)
	}
	return os.Getenv(name)
}

// demanded resolves an explicit path.
func (l *Locator) demanded(ctx context.Context, path string, source Source) (Binary, error) {
	bin, err := resolve(path)
	if err != nil {
		return Binary{}, fault.Wrap(err, fault.CLINotFound, "copilot CLI %q, given by %s, is not usable", path, source).
			With("path", path)
	}
	bin.Source = source
	if err := l.inspect(ctx, &bin); err != nil {
		return Binary{}, fault.Wrap(err, fault.CLINotFound, "copilot CLI %q, given by %s, is not usable", path, source).
			With("path", path)
	}
	if err := l.admit(bin); err != nil {
		return Binary{}, err
	}
	if bin.Version == "" {
		// The handshake will detect a wrong program.
		bin.Version, _ = l.askVersion(ctx, bin)
		l.reinspect(&bin)
	}
	return bin, nil
}

// onPath searches PATH for the CLI. Other programs have the name copilot too, so one outside the CLI's package must
// identify itself. This program itself may have that name, to replace the CLI.
func (l *Locator) onPath(ctx context.Context) (_ Binary, ok bool, err error) {
	for path := range l.lookup("copilot") {
		bin, err := resolve(path)
		if err != nil {
			continue
		}
		bin.Source = SourcePath
		if err := l.inspect(ctx, &bin); err != nil {
			continue
		}
		if bin.Version == "" {
			if bin.Version, err = l.askVersion(ctx, bin); err != nil {
				continue
			}
			l.reinspect(&bin)
		}
		if err := l.admit(bin); err != nil {
			return Binary{}, false, err
		}
		return bin, true, nil
	}
	return Binary{}, false, nil
}

// reinspect compares with the table again after the version has become known.
func (l *Locator) reinspect(bin *Binary) {
	if table, err := l.table(); err == nil && bin.Trust != TrustPinned {
		bin.Trust = l.compare(table, *bin)
	}
}

// lookup yields the executables with the name on PATH. It ignores relative entries: the result must not depend on the
// working directory.
func (l *Locator) lookup(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, dir := range filepath.SplitList(l.getenv("PATH")) {
			if !filepath.IsAbs(dir) {
				continue
			}
			path, err := exec.LookPath(filepath.Join(dir, name))
			if err == nil && !yield(path) {
				return
			}
		}
	}
}

// cached returns the private copy of the pinned version.
func (l *Locator) cached(ctx context.Context) (_ Binary, ok bool, err error) {
	dir, err := l.versionDir()
	if err != nil {
		return Binary{}, false, nil
	}
	path, ok := platformBinary(dir)
	if !ok {
		return Binary{}, false, nil
	}
	bin, err := resolve(path)
	if err != nil {
		return Binary{}, false, nil
	}
	bin.Source = SourceCache
	if bin.Version == "" {
		bin.Version = PinnedVersion
	}
	if err := l.inspect(ctx, &bin); err != nil {
		return Binary{}, false, err
	}
	return bin, true, l.admit(bin)
}

// Dir returns the directory of the private copies and unpacked files.
func (l *Locator) Dir() (string, error) {
	if l.CacheDir != "" {
		return filepath.Abs(l.CacheDir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w", err)
	}
	return filepath.Join(base, "copilot-grpc"), nil
}

func (l *Locator) versionDir() (string, error) {
	base, err := l.Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "cli", PinnedVersion), nil
}

// report runs the work of a stage and reports its progress.
func (l *Locator) report(stage Stage, text string, work func() error) error {
	if l.Progress == nil {
		return work()
	}
	begin := time.Now()
	l.Progress(Progress{Stage: stage, Text: text})
	done := make(chan struct{})
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				l.Progress(Progress{Stage: stage, Text: text, Elapsed: time.Since(begin)})
			case <-done:
				return
			}
		}
	}()
	err := work()
	close(done)
	<-ticked
	l.Progress(Progress{Stage: stage, Text: text, Elapsed: time.Since(begin), Done: true})
	return err
}
