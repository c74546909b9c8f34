package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// envPrefix begins the environment variable of each flag.
const envPrefix = "COPILOT_GRPC_"

// flags are a command's flags, each of which can also be set in the environment.
type flags struct {
	*flag.FlagSet
	usage string
	// given are those of the command line.
	given map[string]bool
}

// isSet reports whether the command line or the environment sets a flag.
func (f *flags) isSet(p *program, name string) bool {
	return f.given[name] || p.getenv(variable(name)) != ""
}

// newFlags returns an empty set for the command of that name.
func newFlags(name, args, usage string) *flags {
	f := &flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.usage = fmt.Sprintf("Usage: copilot-grpc %s %s\n\n%s\n", name, args, usage)
	f.SetOutput(io.Discard)
	f.FlagSet.Usage = func() {}
	return f
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// parse reads the command line, and the environment for what that does not set.
func (f *flags) parse(p *program, args []string) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.print(p.stdout)
		return err
	}
	if err != nil {
		return usageError{err}
	}
	given := map[string]bool{}
	f.Visit(func(set *flag.Flag) { given[set.Name] = true })
	f.given = given
	f.VisitAll(func(fl *flag.Flag) {
		value := p.getenv(variable(fl.Name))
		if given[fl.Name] || value == "" || err != nil {
			return
		}
		if bad := f.Set(fl.Name, value); bad != nil {
			err = usageError{fmt.Errorf("invalid value %q of %s: %w", value, variable(fl.Name), bad)}
		}
	})
	return err
}

// parseOnly is parse for commands that take nothing but flags.
func (f *flags) parseOnly(p *program, args []string) error {
	if err := f.parse(p, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", f.Arg(0))}
	}
	return nil
}

// print prints the table of the flags.
func (f *flags) print(w io.Writer) {
	fmt.Fprintln(w, f.usage)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FLAG\tENVIRONMENT\tDEFAULT\tMEANING")
	f.VisitAll(func(fl *flag.Flag) {
		value, meaning := flag.UnquoteUsage(fl)
		if value != "" {
			value = " " + value
		}
		fmt.Fprintf(table, "--%s%s\t%s\t%s\t%s\n", fl.Name, value, variable(fl.Name), fl.DefValue, meaning)
	})
	table.Flush()
}

// list is a flag that may be given several times, or once with commas.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			*l = append(*l, one)
		}
	}
	return nil
}

// variables is a flag of the form NAME=VALUE that may be given several times.
type variables map[string]string

// String implements flag.Value. The values may be secrets.
func (v variables) String() string { return strings.Join(slices.Sorted(maps.Keys(v)), ",") }

// Set implements flag.Value.
func (v variables) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("not of the form NAME=VALUE")
	}
	v[name] = value
	return nil
}

// cliFlags adds the flags that say how to come by the CLI.
func cliFlags(f *flags, c *app.Config) {
	c.Env = map[string]string{}
	f.StringVar(&c.CLIPath, "cli", "", "`path` of the copilot executable; also COPILOT_CLI_PATH (default: looked for on PATH, else installed)")
	f.BoolVar(&c.NoInstall, "no-install", false, "fail when the CLI is not found, in place of installing a private copy")
	f.StringVar(&c.Dial, "dial", "", "`host:port` of a CLI server that runs already, to use in place of starting one")
	f.StringVar(&c.DialToken, "dial-token", "", "connection `token` of that server")
	f.StringVar(&c.Home, "home", "", "state `directory` of the CLI, COPILOT_HOME (default: the user's own)")
	f.StringVar(&c.UserHome, "user-home", "", "home `directory` of the CLI and the shells it starts (default: the user's own)")
	f.StringVar(&c.WorkDir, "work-dir", "", "working `directory` of sessions that name none (default: the current one)")
	f.Var(variables(c.Env), "env", "`NAME=VALUE` to add to the CLI's environment, which its shells see; repeatable")
	f.StringVar(&c.GitHubToken, "github-token", "", "GitHub `token` of sessions that bring none; the CLI's shells see it")
	f.BoolVar(&c.ExtensionLaunch, "extension-launch", false,
		"callers that handle EXTENSION_LAUNCH say how extensions are started, in place of the CLI")
	f.BoolVar(&c.MultiConnection, "multi-connection", false,
		"let the CLI take several connections, on a loopback port with a token: participants with canvases need one each")
	f.BoolVar(&c.NoLogin, "no-login", false, "do not let the CLI use the login it has stored on this machine")
	f.DurationVar(&c.MaxRuntimeAge, "max-runtime-age", c.MaxRuntimeAge, "replace a CLI process that is older, when nothing goes on in its sessions; 0 never")
	f.Int64Var(&c.MaxRuntimeRSS, "max-runtime-rss", c.MaxRuntimeRSS, "replace a CLI process that has more memory, in `bytes`; 0 never")
	f.DurationVar(&c.MaxRuntimeLatency, "max-runtime-latency", c.MaxRuntimeLatency, "replace a CLI process that takes longer to answer a ping; 0 never")
	f.Int64Var(&c.KillRSS, "kill-rss", c.KillRSS, "end a CLI process at once that has more memory, in `bytes`; 0 never")
	f.DurationVar(&c.PingInterval, "ping-interval", c.PingInterval, "how often a CLI process is asked for a sign of life")
	f.DurationVar(&c.PingTimeout, "ping-timeout", c.PingTimeout, "how long it may be silent then before it is ended and replaced")
	f.StringVar(&c.CLILogLevel, "cli-log-level", "", "`level` of the CLI's own log files: none, error, warning, info, debug, all")
}

