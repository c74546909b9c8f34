package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/shim"
)

const shimUsage = `Replaces the copilot executable for programs that use an official SDK. The command accepts the
CLI's command line, speaks the CLI's JSON-RPC, and forwards it over gRPC to a bridge: the bridge at
--target, or a private one that it starts. Give the SDK the path of this program as the CLI's path,
with "shim" as the first argument, or name this program "copilot".

Flags are read from the command line, then the environment, then the file of --config, which has
lines of the form "target = dns:///bridge.example:443". Flags that are not listed here are passed
to the CLI of a private bridge.`

// shimOptions are the flags of the command: the CLI's own, then ours.
type shimOptions struct {
	stdio, headless, noUpdate, noLogin, remote, version bool
	port                                                int
	host, cliLogLevel, tokenEnv                         string
	idleTimeout                                         int

	target, token, ca, cert, key, serverName string
	tls, plain                               bool
	config, cli, countsFile, logFile         string
	env                                      list
	counts                                   bool
	// cliArgs are what the command line has for the CLI itself.
	cliArgs []string
	grace   time.Duration
}

func (o *shimOptions) register(f *flags) {
	f.BoolVar(&o.stdio, "stdio", false, "serve one connection on stdin and stdout, instead of a TCP port")
	f.IntVar(&o.port, "port", 0, "TCP `port` to listen on; 0 is any")
	f.StringVar(&o.host, "host", "127.0.0.1", "`address` to listen on")
	f.StringVar(&o.cliLogLevel, "log-level", "", "`level` of the CLI's own log files")
	f.StringVar(&o.tokenEnv, "auth-token-env", "", "`name` of the environment variable with the GitHub token")
	f.BoolVar(&o.noLogin, "no-auto-login", false, "do not let the CLI use its stored login")
	f.IntVar(&o.idleTimeout, "session-idle-timeout", 0,
		"`seconds`; accepted and ignored: the bridge unloads and loads idle sessions itself")
	f.BoolVar(&o.headless, "headless", false, "accepted; has no effect, because it is always on")
	f.BoolVar(&o.noUpdate, "no-auto-update", false, "accepted; has no effect, because it is always on")
	f.BoolVar(&o.remote, "remote", false, "accepted and ignored")
	f.BoolVar(&o.version, "version", false, "print the version of the CLI, in the CLI's format, and exit")

	f.StringVar(&o.target, "target", "",
		"`address` of the bridge: unix:PATH, HOST:PORT, or any other gRPC target (default: a private bridge)")
	f.StringVar(&o.token, "token", "", "bearer `token` for the bridge")
	f.BoolVar(&o.tls, "tls", false, "use TLS to the bridge (default: unless the bridge is on this machine)")
	f.BoolVar(&o.plain, "plaintext", false, "do not use TLS to the bridge")
	f.StringVar(&o.ca, "tls-ca", "", "PEM `file` of the CAs to trust (default: the system's)")
	f.StringVar(&o.cert, "tls-cert", "", "PEM `file` of the client certificate")
	f.StringVar(&o.key, "tls-key", "", "PEM `file` of the key of tls-cert")
	f.StringVar(&o.serverName, "tls-server-name", "", "server `name` to verify in the bridge's certificate")
	f.StringVar(&o.config, "config", "", "`file` with flags")
	f.StringVar(&o.cli, "cli", "", "`path` of the real copilot executable, for a private bridge")
	f.Var(&o.env, "pass-env", "`names` of environment variables to pass to the runtime of a remote bridge; "+
		"repeatable, or with commas")
	f.DurationVar(&o.grace, "grace", shim.DefaultGrace,
		"time for which the connection to the bridge may be down before calls of the program fail")
	f.BoolVar(&o.counts, "counts", false, "print to stderr, at exit, which methods used the typed API")
	f.StringVar(&o.countsFile, "counts-file", "", "`file` to write these counts to, as JSON")
	f.StringVar(&o.logFile, "log-file", "", "`file` for the log of the shim (default: stderr, warnings only)")
}

// shimBackoff is how a bridge that is gone is tried again: its program waits.
var shimBackoff = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
	MaxDelay: 2 * time.Second}

// shimMarker keeps a shim from being started as the CLI behind a shim.
const shimMarker = "COPILOT_GRPC_INSIDE_SHIM"

func newShim(o *shimOptions) *flags {
	f := newFlags("shim", "[flags]", shimUsage)
	o.register(f)
	return f
}

