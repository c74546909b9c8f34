package runtime

import (
	"context"
	"fmt"
	"os"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// Diagnose checks the executable, its version, and the requirements for installing and unpacking.
func (s *Spawner) Diagnose(ctx context.Context) []Finding {
	bin, err := s.Locator.Find(ctx)
	if err != nil {
		return append(s.missing(err), s.cacheFinding())
	}
	found := []Finding{versionFinding(bin, s.AnyVersion), trustFinding(bin)}
	if bin.Script {
		found = append(found, Finding{
			Level: LevelWarning, Subject: "platform package",
			Text:   fmt.Sprintf("%q is npm's start script, but the program that it starts is missing", bin.Path),
			Remedy: "reinstall with \"npm install -g @github/copilot\", without leaving out optional dependencies",
		})
	}
	return append(found, s.cacheFinding())
}

// missing explains why there is no executable, and how serious that is.
func (s *Spawner) missing(err error) []Finding {
	const subject = "copilot CLI"
	l := &s.Locator
	npm, ok := l.NPM()
	switch {
	case fault.ReasonOf(err) == fault.CLIUnverified:
		return []Finding{{Level: LevelError, Subject: subject, Text: err.Error(), Remedy: "follow the text"}}
	case l.Named():
		return []Finding{{
			Level: LevelError, Subject: subject, Text: err.Error(),
			Remedy: "correct the path, or omit it to let the bridge find the CLI",
		}}
	case l.NoInstall || !ok:
		remedy := "run \"npm install -g @github/copilot@" + clibin.PinnedVersion + "\""
		if !ok {
			remedy = "install Node.js with npm; then the bridge installs the CLI"
		}
		return []Finding{{Level: LevelError, Subject: subject, Text: err.Error(), Remedy: remedy}}
	}
	return []Finding{{
		Level: LevelWarning, Subject: subject,
		Text: fmt.Sprintf("not installed; version %s will be installed with %q at the first use",
			clibin.PinnedVersion, npm),
		Remedy: "none needed, if this machine may download it",
	}}
}

func versionFinding(bin clibin.Binary, anyVersion bool) Finding {
	f := Finding{Level: LevelOK, Subject: "copilot CLI",
		Text: fmt.Sprintf("version %s at %q (%s)", bin.Version, bin.Path, bin.Source)}
	switch {
	case bin.Version == "":
		f.Level = LevelWarning
		f.Text = fmt.Sprintf("%q (%s) does not report its version", bin.Path, bin.Source)
		f.Remedy = "make sure that it is the GitHub Copilot CLI: other programs have the name copilot too"
	case clibin.SupportOf(bin.Version) == clibin.Unsupported:
		f.Level = LevelError
		f.Text += ", which is older than the oldest supported, " + clibin.OldestVersion
		f.Remedy = "update it with \"npm install -g @github/copilot@" + clibin.PinnedVersion +
			"\", or allow it with --any-cli"
	case clibin.SupportOf(bin.Version) == clibin.Newer:
		f.Level = LevelError
		f.Text += ", newer than " + clibin.PinnedVersion + ", the newest that was tested"
		f.Remedy = "install that one with \"npm install -g @github/copilot@" + clibin.PinnedVersion +
			"\", or allow this one with --any-cli"
	}
	if f.Level == LevelError && anyVersion {
		f.Level, f.Remedy = LevelWarning, "none needed: --any-cli allows this version"
	}
	return f
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
		f.Text = fmt.Sprintf("reports version %s, but differs from the published file: SHA-256 %s", bin.Version,
			bin.Digest)
		f.Remedy = "find out who changed it, then reinstall it"
	default:
		f.Level = LevelWarning
		f.Text = fmt.Sprintf("not in the table of known executables: SHA-256 %s", bin.Digest)
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
