// Package clibin finds the Copilot CLI's executable, installs a private copy if there is none, and unpacks it once.
//
// The search order is: the explicit path, the environment variable COPILOT_CLI_PATH, "copilot" on PATH, the private
// copy. If one of the first two is set and not usable, the search fails and does not continue. A file called copilot on
// PATH that is not a usable CLI is skipped, and the result says so. Locator.Private limits the search to the private
// copy, which has the pinned version.
//
// The package starts no goroutines that outlive a call. Locks are files, which serialise processes of one user.
package clibin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// Skipped are the files called copilot that were found on PATH before this one and are not usable.
	Skipped []Skipped
}

// Skipped is a file called copilot on PATH that the Locator does not use.
type Skipped struct {
	Path string
	// Err is the reason.
	Err error
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
	// Bytes are on disk of about Expected ones; both are 0 if unknown.
	Bytes, Expected int64
	// Done says that the stage has ended, with Err if it failed.
	Done bool
	Err  error
}

// Locator finds the executable. The zero value searches as described in the package comment.
type Locator struct {
	// Explicit is the path that the user set; "" if none.
	Explicit string
	// CacheDir is where private copies and unpacked files live; "" means
	// copilot-grpc in the user's cache directory.
	CacheDir string
	// Private makes the private copy the only one that is used.
	Private bool
	// NoInstall makes the search fail instead of installing a private copy.
	NoInstall bool
	// Verify selects the executables that must be in the table of known ones. The default is VerifyFound.
	Verify Verify
	// Logger, if set, receives messages for the operator.
	Logger *slog.Logger
	// Progress, if set, is called for stages that take long. It must not block.
	Progress func(Progress)
	// Getenv replaces os.Getenv.
	Getenv func(string) string

	// Pins replaces the table of this repository if not nil.
	Pins Pins
}

// Locate returns the executable. It installs the private copy if no other is found and installing is permitted.
func (l *Locator) Locate(ctx context.Context) (Binary, error) {
	bin, err := l.Find(ctx)
	if err == nil || !l.installs(err) {
		return bin, err
	}
	skipped := bin.Skipped
	bin, err = l.install(ctx)
	bin.Skipped = skipped
	return bin, err
}

// installs reports whether Locate installs the private copy after this error of Find.
func (l *Locator) installs(err error) bool {
	named := !l.Private && (l.Explicit != "" || l.getenv(PathEnv) != "")
	return fault.ReasonOf(err) == fault.CLINotFound && !named && !l.NoInstall
}

// WouldInstall returns the npm with which Locate installs the private copy after this error of Find; not ok if Locate
// fails.
func (l *Locator) WouldInstall(err error) (npm string, ok bool) {
	if !l.installs(err) {
		return "", false
	}
	return l.NPM()
}

// Find is like Locate, but installs nothing. After an error the result has only the skipped files.
func (l *Locator) Find(ctx context.Context) (Binary, error) {
	if l.Private {
		return l.private(ctx, nil)
	}
	if l.Explicit != "" {
		return l.demanded(ctx, l.Explicit, SourceExplicit)
	}
	if path := l.getenv(PathEnv); path != "" {
		return l.demanded(ctx, path, SourceEnv)
	}
	bin, ok, err := l.onPath(ctx)
	if ok || err != nil {
		return bin, err
	}
	return l.private(ctx, bin.Skipped)
}

// private returns the private copy after the search on PATH has skipped files.
func (l *Locator) private(ctx context.Context, skipped []Skipped) (Binary, error) {
	bin, ok, err := l.cached(ctx)
	if !ok && err == nil {
		err = l.notFound()
	}
	bin.Skipped = skipped
	return bin, err
}

// notFound explains that no usable executable was found.
func (l *Locator) notFound() *fault.Error {
	err := fault.New(fault.CLINotFound, "no usable copilot CLI found on PATH or in the private copy")
	if l.Private {
		err = fault.New(fault.CLINotFound, "the private copy of the copilot CLI is not installed")
	}
	_, npm := l.NPM()
	switch {
	case !npm && l.Private:
		return err.WithRemedy(installNPM).With("missing", "npm")
	case !npm:
		return err.WithRemedy("%s, or give the path of the CLI with --cli or %s", installNPM, PathEnv).
			With("missing", "npm")
	case l.Private:
		return err.WithRemedy(mayInstall)
	}
	return err.WithRemedy("%s, or %s", npmInstall, mayInstall)
}

