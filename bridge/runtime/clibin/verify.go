package clibin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Trust says how an executable compares with the table of pinned digests.
type Trust string

// The results of the comparison.
const (
	// TrustPinned is an executable with a digest of the table.
	TrustPinned Trust = "pinned"
	// TrustInstalled is an executable that was installed from a package with the integrity of the
	// table and has not changed since. The table has no digest of the file itself.
	TrustInstalled Trust = "installed from the pinned package"
	// TrustChanged is an executable of a version in the table with another digest than there.
	TrustChanged Trust = "changed"
	// TrustUnknown is an executable that the table does not know.
	TrustUnknown Trust = "unknown"
)

// Verify says which executables must be in the table of digests.
type Verify string

// The values of Verify; "" is VerifyFound.
const (
	// VerifyFound demands it of what the Locator installed or found by itself. A path that was
	// given is used as it is, unless it is below the cache directory.
	VerifyFound Verify = "found"
	// VerifyAll demands it of paths that were given too.
	VerifyAll Verify = "all"
	// VerifyNone accepts everything.
	VerifyNone Verify = "none"
)

// Valid reports whether v is one of the values.
func (v Verify) Valid() bool {
	return v == "" || v == VerifyFound || v == VerifyAll || v == VerifyNone
}

// installedFile remembers the digest of a private copy at its installation, in its folder.
const installedFile = ".installed"

// inspect sets the digest of an executable, how that compares with the table, and the version
// that the table has for it. It runs nothing.
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

// compare judges an executable whose digest is not the right one of the table.
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

// platformsOf returns the platform of the package that path is in, else those of this machine.
func platformsOf(path string) []string {
	if name, ok := strings.CutPrefix(filepath.Base(filepath.Dir(path)), "copilot-"); ok {
		return []string{name}
	}
	return platforms()
}

// cliDir is the folder of the private copies, free of symbolic links like the paths of executables.
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

// privateVersion returns the version whose private copy a path belongs to.
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

// admit refuses an executable that must be in the table and is not.
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
	if bin.Trust == TrustUnknown && pinned && !private && !table.measured(platformsOf(bin.Path)) && l.Verify != VerifyAll {
		return nil // nothing on this platform could be verified
	}
	if bin.Trust == TrustUnknown && !pinned && !private && l.AnyVersion && l.Verify != VerifyAll {
		return nil
	}
	text := fmt.Sprintf("the copilot CLI %q (%s), version %q, is not in the table of known executables", bin.Path, bin.Source, bin.Version)
	remedy := "allow other versions with --any-cli, or give its path with --cli or " + PathEnv
	if bin.Trust == TrustChanged {
		text = fmt.Sprintf("the copilot CLI %q (%s) is not the published version %s: its file was changed", bin.Path, bin.Source, pin.Version)
	}
	if private {
		text = fmt.Sprintf("the private copy %q of the copilot CLI is not what was installed: its file was changed", bin.Path)
		remedy = "find out why, remove its folder, and it is installed again"
	}
	if l.Verify == VerifyAll {
		remedy = "reinstall it, or change --verify-cli"
	}
	return fault.New(fault.CLIUnverified, "%s (SHA-256 %s); %s", text, bin.Digest, remedy).With("path", bin.Path)
}

// Unchanged reports whether an executable that was located before still has its digest.
func (l *Locator) Unchanged(ctx context.Context, bin Binary) bool {
	sum, err := l.fileDigest(ctx, bin.Path)
	return err == nil && sum == bin.Digest
}