// serverFlags adds the flags that say how to serve.
func serverFlags(f *flags, c *app.Config) {
	f.Var((*list)(&c.Listen), "listen", "`address` to listen on, unix:PATH or HOST:PORT, which takes TLS and a policy unless it is loopback; repeatable, or with commas (default: "+defaultSocket()+")")
	f.StringVar(&c.TLSCert, "tls-cert", "", "`file` with the certificate of TCP addresses, in PEM; read anew when it changes")
	f.StringVar(&c.TLSKey, "tls-key", "", "`file` with its key, in PEM")
	f.StringVar(&c.TLSClientCA, "tls-client-ca", "", "`file` with the CAs of client certificates, in PEM")
	f.StringVar(&c.Policy, "policy", "", "`file` that says who may do what (docs/security.md); read anew when it changes")
	f.StringVar(&c.Token, "token", "", "bearer `token` of callers over TCP, at least 16 characters (default: a random one, printed)")
	f.StringVar(&c.OfflineModel, "offline-model", "", "`script` that plays the model: a path, or \""+app.OfflineDefault+"\" for the built-in one")
	c.Homes = map[string]string{}
	f.Var((*list)(&c.ProfileFields), "profile-fields", "`fields` of RuntimeProfile that callers may set; repeatable, or with commas: "+
		strings.Join(bridge.ProfileFields(), ", ")+" (default: "+strings.Join(bridge.DefaultProfileFields, ",")+")")
	f.Var(variables(c.Homes), "profile-home", "`NAME=DIRECTORY` of a state directory that callers may choose by name; repeatable")
	f.IntVar(&c.MaxSessionsPerRuntime, "max-sessions-per-runtime", c.MaxSessionsPerRuntime, "`sessions` that a CLI process may have loaded before another is started")
	f.IntVar(&c.MaxRuntimes, "max-runtimes", c.MaxRuntimes, "most CLI `processes`")
	f.DurationVar(&c.RuntimeIdle, "runtime-idle", c.RuntimeIdle, "how long a CLI process but the first may have no session before it is ended")
	c.Providers = map[string]string{}
	f.Var(variables(c.Providers), "provider", "`NAME=FILE` of a model provider that callers may name: a JSON object, with its secrets; repeatable")
	f.BoolVar(&c.Raw, "raw", false, "switch RawService on, which passes any call on to the CLI")
	f.BoolVar(&c.Internal, "internal", false, "serve the methods of copilot.cli.v1 too that the CLI marks as internal")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "`folder` in which sessions outlive the server; \"\" keeps nothing")
	f.StringVar(&c.Fsync, "fsync", c.Fsync, "`policy` for crashes of the machine: always, interval, never")
	f.DurationVar(&c.FsyncInterval, "fsync-interval", c.FsyncInterval, "how often the policy \"interval\" syncs")
	f.Int64Var(&c.JournalBytes, "journal-bytes", 0, "most that is kept of each session's events on disk, in `bytes`; 0 is everything")
	f.DurationVar(&c.JournalAge, "journal-age", 0, "how long events are kept on disk; 0 is for good")
	f.IntVar(&c.MaxMemoryBytes, "max-memory-bytes", c.MaxMemoryBytes, "most that is kept of all sessions' events in memory, in `bytes`")
	f.IntVar(&c.MaxPromptBytes, "max-prompt-bytes", c.MaxPromptBytes, "largest text of a prompt, in `bytes`")
	f.IntVar(&c.MaxAttachmentBytes, "max-attachment-bytes", c.MaxAttachmentBytes, "largest attachment sent in pieces, in `bytes`")
	f.IntVar(&c.MaxRequestBytes, "max-request-bytes", c.MaxRequestBytes, "largest message of a caller, in `bytes`")
	f.IntVar(&c.MaxEphemeralBytes, "max-ephemeral-bytes", c.MaxEphemeralBytes, "most that is kept of each session's ephemeral events, in `bytes`")
	f.DurationVar(&c.CallbackTimeout, "callback-timeout", c.CallbackTimeout, "how long tool calls, permissions and the like wait for an answer")
	f.DurationVar(&c.DrainGrace, "drain-grace", c.DrainGrace, "how long streams and turns may go on once the server is asked to end")
	f.DurationVar(&c.StallTimeout, "stall-timeout", c.StallTimeout, "how long nothing may happen in a turn, with no tool or callback outstanding, before it ends as stalled")
	f.DurationVar(&c.ModelCallTimeout, "model-call-timeout", c.ModelCallTimeout, "the same while the turn waits for a model")
	f.DurationVar(&c.IdleUnload, "idle-unload", c.IdleUnload, "how long nothing goes on in a session before it is unloaded; whatever needs it loads it again")
}

// logFlags adds the flags of our own log.
func logFlags(f *flags, c *app.Config) {
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`level` of the log: debug, info, warn, error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: text, json")
	f.BoolVar(&c.LogRequests, "log-requests", false, "log requests too, without secrets, but with prompts")
}

// defaultSocket is the default socket for people.
func defaultSocket() string {
	path, err := app.DefaultSocket()
	if err != nil {
		return "none here"
	}
	return "unix:" + path
}

// isTerminal tells whether a person reads w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
