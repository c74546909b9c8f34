// Package clibin finds the Copilot CLI's executable, installs a private copy
// when there is none, and unpacks it once.
//
// The order of the search: the explicit path, the environment variable
// COPILOT_CLI_PATH, "copilot" on PATH, the private copy. The first two are
// orders: when they name nothing usable the search fails instead of going on.
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

// The sources, in the order of the search.
const (
	SourceExplicit Source = "explicit path"
	SourceEnv      Source = "environment"
	SourcePath     Source = "PATH"
	SourceCache    Source = "private copy"
)

// Binary is a CLI executable.
type Binary struct {
	// Path is the file to execute, free of symbolic links.
	Path string
	// Source says where it came from.
	Source Source
	// Version is what its package or the program itself says, "" if neither did.
	Version string
	// Digest is the SHA-256 of the file, in hexadecimal, Trust how it compares with the table of
	// known executables.
	Digest string
	Trust  Trust
	// Script says that Path is npm's start script, whose platform package was
	// not found next to it. It is run as it is and needs node.
	Script bool
}

// Stage names a lengthy part of getting the CLI ready.
type Stage string

// The stages.
const (
	StageInstall Stage = "install"
	StageUnpack  Stage = "unpack"
)

// Progress reports on a stage, once when it begins, every second, and once when
// it is done.
type Progress struct {
	Stage   Stage
	Text    string
	Elapsed time.Duration
	Done    bool
}

// Locator finds the executable. The zero value searches as the package comment
// says.
type Locator struct {
	// Explicit is the path that the user gave, "" if none.
	Explicit string
	// CacheDir is where private copies and unpacked files live; "" means
	// copilot-grpc in the user's cache directory.
	CacheDir string
	// NoInstall makes the search fail instead of installing a copy.
	NoInstall bool
	// Verify says which executables must be in the table of known ones. Default: VerifyFound.
	Verify Verify
	// AnyVersion accepts a CLI on PATH of a version that the table does not have. A file that
	// differs from the table's of its version is refused all the same.
	AnyVersion bool
	// Logger, if set, gets what the operator should know.
	Logger *slog.Logger
	// Progress, if set, is told what takes long. It must not block.
	Progress func(Progress)
	// Getenv replaces os.Getenv.
	Getenv func(string) string

	pins pinTable // replaces the table of this repository in tests
}

// Locate returns the executable, installing the private copy if no other is
// found and that is allowed.
func (l *Locator) Locate(ctx context.Context) (Binary, error) {
	bin, err := l.Find(ctx)
	if err == nil || l.NoInstall || fault.ReasonOf(err) != fault.CLINotFound || l.Named() {
		return bin, err
	}
	return l.install(ctx)
}

// Find is Locate without installing anything.
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
	return fault.New(fault.CLINotFound, "no copilot CLI found: not given, not on PATH, no private copy; "+
		"install it with \"npm install -g @github/copilot\" or set %s", PathEnv)
}

// Named tells whether somebody named the executable.
func (l *Locator) Named() bool { return l.Explicit != "" || l.getenv(PathEnv) != "" }

func (l *Locator) getenv(name string) string {
	if l.Getenv != nil {
		return l.Getenv(name)
	}
	return os.Getenv(name)
}

// demanded resolves a path that somebody named.
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
		// The handshake will tell whether it is the right program.
		bin.Version, _ = l.askVersion(ctx, bin)
		l.reinspect(&bin)
	}
	return bin, nil
}

// onPath looks for the CLI on PATH. Other programs are called copilot too, so
// one that does not come out of its package has to say what it is; and this
// very program may be there under that name, to stand in for the CLI.
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

// reinspect compares with the table again when the version has become known.
func (l *Locator) reinspect(bin *Binary) {
	if table, err := l.table(); err == nil && bin.Trust != TrustPinned {
		bin.Trust = l.compare(table, *bin)
	}
}

// lookup yields the executables of that name on PATH. Relative entries do not
// count: what runs must not depend on the working directory.
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

// Dir returns the directory that private copies and unpacked files are under.
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

// report runs the work of a stage and reports on it meanwhile.
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
