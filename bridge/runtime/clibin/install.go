package clibin

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
)

const packageName = "@github/copilot"

// Remedies.
const (
	npmInstall = "install a tested version with \"npm install -g " + packageName + "@" + PinnedVersion + "\""
	installNPM = "install Node.js with npm, with which the server installs the CLI"
	mayInstall = "start the server without --no-install to have it installed"
	usePrivate = "start the server with --install-cli, which uses a private copy of version " + PinnedVersion
)

// UseTested returns the remedy for an executable of that source whose version or digest is refused.
func UseTested(source Source) string {
	switch source {
	case SourcePath:
		return npmInstall + ", or " + usePrivate
	case SourceExplicit:
		return "leave out --cli, and " + usePrivate
	}
	return usePrivate
}

// NPM returns the npm that an installation would use.
func (l *Locator) NPM() (path string, ok bool) {
	for path, err := range l.lookup("npm") {
		if err == nil {
			return path, true
		}
	}
	return "", false
}

// install installs the pinned version below the cache directory, once for all processes of the user.
func (l *Locator) install(ctx context.Context) (Binary, error) {
	npm, ok := l.NPM()
	if !ok {
		return Binary{}, l.notFound()
	}
	final, err := l.versionDir()
	if err != nil {
		return Binary{}, installFailed(err)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return Binary{}, installFailed(err)
	}
	progress.Report(ctx, progress.Installing)
	p := Progress{
		Stage: StageInstall, Text: "installing " + packageName + "@" + PinnedVersion + " (about 190 MB, once)",
		Expected: 190 << 20,
	}
	size := func() int64 { return installingSize(filepath.Dir(final)) }
	err = l.report(p, size, func() error {
		lock, err := acquire(ctx, filepath.Join(filepath.Dir(final), "."+PinnedVersion+".lock"))
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
		if _, ok, err := l.cached(ctx); ok || err != nil {
			return err // another process installed it
		}
		return l.installInto(ctx, npm, final)
	})
	if fault.ReasonOf(err) == fault.CLIUnverified {
		return Binary{}, err
	}
	if err != nil {
		return Binary{}, installFailed(err)
	}
	bin, ok, err := l.cached(ctx)
	if err != nil {
		return Binary{}, err
	}
	if !ok {
		return Binary{}, installFailed(fmt.Errorf("no package for this platform (%v) in %q", platforms(), final))
	}
	return bin, nil
}

func installFailed(err error) *fault.Error {
	return fault.Wrap(err, fault.CLIInstallFailed, "installing %s@%s failed", packageName, PinnedVersion).
		WithRemedy("mend the cause, or install the CLI in another way and give its path with --cli or %s", PathEnv)
}

// installingPattern matches the temporary places of installations.
const installingPattern = ".tmp-" + PinnedVersion + "-*"

// installing returns the temporary places in the directory of installations. While one installs, there is no other.
func installing(parent string) []string {
	dirs, _ := filepath.Glob(filepath.Join(parent, installingPattern)) // the pattern is not malformed
	return dirs
}

// installingSize returns how many bytes npm has written so far: it unpacks what it downloads, while it does, and says
// nothing.
func installingSize(parent string) (bytes int64) {
	for _, dir := range installing(parent) {
		_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil // npm moves files meanwhile
			}
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
			return nil
		})
	}
	return bytes
}

// installInto installs into a temporary place and renames the result, so that the final place is either absent or
// complete and verified.
func (l *Locator) installInto(ctx context.Context, npm, final string) error {
	parent := filepath.Dir(final)
	for _, dir := range installing(parent) { // we hold the lock, so their owner was killed
		os.RemoveAll(dir)
	}
	tmp, err := os.MkdirTemp(parent, installingPattern)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // already gone on success
	// Its own package.json prevents npm from searching parent folders.
	if err := os.WriteFile(filepath.Join(tmp, "package.json"), []byte("{\"private\":true}\n"), 0o600); err != nil {
		return err
	}
	_, exit, err := process.Run(ctx, process.Options{
		Path: npm,
		Args: []string{"install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", tmp,
			packageName + "@" + PinnedVersion},
		Dir: tmp,
		// npm is the user's tool: registry, proxy and credentials come from the user's environment, and it runs no
		// package code.
		Env: os.Environ(),
	})
	switch {
	case err != nil:
		return fmt.Errorf("start npm: %w", err)
	case !exit.Clean():
		return fmt.Errorf("npm: %w", exit)
	}
	exe, ok := platformBinary(tmp)
	if !ok {
		return fmt.Errorf("npm installed no package for this platform (%v)", platforms())
	}
	if err := l.sealInstallation(ctx, tmp, exe); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("move the installation into place: %w", err)
	}
	return nil
}

const checkRegistry = "find out where npm gets packages with \"npm config get registry\", and correct it"

// sealInstallation verifies the files that npm installed in dir, and stores the digest of the executable.
func (l *Locator) sealInstallation(ctx context.Context, dir, exe string) error {
	table, err := l.table()
	if err != nil {
		return err
	}
	name := filepath.Base(filepath.Dir(exe))
	pin, ok := table.of(PinnedVersion, platformsOf(exe))
	if !ok {
		return fault.New(fault.CLIUnverified, "@github/%s@%s is not in the table of known packages", name,
			PinnedVersion).WithRemedy("give the path of a CLI for this platform with --cli")
	}
	integrity, err := installedIntegrity(dir, name)
	if err != nil {
		return err
	}
	if integrity != pin.Integrity {
		return fault.New(fault.CLIUnverified,
			"npm installed @github/%s@%s with integrity %q, but the published one is %q",
			name, PinnedVersion, integrity, pin.Integrity).WithRemedy(checkRegistry)
	}
	sum, err := sumFile(ctx, exe)
	if err != nil {
		return err
	}
	if pin.Executable != "" && sum != pin.Executable {
		return fault.New(fault.CLIUnverified,
			"npm installed an executable of version %s with SHA-256 %s, but the published one is %s",
			PinnedVersion, sum, pin.Executable).WithRemedy(checkRegistry)
	}
	if err := os.Chmod(exe, 0o500); err != nil { // against accidents
		return err
	}
	return os.WriteFile(filepath.Join(dir, installedFile), []byte(sum+"\n"), 0o400)
}

// installedIntegrity returns the integrity that npm checked for a package installed below dir.
func installedIntegrity(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err != nil {
		return "", err
	}
	var lock struct {
		Packages map[string]struct{ Integrity string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return "", fmt.Errorf("npm's lock file: %w", err)
	}
	return lock.Packages["node_modules/@github/"+name].Integrity, nil
}
