package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// probeTimeout bounds the check for a listener at an address.
const probeTimeout = 2 * time.Second

// Diagnose says in plain words whether a server of this configuration could work, and
// how to mend what keeps it from that. It changes nothing, but for start, with which it
// starts a CLI, installing it if need be, and ends it again.
func Diagnose(ctx context.Context, c Config, start bool, options ...Option) []runtime.Finding {
	if err := c.Validate(); err != nil {
		return []runtime.Finding{failed("configuration", err,
			"correct the flag, the environment variable or the key of the file")}
	}
	set := newSettings(options)
	r := runner(&c, &set)
	found := r.Diagnose(ctx)
	if s, ok := r.(*runtime.Spawner); ok {
		found = append(found, npmFinding(s))
	}
	for _, address := range c.Listen {
		found = append(found, addressFinding(ctx, address))
	}
	if address := webAddress(&c); address != "" {
		found = append(found, addressFinding(ctx, address))
	}
	found = append(found, c.permissionFindings()...)
	if _, err := c.check(slog.New(slog.DiscardHandler)); err != nil {
		found = append(found, failed("files", err, "correct the file, or the setting that names it"))
	}
	if c.Cluster.on() {
		found = append(found, c.Cluster.finding(ctx))
		if !c.Cluster.embedded() {
			found = append(found, addressFinding(ctx, c.Cluster.Listen))
		}
	}
	if c.OfflineModel != "" {
		found = append(found, scriptFinding(c.OfflineModel))
	}
	if start && !Grave(found) {
		return append(found, startFindings(ctx, &c, r, set.logger)...)
	}
	if !start {
		found = append(found, c.modelFinding(nil))
	}
	return found
}

// Grave tells whether something was found that keeps a server from working.
func Grave(found []runtime.Finding) bool {
	for _, f := range found {
		if f.Level == runtime.LevelError {
			return true
		}
	}
	return false
}

func fine(subject, format string, args ...any) runtime.Finding {
	return runtime.Finding{Level: runtime.LevelOK, Subject: subject, Text: fmt.Sprintf(format, args...)}
}

func failed(subject string, err error, remedy string) runtime.Finding {
	return runtime.Finding{Level: runtime.LevelError, Subject: subject, Text: err.Error(), Remedy: remedy}
}

// npmFinding reports whether the CLI could be installed. The runner has already reported what is missing without it.
func npmFinding(s *runtime.Spawner) runtime.Finding {
	if path, ok := s.Locator.NPM(); ok {
		return fine("npm", "%q could install the CLI", path)
	}
	return fine("npm", "not found; it is only needed to install the CLI")
}

// permissionFindings tells which trusted paths other users of the machine can get at.
func (c *Config) permissionFindings() (found []runtime.Finding) {
	const subject = "permissions"
	open, err := findOpenPaths(c.trustedPaths())
	if err != nil {
		return []runtime.Finding{failed(subject, err, "")}
	}
	for _, p := range open {
		level := runtime.LevelWarning
		if p.Grave && !c.LaxPermissions {
			level = runtime.LevelError
		}
		text := fmt.Sprintf("%s: %q %s", p.setting, p.Path, p.Text)
		found = append(found, runtime.Finding{Level: level, Subject: subject, Text: text, Remedy: p.Remedy})
	}
	return found
}

// addressFinding tells whether an address can be listened on.
func addressFinding(ctx context.Context, address string) runtime.Finding {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if ok {
		return socketFinding(ctx, path)
	}
	subject := "port " + address
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return failed(subject, err, "stop the program that listens there, or choose another address with --listen")
	}
	if err := l.Close(); err != nil {
		return failed(subject, err, "")
	}
	return fine(subject, "free")
}

func socketFinding(ctx context.Context, path string) runtime.Finding {
	const subject = "socket"
	d := net.Dialer{Timeout: probeTimeout}
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return runtime.Finding{
			Level: runtime.LevelWarning, Subject: subject, Text: fmt.Sprintf("a server listens on %q already", path),
			Remedy: "use the running server, stop it, or choose another socket with --listen",
		}
	}
	dir := existing(filepath.Dir(path))
	if err := tryWrite(dir); err != nil {
		return failed(subject, fmt.Errorf("cannot create %q: %w", path, err),
			"choose another socket with --listen unix:PATH")
	}
	return fine(subject, "%q can be created", path)
}

// existing returns the nearest directory above path that exists, or path itself.
func existing(path string) string {
	for {
		_, err := os.Stat(path)
		if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
			path = parent
			continue
		}
		return path
	}
}

// tryWrite tries, because permission bits do not tell the whole truth.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func scriptFinding(source string) runtime.Finding {
	const subject = "offline model"
	if source == OfflineDefault {
		return fine(subject, "the built-in script")
	}
	script, err := loadScript(source)
	if err != nil {
		return failed(subject, err, "correct the script; docs/offline-model.md describes it")
	}
	return fine(subject, "%q has %d rules", source, len(script.Rules))
}

// startFindings starts a CLI to see whether that works, and asks it whether it is signed in.
func startFindings(ctx context.Context, c *Config, r runtime.Runner, logger *slog.Logger) []runtime.Finding {
	const subject = "start"
	profile, err := c.profile()
	if err != nil {
		return []runtime.Finding{failed(subject, err, "")}
	}
	// The handshake is a call and its answer, which is what a ping would be.
	rt, err := runtime.Start(ctx, runtime.Config{Runner: r, Profile: profile, Logger: logger, TestedOnly: c.TestedCLIOnly})
	if err != nil {
		return []runtime.Finding{failed(subject, err, "--log-level debug shows the CLI's output")}
	}
	info, model := rt.Info(), c.modelFinding(askSignedIn(ctx, rt))
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := rt.Stop(stopping); err != nil {
		return []runtime.Finding{failed(subject, err, ""), model}
	}
	took := info.StartTook.Round(time.Millisecond)
	return []runtime.Finding{fine(subject, "version %s answered within %v, and ended", info.CLIVersion, took), model}
}