func (l *Locator) getenv(name string) string {
	if l.Getenv != nil {
		return l.Getenv(name)
	}
	return os.Getenv(name)
}

// demanded resolves an explicit path.
func (l *Locator) demanded(ctx context.Context, path string, source Source) (Binary, error) {
	bin, err := resolve(path)
	bin.Source = source
	if err == nil {
		err = l.inspect(ctx, &bin)
	}
	if err != nil {
		return Binary{}, unusable(err, path, source)
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

// unusable explains that an explicit path is not that of a usable executable.
func unusable(err error, path string, source Source) *fault.Error {
	setting := "--cli"
	if source == SourceEnv {
		setting = PathEnv
	}
	f := fault.Wrap(err, fault.CLINotFound, "copilot CLI %q, given by %s, is not usable", path, source).With("path", path)
	if errors.Is(err, errNotExecutable) {
		return f.WithRemedy("make it executable with \"chmod +x %s\"", path)
	}
	return f.WithRemedy("correct %s, or leave it out to have the server find or install the CLI", setting)
}

// onPath searches PATH for the CLI. Other programs have the name copilot too, so one outside the CLI's package must
// identify itself. This program itself may have that name, to replace the CLI. If not ok, the result has only the
// skipped files.
func (l *Locator) onPath(ctx context.Context) (_ Binary, ok bool, err error) {
	var skipped []Skipped
	for path, err := range l.lookup("copilot") {
		var bin Binary
		if err == nil {
			bin, err = l.identify(ctx, path)
		}
		switch {
		case errors.Is(err, errSelf):
		case err != nil:
			skipped = append(skipped, Skipped{path, err})
		default:
			bin.Skipped = skipped
			return bin, true, l.admit(bin)
		}
	}
	return Binary{Skipped: skipped}, false, nil
}

// identify resolves a path on PATH, and returns an error if the file is not the CLI.
func (l *Locator) identify(ctx context.Context, path string) (Binary, error) {
	bin, err := resolve(path)
	if err != nil {
		return Binary{}, err
	}
	bin.Source = SourcePath
	if err := l.inspect(ctx, &bin); err != nil {
		return Binary{}, err
	}
	if bin.Version == "" {
		if bin.Version, err = l.askVersion(ctx, bin); err != nil {
			return Binary{}, err
		}
		l.reinspect(&bin)
	}
	return bin, nil
}

// reinspect compares with the table again after the version has become known.
func (l *Locator) reinspect(bin *Binary) {
	if table, err := l.table(); err == nil && bin.Trust != TrustPinned {
		bin.Trust = l.compare(table, *bin)
	}
}

// lookup yields the files with the name on PATH, and errNotExecutable for those that cannot be executed. It ignores
// relative entries: the result must not depend on the working directory.
func (l *Locator) lookup(name string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, dir := range filepath.SplitList(l.getenv("PATH")) {
			if !filepath.IsAbs(dir) {
				continue
			}
			file := filepath.Join(dir, name)
			path, err := exec.LookPath(file)
			switch {
			case err == nil:
			case errors.Is(err, fs.ErrPermission):
				path, err = file, errNotExecutable
			default:
				continue
			}
			if !yield(path, err) {
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

// report runs the work of a stage and reports its progress from the beginning on. size returns how many bytes are on disk;
// nil if that is not known.
func (l *Locator) report(p Progress, size func() int64, work func() error) error {
	if l.Progress == nil {
		return work()
	}
	begin := time.Now()
	l.Progress(p)
	done := make(chan struct{})
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				now := p
				now.Elapsed = time.Since(begin)
				if size != nil {
					now.Bytes = size()
				}
				l.Progress(now)
			case <-done:
				return
			}
		}
	}()
	err := work()
	close(done)
	<-ticked
	p.Elapsed, p.Done, p.Err = time.Since(begin), true, err
	l.Progress(p)
	return err
}