func shimCommand(ctx context.Context, p *program, args []string) (err error) {
	var o shimOptions
	f := newShim(&o)
	args, o.cliArgs = f.foreign(args)
	if err := f.parseOnly(p, args); err != nil {
		return err
	}
	if err := f.fromFile(p, o.config); err != nil {
		return err
	}
	if o.version {
		return o.printVersion(ctx, p)
	}
	if p.getenv(shimMarker) != "" {
		return errors.New("this is the shim, started as the CLI behind a shim: set COPILOT_GRPC_CLI to the real " +
			"copilot executable")
	}
	logger, closeLog, err := o.logger(p.stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	outliveReaders()
	o.useOneProcessor(p)
	bridge, err := o.bridge(ctx, p, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bridge.close()) }()
	config := shim.Config{
		Bridge: bridge.client.Conn(), Token: p.getenv("COPILOT_CONNECTION_TOKEN"), Profile: bridge.profile, Grace: o.grace,
		Logger: logger, Hosts: bridge.hosts,
	}
	if bridge.own {
		config.Shutdown = func() { _ = bridge.close() } // its error is reported at the end
	}
	s, err := shim.New(config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.report(p.stderr, s)) }()
	if o.stdio {
		return s.Serve(ctx, newStdio(p.stdin, p.stdout.w), true)
	}
	return o.listen(ctx, p, s)
}

// useOneProcessor makes a shim that only carries one program's messages run its goroutines on one processor. They
// follow each other and seldom run at the same time; on several processors each hand-over wakes another thread.
// GOMAXPROCS in the environment has priority.
func (o *shimOptions) useOneProcessor(p *program) {
	if o.stdio && o.target != "" && p.getenv("GOMAXPROCS") == "" {
		p.processors(1)
	}
}

// listen serves connections on a TCP port, of which it tells as the CLI does.
func (o *shimOptions) listen(ctx context.Context, p *program, s *shim.Server) error {
	l, err := net.Listen("tcp", net.JoinHostPort(o.host, strconv.Itoa(o.port)))
	if err != nil {
		fmt.Fprintf(p.stderr, "Failed to start server: Error: %v\n", err)
		return errReported
	}
	fmt.Fprintf(p.stdout, "CLI server listening on port %d\n", l.Addr().(*net.TCPAddr).Port)
	if p.getenv("COPILOT_CONNECTION_TOKEN") == "" {
		fmt.Fprintln(p.stdout, "Warning: No COPILOT_CONNECTION_TOKEN was set, so connections will be accepted from "+
			"any client")
	}
	return s.Listen(ctx, l)
}

func (o *shimOptions) report(w io.Writer, s *shim.Server) error {
	counts := s.Counts()
	if o.counts {
		counts.Print(w)
	}
	if o.countsFile == "" {
		return nil
	}
	return counts.WriteFile(o.countsFile)
}

// logger is the shim's own log. The CLI says nothing on stderr, so little is said there.
func (o *shimOptions) logger(stderr io.Writer) (*slog.Logger, func(), error) {
	if o.logFile == "" {
		return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), func() {}, nil
	}
	file, err := os.OpenFile(o.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return slog.New(slog.NewTextHandler(file,
		&slog.HandlerOptions{Level: slog.LevelDebug})), func() { _ = file.Close() }, nil
}

// dial connects to a bridge elsewhere.
func (o *shimOptions) dial(ctx context.Context, p *program) (*copilot.Client, error) {
	if err := checkTarget(o.target); err != nil {
		return nil, err
	}
	to, options := endpoint{Target: o.target}, []copilot.Option{}
	if o.plain {
		options = append(options, copilot.WithInsecure())
	} else {
		to.TLSCA, to.TLSCert, to.TLSKey, to.TLSServerName = o.ca, o.cert, o.key, o.serverName
	}
	if o.tls && !o.plain {
		options = append(options, copilot.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	options = append(options, to.options(p))
	if o.token != "" {
		options = append(options, copilot.WithToken(o.token))
	}
	return dialBridge(ctx, o.target, append(options,
		copilot.WithGRPC(grpc.WithConnectParams(grpc.ConnectParams{Backoff: shimBackoff, MinConnectTimeout: 5 * time.Second})))...)
}

// dialBridge returns a client that has not called the bridge yet. The shim itself repeats calls.
func dialBridge(ctx context.Context, target string, options ...copilot.Option) (*copilot.Client, error) {
	return copilot.Dial(ctx, target, append(options, copilot.WithoutCheck(),
		copilot.WithGRPC(grpc.WithUserAgent("copilot-grpc-shim"), grpc.WithDefaultServiceConfig("{}")))...)
}
