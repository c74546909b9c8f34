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
	// TrustUnmeasured: the version is in the table, without a digest of the executable for this platform.
	TrustUnmeasured Trust = "unmeasured"
	// TrustUnknown: the version is not in the table.
	TrustUnknown Trust = "unknown"
)

// Verify selects the executables that must be in the table of digests.
type Verify string

// Values of Verify. "" means VerifyFound.
const (
	// VerifyFound requires it for executables that the Locator installed, and for executables on PATH whose version is
	// in the table. An explicit path is not checked, unless it is below the cache directory.
	VerifyFound Verify = "found"
	// VerifyAll requires it for all, also for explicit paths and for versions that are not in the table.
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
func (l *Locator) compare(table Pins, bin Binary) Trust {
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
		return TrustUnmeasured
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

// admit returns an error if an executable is refused because of its digest. An executable that is in no table is
// admitted unless all have to be there: versions newer than this table work.
func (l *Locator) admit(bin Binary) error {
	version, private := l.privateVersion(bin.Path)
	given := (bin.Source == SourceExplicit || bin.Source == SourceEnv) && !private
	differs := private || bin.Trust == TrustChanged
	switch {
	case bin.Trust == TrustPinned, bin.Trust == TrustInstalled, l.Verify == VerifyNone,
		l.Verify != VerifyAll && (given || !differs):
		return nil
	case private:
		dir, err := l.cliDir()
		if err != nil {
			return err
		}
		return fault.New(fault.CLIUnverified,
			"the private copy %q of the copilot CLI was changed after its installation (SHA-256 %s)", bin.Path, bin.Digest).
			With("path", bin.Path).WithRemedy(`remove it with "rm -rf %s" to have it installed again`,
			filepath.Join(dir, version))
	case !differs:
		return fault.New(fault.CLIUnverified,
			"the copilot CLI %q (%s), version %q, is not in the table of published executables (SHA-256 %s)",
			bin.Path, bin.Source, bin.Version, bin.Digest).With("path", bin.Path).WithRemedy("%s", UseTested(bin.Source))
	}
	err := fault.New(fault.CLIUnverified,
		"the copilot CLI %q (%s) is not the published version %s: its file was changed (SHA-256 %s)", bin.Path,
		bin.Source, bin.Version, bin.Digest).With("path", bin.Path)
	if l.Verify == VerifyAll {
		return err.WithRemedy("%s", UseTested(bin.Source))
	}
	return err.WithRemedy("%s, or, if you trust the file, give its path with --cli or %s", UseTested(bin.Source), PathEnv)
}

// Unchanged reports whether an executable still has the digest that Locate determined.
func (l *Locator) Unchanged(ctx context.Context, bin Binary) bool {
	sum, err := l.fileDigest(ctx, bin.Path)
	return err == nil && sum == bin.Digest
}
