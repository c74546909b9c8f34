package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

// probeTimeout bounds the check for a listener at an address.
const probeTimeout = 2 * time.Second

// Diagnose says in plain words whether a server of this configuration could work, and
// how to mend what keeps it from that. It changes nothing, but for start, with which it
// starts a CLI, installing it if need be, and ends it again.
func Diagnose(ctx context.Context, c Config, start bool, options ...Option) []runtime.Finding {
	if err := c.Validate(); err != nil {
		return []runtime.Finding{failed("settings", err, "correct the setting")}
	}
	set := newSettings(options)
	r := runner(&c, &set)
	found := r.Diagnose(ctx)
	if s, ok := r.(*runtime.Spawner); ok {
		found = append(found, npmFinding(s))
	}
	found = append(found, c.addressFindings(ctx)...)
	if c.XDS {
		found = append(found, bootstrapFinding())
	}
	found = append(found, c.diskFindings()...)
	found = append(found, c.permissionFindings(c.trustedPaths())...)
	found = append(found, c.fileFindings(ctx)...)
	if c.Cluster.on() {
		found = append(found, c.Cluster.finding(ctx))
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

// fileFindings tell about the files that the settings name. A server stops at the first that it cannot use.
func (c *Config) fileFindings(ctx context.Context) (found []runtime.Finding) {
	out := checked{providers: map[string][]byte{}}
	for _, file := range c.fileChecks(slog.New(slog.DiscardHandler)) {
		if err := file.read(&out); err != nil {
			found = append(found, failed(file.subject, err, cmp.Or(file.remedy, correctFile)))
			continue
		}
		found = append(found, file.find(ctx, &out)...)
	}
	return found
}

// Grave tells whether something was found that keeps a server from working.
func Grave(found []runtime.Finding) bool {
	return slices.ContainsFunc(found, func(f runtime.Finding) bool { return f.Level == runtime.LevelError })
}

func fine(subject, format string, args ...any) runtime.Finding {
	return runtime.Finding{Level: runtime.LevelOK, Subject: subject, Text: fmt.Sprintf(format, args...)}
}

// failed returns the finding about an error. An error that has a remedy needs no other one.
func failed(subject string, err error, remedy string) runtime.Finding {
	text := strings.TrimPrefix(err.Error(), subject+": ") // of a KeyError
	f := runtime.Finding{Level: runtime.LevelError, Subject: subject, Text: text, Remedy: remedy}
	if e, ok := errors.AsType[*remediedError](err); ok {
		f.Text, f.Remedy = strings.TrimSuffix(f.Text, "; "+e.remedy), e.remedy
		if e.running { // perhaps the one with these settings
			f.Level = runtime.LevelWarning
		}
	}
	return f
}

// npmFinding reports whether the CLI could be installed. The runner has already reported what is missing without it.
func npmFinding(s *runtime.Spawner) runtime.Finding {
	if path, ok := s.Locator.NPM(); ok {
		return fine("npm", "%q could install the CLI", path)
	}
	return fine("npm", "not found; it is only needed to install the CLI")
}

// permissionFindings tells which of the paths other users of the machine can get at.
func (c *Config) permissionFindings(paths []trustedPath) (found []runtime.Finding) {
	const subject = "permissions"
	open, err := findOpenPaths(paths)
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

// bootstrapFinding tells whether gRPC takes the bootstrap file of a control plane.
func bootstrapFinding() runtime.Finding {
	const subject = "control plane"
	s, err := xds.NewServer(func(net.Addr, error) {})
	if err != nil {
		return failed(subject, err, "set GRPC_XDS_BOOTSTRAP to the path of a bootstrap file, as in docs/mesh.md")
	}
	s.Stop()
	return fine(subject, "the bootstrap file is valid; the control plane itself was not tried")
}

// addressFindings tell whether the addresses of the settings can be listened on.
func (c *Config) addressFindings(ctx context.Context) (found []runtime.Finding) {
	addresses := append(slices.Clone(c.Listen), webAddress(c), c.AdminListen)
	if c.Cluster.on() {
		addresses = append(addresses, c.Cluster.Listen)
	}
	for _, address := range addresses {
		if address != "" {
			found = append(found, c.addressFinding(ctx, address))
		}
	}
	return found
}

func (c *Config) addressFinding(ctx context.Context, address string) runtime.Finding {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return c.socketFinding(ctx, address, path)
	}
	subject := "port " + address
	if err := tryListen(ctx, address); err != nil {
		return failed(subject, c.unavailable(err), "choose another address")
	}
	return fine(subject, "free")
}

// tryListen listens on an address for a moment, as a server does.
func tryListen(ctx context.Context, address string) error {
	l, err := server.Listen(ctx, address)
	if err != nil {
		return err
	}
	return l.Close()
}

// socketFinding tells whether a server can listen on a socket. A server removes a socket without a listener and makes
// missing directories; doctor does not.
func (c *Config) socketFinding(ctx context.Context, address, path string) runtime.Finding {
	const subject = "socket"
	d := net.Dialer{Timeout: probeTimeout}
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		remedy, _ := listenRemedy(address, nil)
		return warn(subject, fmt.Sprintf("a server listens on %q already", path), cmp.Or(remedy, "use that server, stop it, "+
			"or choose another socket with")+" --listen")
	}
	dir := filepath.Dir(path)
	var err error
	switch info, missing := os.Lstat(path); {
	case missing == nil && info.Mode().Type() != fs.ModeSocket:
		err = fmt.Errorf("%q exists and is not a socket", path)
	case missing != nil && existing(dir) == dir:
		err = c.unavailable(tryListen(ctx, address))
	default:
		err = tryWrite(existing(dir))
	}
	if err != nil {
		return failed(subject, fmt.Errorf("cannot create %q: %w", path, err), "choose another socket with --listen unix:PATH")
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
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%q: %w", dir, e.Err)
	}
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
