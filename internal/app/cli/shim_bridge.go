package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/shim"
)

type shimBridge struct {
	client *copilot.Client
	// profile is what the runtimes are to be like, as far as the bridge allows it.
	profile *bridgev1.RuntimeProfile
	// close ends the connection, and the bridge if it is the shim's own; it may be called again.
	close func() error
	own   bool
	hosts *shim.Hosts // of a bridge of the shim's own
}

// bridge connects to the bridge of --target, or starts one for this shim alone.
func (o *shimOptions) bridge(ctx context.Context, p *program, logger *slog.Logger) (*shimBridge, error) {
	if o.target == "" {
		return o.private(ctx, p, logger)
	}
	if len(o.cliArgs) > 0 {
		return nil, usageError{fmt.Errorf("%q is an argument of the CLI, which the bridge of --target starts itself",
			o.cliArgs[0])}
	}
	client, err := o.dial(ctx, p)
	if err != nil {
		return nil, err
	}
	info, err := o.reach(ctx, client, logger)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	profile := o.profile(ctx, p, info.GetCapabilities().GetRuntimeProfileFields(), logger)
	return &shimBridge{client: client, profile: profile, close: client.Close}, nil
}

const (
	// privatePrompt and privateRequest are the limits of a private bridge: the CLI has none.
	privatePrompt  = 64 << 20
	privateRequest = 256 << 20
	// privateIdle is when a private bridge unloads idle sessions: the CLI does not.
	privateIdle = 365 * 24 * time.Hour
	// privateDrain is how long its end waits: no participant is attached then.
	privateDrain = time.Second
)

// privateConfig is that of a bridge for one shim: its CLI is as the shim's caller wants it.
func (o *shimOptions) privateConfig(p *program, folder *privateFolder) app.Config {
	c := app.DefaultConfig()
	c.Version = p.version
	c.Listen = []string{"unix:" + folder.socket()}
	c.CLIPath = o.realCLI(p)
	c.Home = p.getenv("COPILOT_HOME")
	c.GitHubToken = o.githubToken(p)
	c.NoLogin, c.CLILogLevel, c.CLIArgs = o.noLogin, o.cliLevel(), o.cliArgs
	c.Env = map[string]string{shimMarker: "1"}
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); name != "" && !runtime.Reserved(name) {
			c.Env[name] = value
		}
	}
	c.ProfileFields = tenancy.ProfileFields()
	c.Raw, c.Internal, c.SingleClient = true, true, true
	c.MaxPromptBytes, c.MaxRequestBytes = privatePrompt, privateRequest
	c.IdleUnload, c.DrainGrace = privateIdle, privateDrain
	return c
}

// realCLI is the executable that --cli names; with "" the bridge looks for one. The SDK's path of the CLI may be this
// program.
func (o *shimOptions) realCLI(p *program) string {
	if o.cli != "" {
		return o.cli
	}
	named := p.getenv(clibin.PathEnv)
	if named == "" {
		return ""
	}
	me, err := os.Executable()
	if err != nil {
		return ""
	}
	if a, err := os.Stat(named); err == nil {
		if b, err := os.Stat(me); err == nil && os.SameFile(a, b) {
			_ = os.Unsetenv(clibin.PathEnv)
		}
	}
	return ""
}

// private starts a bridge in this process, on a private socket, and its CLI.
func (o *shimOptions) private(ctx context.Context, p *program, logger *slog.Logger) (_ *shimBridge, err error) {
	folder, err := newPrivateFolder()
	if err != nil {
		return nil, err
	}
	if o.logFile == "" { // the program gets errors, and the CLI writes no more either
		logger = slog.New(slog.DiscardHandler)
	}
	config := o.privateConfig(p, folder)
	cli := &starts{Runner: config.NewRunner(logger, nil)}
	hosts := shim.NewHosts()
	a, err := app.New(ctx, config, app.WithLogger(logger), app.WithRunner(cli), app.WithHostCallbacks(hosts))
	if err != nil {
		return nil, errors.Join(err, folder.remove())
	}
	// It outlives ctx: the shim's connections leave first.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.run(running, a) }()
	// A process that was suspended finds its own bridge as it was: no keepalive.
	client, err := dialBridge(ctx, a.Target(), copilot.WithoutToken(),
		copilot.WithGRPC(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64})))
	b := &shimBridge{client: client, hosts: hosts, close: sync.OnceValue(func() error {
		if client != nil {
			_ = client.Close()
		}
		stop()
		return errors.Join(<-ended, folder.remove())
	})}
	if err == nil {
		err = startCLI(ctx, b, cli, p.stderr)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.own = true
	return b, nil
}

// githubToken is the token in the variable that --auth-token-env names.
func (o *shimOptions) githubToken(p *program) string {
	if o.tokenEnv == "" {
		return ""
	}
	return p.getenv(o.tokenEnv)
}

// cliLevel is the CLI's log level; programs of this module call one of them otherwise.
func (o *shimOptions) cliLevel() string {
	if o.cliLogLevel == "warn" {
		return "warning"
	}
	return o.cliLogLevel
}

