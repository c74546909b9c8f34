package clibin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Trust is the result of comparing an executable with the table of pinned digests.
type Trust string

const (
	// TrustPinned: the digest is in the table.
	TrustPinned Trust = "pinned"
	// TrustInstalled: the executable was installed from a package with the table's integrity and has not changed. The
	// table has no digest of the file.
	TrustInstalled Trust = "installed from the pinned package"
	// TrustChanged: the version is in the table with another digest.
	TrustChanged Trust = "changed"
	// TrustUnknown: the executable is not in the table.
	TrustUnknown Trust = "unknown"
)

// Verify selects the executables that must be in the table of digests.
type Verify string

// Values of Verify. "" means VerifyFound.
const (
	// VerifyFound requires it for executables that the Locator installed or found. An explicit path is not checked,
	// unless it is below the cache directory.
	VerifyFound Verify = "found"
	// VerifyAll also requires it for explicit paths.
	VerifyAll Verify = "all"
	// VerifyNone requires it for none.
	VerifyNone Verify = "none"
)

// Valid reports whether v is a valid value.
func (v Verify) Valid() bool {
	return v == "" || v == VerifyFound || v == VerifyAll || v == VerifyNone
}

// installedFile stores the digest of a private copy at its installation.
const installedFile = ".installed"

// inspect sets the digest of an executable, its trust, and the version from the table. It runs nothing.
func (l *Locator) inspect(ctx context.Context, bin *Binary) error {
	table, err := l.table()
	if err != nil {
		return err
	}
	if bin.Digest, err = l.fileDigest(ctx, bin.Path); err != nil {
		return fmt.Errorf("digest of %q: %w", bin.Path, err)
	}
	if pin, ok := table.byExecutable(bin.Digest); ok {
		if dir, private := l.privateVersion(bin.Path); !private || dir == pin.Version {
			bin.Trust, bin.Version = TrustPinned, pin.Version
			return nil
		}
	}
	bin.Trust = l.compare(table, *bin)
	return nil
}

// compare returns the trust of an executable whose digest is not the table's.
func (l *Locator) compare(table pinTable, bin Binary) Trust {
	version, private := l.privateVersion(bin.Path)
	if !private {
		version = bin.Version
	}
	pin, ok := table.of(version, platformsOf(bin.Path))
	switch {
	case !ok:
		return TrustUnknown
	case pin.Executable != "":
		return TrustChanged
	case !private:
		return TrustUnknown
	}
	cli, err := l.cliDir()
	if err != nil {
		return TrustUnknown
	}
	sum, err := os.ReadFile(filepath.Join(cli, version, installedFile))
	switch {
	case err != nil:
		return TrustUnknown
	case strings.TrimSpace(string(sum)) != bin.Digest:
		return TrustChanged
	}
	return TrustInstalled
}

// platformsOf returns the platform of the package that contains path, or this machine's platforms.
func platformsOf(path string) []string {
	if name, ok := strings.CutPrefix(filepath.Base(filepath.Dir(path)), "copilot-"); ok {
		return []string{name}
	}
	return platforms()
}

// cliDir is the folder of the private copies, without symbolic links, like the paths of executables.
func (l *Locator) cliDir() (string, error) {
	dir, err := l.Dir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "cli")
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil
}

// privateVersion returns the version of the private copy that contains path.
func (l *Locator) privateVersion(path string) (version string, ok bool) {
	dir, err := l.cliDir()
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	version, _, ok = strings.Cut(filepath.ToSlash(rel), "/")
	return version, ok
}

// admit returns an error if an executable must be in the table and is not.
func (l *Locator) admit(bin Binary) error {
	_, private := l.privateVersion(bin.Path)
	given := (bin.Source == SourceExplicit || bin.Source == SourceEnv) && !private
	switch {
	case bin.Trust == TrustPinned, bin.Trust == TrustInstalled, l.Verify == VerifyNone, given && l.Verify != VerifyAll:
		return nil
	}
	table, err := l.table()
	if err != nil {
		return err
	}
	pin, pinned := table.of(bin.Version, platformsOf(bin.Path))
	if bin.Trust == TrustUnknown && pinned && !private && !table.measured(platformsOf(bin.Path)) &&
		l.Verify != VerifyAll {
		return nil // no executable for this platform was measured
	}
	if bin.Trust == TrustUnknown && !pinned && !private && l.AnyVersion && l.Verify != VerifyAll {
		return nil
	}
	text := fmt.Sprintf("the copilot CLI %q (%s), version %q, is not in the table of known executables", bin.Path,
		bin.Source, bin.Version)
	remedy := "allow other versions with --any-cli, or give its path with --cli or " + PathEnv
	if bin.Trust == TrustChanged {
		text = fmt.Sprintf("the copilot CLI %q (%s) is not the published version %s: its file was changed", bin.Path,
			bin.Source, pin.Version)
	}
	if private {
		text = fmt.Sprintf("the private copy %q of the copilot CLI was changed after its installation", bin.Path)
		remedy = "find out why, then remove its folder to have it installed again"
	}
	if l.Verify == VerifyAll {
		remedy = "reinstall it, or change --verify-cli"
	}
	return fault.New(fault.CLIUnverified, "%s (SHA-256 %s); %s", text, bin.Digest, remedy).With("path", bin.Path)
}

// Unchanged reports whether an executable still has the digest that Locate determined.
func (l *Locator) Unchanged(ctx context.Context, bin Binary) bool {
	sum, err := l.fileDigest(ctx, bin.Path)
	return err == nil && sum == bin.Digest
}
