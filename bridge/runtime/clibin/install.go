package clibin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

const packageName = "@github/copilot"

// NPM returns the npm that an installation would use.
func (l *Locator) NPM() (path string, ok bool) {
	for path := range l.lookup("npm") {
		return path, true
	}
	return "", false
}

// install installs the pinned version under the cache directory, once for all
// processes of this user.
func (l *Locator) install(ctx context.Context) (Binary, error) {
	npm, ok := l.NPM()
	if !ok {
		return Binary{}, fault.New(fault.CLINotFound, "no copilot CLI found, and npm, which could install it, is missing; "+
			"install Node.js with npm, or put the CLI on PATH, or set %s", PathEnv).With("missing", "npm")
	}
	final, err := l.versionDir()
	if err != nil {
		return Binary{}, installFailed(err)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return Binary{}, installFailed(err)
	}
	err = l.report(StageInstall, "installing "+packageName+"@"+PinnedVersion+" (about 190 MB, once)", func() error {
		lock, err := acquire(ctx, filepath.Join(filepath.Dir(final), "."+PinnedVersion+".lock"))
		if err != nil {
			return err
		}
		defer lock.release()
		if _, ok := l.cached(); ok {
			return nil // somebody else was faster
		}
		return installInto(ctx, npm, final)
	})
	if err != nil {
		return Binary{}, installFailed(err)
	}
	bin, ok := l.cached()
	if !ok {
		return Binary{}, installFailed(fmt.Errorf("no package for this platform (%v) in %q", platforms(), final))
	}
	return bin, nil
}

func installFailed(err error) *fault.Error {
	return fault.Wrap(err, fault.CLIInstallFailed, "installing %s@%s failed; "+
		"install it yourself and set %s to its path", packageName, PinnedVersion, PathEnv)
}

// installInto installs beside the final place and moves the result there, so
// that the final place is either absent or complete.
func installInto(ctx context.Context, npm, final string) error {
	parent, pattern := filepath.Dir(final), ".tmp-"+PinnedVersion+"-*"
	if left, _ := filepath.Glob(filepath.Join(parent, pattern)); len(left) > 0 {
		for _, dir := range left { // we hold the lock, so whoever made these was killed
			os.RemoveAll(dir)
		}
	}
	tmp, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // gone already when all went well
	// A package.json of its own keeps npm from looking for one further up.
	if err := os.WriteFile(filepath.Join(tmp, "package.json"), []byte("{\"private\":true}\n"), 0o600); err != nil {
		return err
	}
	_, exit, err := process.Run(ctx, process.Options{
		Path: npm,
		Args: []string{"install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", tmp, packageName + "@" + PinnedVersion},
		Dir:  tmp,
		// npm is the user's own tool: registry, proxy and credentials come
		// from the user's environment, and no package code runs in it.
		Env: os.Environ(),
	})
	switch {
	case err != nil:
		return fmt.Errorf("start npm: %w", err)
	case !exit.Clean():
		return fmt.Errorf("npm: %w", exit)
	}
	if _, ok := platformBinary(tmp); !ok {
		return fmt.Errorf("npm installed no package for this platform (%v)", platforms())
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("move the installation into place: %w", err)
	}
	return nil
}