// profile is the program's runtime profile, as far as the bridge lets callers set one: the fields that are allowed. The
// rest is logged. It is nil if nothing is set.
func (o *shimOptions) profile(ctx context.Context, p *program, allowed []string, logger *slog.Logger) *bridgev1.RuntimeProfile {
	want := &bridgev1.RuntimeProfile{Home: p.getenv("COPILOT_HOME"), GithubToken: o.githubToken(p),
		LogLevel: o.cliLevel()}
	if o.noLogin {
		want.UseLogin = new(bool)
	}
	if strings.HasPrefix(o.target, "unix:") { // the same machine
		if dir, err := os.Getwd(); err == nil {
			want.WorkingDirectory = dir
		}
	}
	for _, name := range o.env {
		if want.Env == nil {
			want.Env = map[string]string{}
		}
		want.Env[name] = p.getenv(name)
	}
	if proto.Size(want) == 0 {
		return nil
	}
	m := want.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		if m.Has(field) && !slices.Contains(allowed, string(field.Name())) {
			level := slog.LevelWarn
			if field.Name() == "working_directory" {
				level = slog.LevelInfo // every program has one, and few have chosen it
			}
			logger.Log(ctx, level, "the bridge does not let callers set this field; it uses its own value",
				slog.String("field", string(field.Name())))
			m.Clear(field)
		}
	}
	return want
}

// firstContact is how long the shim tries to reach its bridge at the start: the program waits for a reply, and the
// address may be wrong. The connection of a bridge that was reached once may be broken for longer (--grace).
const firstContact = 5 * time.Second

// reach asks the bridge about itself, again and again while it cannot be reached, for firstContact or --grace if that
// is shorter. Why it cannot be reached is logged at once.
func (o *shimOptions) reach(
	ctx context.Context, client *copilot.Client, logger *slog.Logger,
) (*bridgev1.GetServerInfoResponse, error) {
	var once sync.Once
	warn := func(err error, _ time.Duration) {
		once.Do(func() {
			logger.Warn("the bridge cannot be reached", slog.String("target", o.target), slog.Any("error", err))
		})
	}
	info, err := backoff.Retry(ctx, func() (*bridgev1.GetServerInfoResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, firstContact) // a peer may accept the connection and say nothing
		defer cancel()
		info, err := client.Runtimes().GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
		if err != nil && status.Code(err) != codes.Unavailable {
			err = backoff.Permanent(err)
		}
		return info, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(shimBackoff.BaseDelay)),
		backoff.WithMaxElapsedTime(max(min(o.grace, firstContact), 1)), backoff.WithNotify(warn)) // 0 would be no limit
	if err != nil {
		return nil, fmt.Errorf("asking the bridge %q: %w", o.target, err)
	}
	return info, nil
}

// headless is the flag by which an SDK starts the CLI as a server.
const headless = "--headless"

// foreign takes the flags that f does not know from a command line, with their values, which
// are all that does not look like a flag. It also takes what the CLI is to refuse in its own
// words: bad values of its own flags, and words.
func (f *flags) foreign(args []string) (ours, foreign []string) {
	for i := 0; i < len(args); i++ {
		name, value, valued := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		fl := f.Lookup(name)
		if !valued && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case !strings.HasPrefix(args[i], "-") && slices.Contains(args, headless):
			foreign = append(foreign, args[i])
		case fl != nil && !acceptable(name, value):
			foreign = append(foreign, args[i])
			if !valued && i+1 < len(args) {
				i++
				foreign = append(foreign, args[i])
			}
		case !strings.HasPrefix(args[i], "-") || name == "" || name == "h" || name == "help":
			return append(ours, args[i:]...), foreign // ends our own flags
		case fl == nil:
			foreign = append(foreign, args[i])
			for ; i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"); i++ {
				foreign = append(foreign, args[i+1])
			}
		default:
			ours = append(ours, args[i])
			if !valued && i+1 < len(args) && fl.NoOptDefVal == "" {
				i++
				ours = append(ours, args[i])
			}
		}
	}
	return ours, foreign
}

// acceptable reports whether the CLI would take a value of one of its own flags.
func acceptable(name, value string) bool {
	switch name {
	case "port", "session-idle-timeout":
		_, err := strconv.Atoi(value)
		return err == nil
	case "log-level":
		return value == "warn" || slices.Contains(runtime.LogLevels(), value)
	}
	return true
}

// fromFile sets the flags that neither the command line nor the environment has set from
// lines of the form "name = value".
func (f *flags) fromFile(p *program, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if fl := f.Lookup(name); !ok || fl == nil {
			return usageError{fmt.Errorf("%s:%d: not of the form FLAG = VALUE", path, n)}
		}
		if f.isSet(p, name) {
			continue
		}
		if err := f.Set(name, strings.TrimSpace(value)); err != nil {
			return usageError{fmt.Errorf("%s:%d: %w", path, n, err)}
		}
	}
	return lines.Err()
}
