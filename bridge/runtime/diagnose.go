package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// cliSubject is the subject of findings about the executable and its version.
const cliSubject = "copilot CLI"

// Diagnose checks the executable, its version, and the requirements for installing and unpacking.
func (s *Spawner) Diagnose(ctx context.Context) []Finding {
	bin, err := s.Locator.Find(ctx)
	var found []Finding
	for _, skipped := range bin.Skipped {
		found = append(found, skippedFinding(skipped))
	}
	if err != nil {
		return append(found, s.missing(err), s.cacheFinding())
	}
	found = append(found, versionFinding(bin, s.TestedOnly), trustFinding(bin))
	if bin.Script {
		found = append(found, Finding{
			Level: LevelWarning, Subject: "platform package",
			Text:   fmt.Sprintf("%q is npm's start script, but the program that it starts is missing", bin.Path),
			Remedy: "reinstall with \"npm install -g @github/copilot\", without leaving out optional dependencies",
		})
	}
	return append(found, s.cacheFinding())
}

// skippedFinding reports a file called copilot on PATH that is not used.
func skippedFinding(skipped clibin.Skipped) Finding {
	return Finding{
		Level: LevelWarning, Subject: "copilot on PATH", Text: fmt.Sprintf("%q is not used: %v", skipped.Path, skipped.Err),
		Remedy: "none needed if it is another program; else reinstall it with \"npm install -g @github/copilot@" +
			clibin.PinnedVersion + "\"",
	}
}

// missing explains why there is no executable, and how serious that is.
func (s *Spawner) missing(err error) Finding {
	if npm, ok := s.Locator.WouldInstall(err); ok {
		return Finding{
			Level: LevelWarning, Subject: cliSubject,
			Text: fmt.Sprintf("not installed; version %s will be installed with %q at the first use",
				clibin.PinnedVersion, npm),
			Remedy: "none needed, if this machine may download it; \"copilot-grpc doctor --start\" installs it now",
		}
	}
	return refused(err)
}

// refused reports an error of the search, apart from its remedy.
func refused(err error) Finding {
	f := Finding{Level: LevelError, Subject: cliSubject, Text: err.Error(), Remedy: "correct the cause"}
	if known, ok := errors.AsType[*fault.Error](err); ok && known.Metadata[fault.Remedy] != "" {
		f.Remedy = known.Metadata[fault.Remedy]
		f.Text = strings.TrimSuffix(f.Text, "; "+f.Remedy)
	}
	return f
}

func versionFinding(bin clibin.Binary, testedOnly bool) Finding {
	peer := Peer{Source: bin.Source, Owned: true}
	if bin.Version == "" {
		return Finding{
			Level: LevelWarning, Subject: cliSubject,
			Text:   fmt.Sprintf("%q (%s): %s", bin.Path, bin.Source, noVersion),
			Remedy: "correct the path, or " + peer.useTested(),
		}
	}
	if err := checkVersion(bin.Version, testedOnly, peer); err != nil {
		f := refused(err)
		f.Text = fmt.Sprintf("%q (%s): %s", bin.Path, bin.Source, f.Text)
		return f
	}
	if f, newer := newerWarning(bin.Version, peer); newer {
		f.Text = fmt.Sprintf("%q (%s): %s", bin.Path, bin.Source, f.Text)
		return f
	}
	return Finding{Level: LevelOK, Subject: cliSubject,
		Text: fmt.Sprintf("version %s at %q (%s)", bin.Version, bin.Path, bin.Source)}
}

// trustFinding reports whether the executable is the published one.
func trustFinding(bin clibin.Binary) Finding {
	f := Finding{Level: LevelOK, Subject: "CLI executable"}
	switch bin.Trust {
	case clibin.TrustPinned:
		f.Text = "its SHA-256 is that of the published version " + bin.Version
	case clibin.TrustInstalled:
		f.Text = "unchanged since it was installed from the published package"
	case clibin.TrustChanged:
		f.Level = LevelWarning
		f.Text = fmt.Sprintf("the CLI's executable reports version %s, but differs from the published file: SHA-256 %s",
			bin.Version, bin.Digest)
		f.Remedy = "none needed, if you trust the file; else " + clibin.UseTested(bin.Source)
	default:
		f.Level = LevelWarning
		f.Text = "the CLI's executable is not in the table of published executables: SHA-256 " + bin.Digest
		f.Remedy = "none needed, if you trust its source; --verify-cli=all refuses it"
	}
	return f
}

// cacheFinding reports whether private copies and unpacked files can be stored.
func (s *Spawner) cacheFinding() Finding {
	const subject = "cache directory"
	dir, err := s.Locator.Dir()
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return Finding{
			Level: LevelWarning, Subject: subject, Text: fmt.Sprintf("not usable: %v", err),
			Remedy: "set HOME or XDG_CACHE_HOME to a writable place; until then the CLI unpacks its files for each " +
				"home directory",
		}
	}
	return Finding{Level: LevelOK, Subject: subject, Text: fmt.Sprintf("%q is writable", dir)}
}

// writable creates a file, because permission bits are not sufficient to decide.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	name := f.Name()
	if err := f.Close(); err != nil {
		return err
	}
	return os.Remove(name)
}
