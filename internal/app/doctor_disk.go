package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

// Free space of a disk below which doctor warns, and below which a server could store hardly anything.
const (
	littleSpace = 1 << 30
	noSpace     = 64 << 20
)

// diskFindings tell whether a server could use its directories and files of data.
func (c *Config) diskFindings() (found []runtime.Finding) {
	if c.DataDir == "" {
		found = append(found, fine("data directory", "none: sessions end with the server"))
	} else {
		found = append(found, c.dataFinding())
	}
	if dir := c.cliHome(); dir != "" && c.Dial == "" {
		found = append(found, directoryFinding("home of the CLI", "home", dir))
	}
	if c.WorkDir != "" {
		if info, err := os.Stat(c.WorkDir); err != nil || !info.IsDir() {
			found = append(found, failed("working directory", fmt.Errorf("%q is not a directory", c.WorkDir),
				fmt.Sprintf("mkdir -p %q, or choose another one with --work-dir", c.WorkDir)))
		}
	}
	if c.AuditLog != "" && c.AuditLog != AuditStderr {
		found = append(found, auditFinding(c.AuditLog))
	}
	return found
}

// dataFinding tells whether a server could store its data, and whether another one uses the directory, which a replica of a
// cluster does not lock.
func (c *Config) dataFinding() runtime.Finding {
	const subject = "data directory"
	dir := c.dataDir()
	f := directoryFinding(subject, "data_dir", dir)
	if f.Level == runtime.LevelError || c.Cluster.on() {
		return f
	}
	if err := store.InUse(dir); errors.Is(err, store.ErrInUse) {
		return failed(subject, occupied(err, dir), "")
	} else if err != nil {
		return failed(subject, err, "correct the permissions of the file")
	}
	return f
}

// cliHome is the CLI's state directory; empty if it is unknown.
func (c *Config) cliHome() string {
	if c.Home != "" {
		return c.Home
	}
	user, _ := os.UserHomeDir() // the CLI has none either
	if user = cmp.Or(c.UserHome, user); user == "" {
		return ""
	}
	return filepath.Join(user, ".copilot")
}

// directoryFinding tells whether the directory of a setting can be made or written to, and has space.
func directoryFinding(subject, setting, dir string) runtime.Finding {
	near := existing(dir)
	if err := tryWrite(near); err != nil {
		return failed(subject, fmt.Errorf("%q cannot be written: %w", dir, err), fmt.Sprintf("chown %d %q, or choose another "+
			"directory (%s)", os.Geteuid(), near, setting))
	}
	free, known := freeBytes(near)
	const mega = 1 << 20
	text := fmt.Sprintf("%q is writable", dir)
	if known {
		text += fmt.Sprintf(", and %d MiB are free", free/mega)
	}
	if level := spaceLevel(free); known && level != runtime.LevelOK {
		return runtime.Finding{Level: level, Subject: subject, Text: text,
			Remedy: fmt.Sprintf("make room on the disk, or choose a directory on another one (%s)", setting)}
	}
	return fine(subject, "%s", text)
}

// spaceLevel tells how grave it is that a disk has so many bytes left.
func spaceLevel(free uint64) runtime.Level {
	switch {
	case free < noSpace:
		return runtime.LevelError
	case free < littleSpace:
		return runtime.LevelWarning
	}
	return runtime.LevelOK
}

func auditFinding(path string) runtime.Finding {
	const subject = "audit log"
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		err = file.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = tryWrite(filepath.Dir(path))
	}
	if err != nil {
		return failed(subject, err, "make the directory, or let the server's user write to the file")
	}
	return fine(subject, "%q can be written", path)
}
