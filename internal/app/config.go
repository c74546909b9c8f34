package app

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/selection"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/login"
)

// OfflineDefault is the Config.OfflineModel that stands for the built-in script.
const OfflineDefault = "default"

// DefaultDrainGrace is how long streams may go on once the server drains.
const DefaultDrainGrace = 5 * time.Second

// DefaultWebListen is the default address of the listener for browsers.
const DefaultWebListen = "127.0.0.1:7780"

// DefaultWarmRuntimes is the number of CLI processes of the server's own profile that have room for a session.
const DefaultWarmRuntimes = 1

// Defaults of the age of connections over TCP, and of the time that their calls have then.
const (
	DefaultMaxConnectionAge   = 2 * time.Hour
	DefaultConnectionAgeGrace = 10 * time.Minute
)

// Config says what to run. The zero value listens on the default socket, finds the CLI
// and lets it use the home directory and the login of the user.
type Config struct {
	// Version is the version that the program reports to callers.
	Version string

	// Listen are the addresses to listen on: "unix:PATH" or "HOST:PORT", which takes TLS and
	// a policy unless it is on the loopback interface. Default: DefaultSocket.
	Listen []string
	// XDS lets a control plane configure the TCP addresses of Listen (docs/mesh.md). It takes TLS and a policy, and a
	// program with the build tag xds.
	XDS bool
	// Token is what callers over TCP have to show. Default: a random one if there is a
	// TCP address, which App.Token tells.
	Token string
	// Web adds a listener for browsers and curl at WebListen, a "HOST:PORT" like those of Listen; the default is
	// DefaultWebListen. WebListen alone adds it too. WebOrigins are the origins of web pages of other servers that may
	// call there.
	Web        bool
	WebListen  string
	WebOrigins []string
	// WebURL is the URL by which browsers reach that listener, for links; by default it follows from the address.
	// WebLoginTime is how long a login of a browser lasts; the default is login.DefaultLifetime.
	WebURL       string
	WebLoginTime time.Duration

	// TLSCert, TLSKey and TLSClientCA are files in PEM: the certificate and key of TCP
	// addresses, and the CAs of client certificates. They are read anew when they change.
	// Default: TCP addresses speak no TLS.
	TLSCert     string
	TLSKey      string
	TLSClientCA string
	// TLSClientCRL are the revocation lists of client certificates.
	TLSClientCRL string
	// Policy is the policy file (docs/security.md). It is reloaded when it changes. By default callers on a socket or
	// with Token are the host's owner.
	Policy string

	// CLIPath is the CLI's executable. Default: it is looked for, and installed if it
	// is not found.
	CLIPath string
	// InstallCLI uses the private copy of the pinned version, which is installed if it is missing, although another
	// CLI is on PATH or in COPILOT_CLI_PATH.
	InstallCLI bool
	// NoInstall makes it an error that the CLI is not found.
	NoInstall bool
	// TestedCLIOnly refuses a CLI that is newer than every version that was tested with this server.
	TestedCLIOnly bool
	// VerifyCLI selects the executables that must be in the table of published ones (clibin.Verify). The default is
	// found.
	VerifyCLI string
	// Dial is the HOST:PORT of a CLI server that runs already, to be used in place of
	// processes of our own; DialToken is its connection token.
	Dial      string
	DialToken string
	// Home is the CLI's state directory (COPILOT_HOME), UserHome the home directory
	// (HOME) of the CLI and of the shells it starts. Default: the user's own.
	Home     string
	UserHome string
	// WorkDir is the working directory of sessions that name none. Default: our own.
	WorkDir string
	// Env is added to the CLI's environment, which otherwise has little of ours. The
	// shells of the CLI see it.
	Env map[string]string
	// GitHubToken is the token of all sessions that bring none. The shells of the CLI
	// see it too.
	GitHubToken string
	// NoLogin keeps the CLI from using the login that it has stored on this machine. An
	// offline model implies it.
	NoLogin bool
	// CLILogLevel is how much the CLI writes to its own log files. Default: its own.
	CLILogLevel string
	// CLIArgs are further arguments of the CLI, of a program that embeds the server, as the shim
	// does. Default: none.
	CLIArgs []string

	// ProfileFields are the members of RuntimeProfile that callers may set. Nil is
	// tenancy.DefaultProfileFields. Homes are state directories by the names that callers
	// may use for them.
	ProfileFields []string
	Homes         map[string]string
	// MaxSessionsPerRuntime bounds the loaded sessions of a CLI process, MaxRuntimes the processes. RuntimeIdle is
	// how long a process other than the first may have no session before it is ended. The defaults are those of
	// package placement.
	MaxSessionsPerRuntime int
	MaxRuntimes           int
	RuntimeIdle           time.Duration
	// WarmRuntimes is how many CLI processes of the server's own profile always have room for a session, once the CLI
	// has been started. DefaultConfig has DefaultWarmRuntimes.
	WarmRuntimes int
	// ExtensionLaunch has callers say how extensions are started, in place of the CLI.
	ExtensionLaunch bool
	// MultiConnection has the CLI take several connections: participants with canvases
	// get one each. It then listens on a loopback port, with a token, in place of stdio.
	MultiConnection bool

	// OfflineModel is the path of a script that plays the model, or OfflineDefault. ""
	// leaves sessions to real models.
	OfflineModel string
	// NodeLabels are the labels of this server, which sessions can require.
	NodeLabels map[string]string
	// Providers are files, by the names that callers may use (provider_ref): each is a model
	// provider as the CLI takes it, a JSON object with its secrets.
	Providers map[string]string
	// Raw switches RawService on, which passes any call on to the CLI.
	Raw bool
	// SingleClient says that the server is one program's own: if that asks for the CLI's own
	// behaviour, it may also call what changes a whole CLI process.
	SingleClient bool
	// Internal adds the methods to copilot.cli.v1 that the CLI marks as internal, for
	// which it promises nothing.
	Internal bool

	// DataDir is the folder of data that survives the process; "" stores nothing. Fsync selects when written data is
	// synced to survive a crash of the machine: always, interval or never; the default is interval, every
	// FsyncInterval. JournalBytes and JournalAge are the retention of each session's events; zero stores everything.
	// SealingKeys is the path of a file with keys that encrypt the credentials of sessions (package sealing), which are
	// then stored with the sessions; "" stores no credentials. SealingTTL is how long they can be used after the last
	// save of their session.
	SealingKeys   string
	SealingTTL    time.Duration
	DataDir       string
	Fsync         string
	FsyncInterval time.Duration
	JournalBytes  int64
	JournalAge    time.Duration
	// Cluster makes the server a replica of a cluster.
	Cluster Cluster
	// MaxMemoryBytes bounds the events of all sessions in memory. Default: that of package
	// journal.
	MaxMemoryBytes int

	// MaxPromptBytes bounds a prompt's text, MaxAttachmentBytes an attachment sent in pieces, MaxRequestBytes any
	// message from a caller, and MaxEphemeralBytes the stored ephemeral events of each session. The defaults are
	// those of packages bridge, server and journal.
	MaxPromptBytes     int
	MaxAttachmentBytes int
	MaxRequestBytes    int
	MaxEphemeralBytes  int
	// CallbackTimeout is how long callbacks wait for an answer, unless a session sets
	// its own. Default: that of package callback.
	CallbackTimeout time.Duration
	// DrainGrace is how long streams and turns may go on once the server drains. Default:
	// DefaultDrainGrace.
	DrainGrace time.Duration

	// StallTimeout is how long a turn may make no progress, ModelCallTimeout how long while it waits for a model.
	// IdleUnload is how long a session must be idle before it is unloaded. The defaults are those of packages turn
	// and fleet.
	StallTimeout     time.Duration
	ModelCallTimeout time.Duration
	IdleUnload       time.Duration
	// ConfinementGrace is how long a CLI process may go on when the policy has changed what
	// confines it. Default: that of package fleet.
	ConfinementGrace time.Duration

	// MaxConnections bounds connections over TCP. 0 is what follows from the limit of open files.
	MaxConnections int
	// MaxConnectionAge is how long a connection over TCP may live, and ConnectionAgeGrace how long
	// its calls may go on then. An age of 0 sets no limit; DefaultConfig has
	// DefaultMaxConnectionAge.
	MaxConnectionAge   time.Duration
	ConnectionAgeGrace time.Duration

	// MaxRuntimeAge and MaxRuntimeRSS (bytes) say when a CLI process is replaced, as soon as nothing goes on in it; KillRSS when it is ended at once. 0
	// sets no limit.
	MaxRuntimeAge time.Duration
	MaxRuntimeRSS int64
	KillRSS       int64
	// PingTimeout is the time limit of the reply to a ping of a CLI process; the default is that of package runtime.
	// PingInterval is the interval of pings; the default is half of it.
	PingInterval time.Duration
	PingTimeout  time.Duration

	// LaxPermissions starts the server although every user of the machine can change a file
	// or directory that it trusts; it warns in place of refusing.
	LaxPermissions bool

	// AdminListen is the address of the admin listener (docs/telemetry.md), "unix:PATH" or
	// "HOST:PORT"; "" is none. A TCP address takes AdminToken, at least 16 characters.
	// AdminWide allows an address that other machines reach.
	AdminListen string
	AdminToken  string
	AdminWide   bool
	// OTLP sends spans and figures by OTLP, as the environment (OTEL_*) says and as the
	// endpoint and the protocol say, which win. An endpoint switches it on.
	OTLP         bool
	OTLPEndpoint string
	OTLPProtocol string
	// MetricsByTenant are the tenants that metrics name; without any there are no metrics of tenants.
	MetricsByTenant []string
	// AuditLog is the file of the audit log, or AuditStderr; "" is none.
	AuditLog string

	// LogLevel is debug, info, warn or error, LogFormat text or json. Default: info,
	// text.
	LogLevel  string
	LogFormat string
	// LogRequests puts requests into the log, without what the contract marks as
	// secret.
	LogRequests bool
}

// DefaultConfig returns the zero value with its defaults filled in, as far as they are
// numbers and names.
func DefaultConfig() Config {
	c := Config{MaxConnectionAge: DefaultMaxConnectionAge, WarmRuntimes: DefaultWarmRuntimes}
	c.complete()
	return c
}

// Validate completes the configuration. Its error joins all that is wrong, each as a [KeyError].
func (c *Config) Validate() error {
	c.complete()
	faults := []error{
		c.checkSecurity(), c.checkObserving(), c.checkListen(), checkWeb(c), c.checkDistinct(), c.checkDial(), c.Cluster.check(c.Dial),
		wrong("node_label", selection.CheckLabels(c.NodeLabels, "node_label")), c.checkNumbers(), c.checkProfiles(),
		c.checkProfile(),
	}
	if c.Cluster.embedded() && c.DataDir == "" {
		faults = append(faults, wrongf("data_dir", "the embedded NATS server needs it for its data"))
	}
	if _, err := journal.ParseFsync(c.Fsync); err != nil {
		faults = append(faults, wrong("fsync", err))
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		faults = append(faults, wrong("log_level", err))
	}
	if !slices.Contains(logFormats, c.LogFormat) {
		faults = append(faults, wrongf("log_format", "%q is not one of %s", c.LogFormat, strings.Join(logFormats, ", ")))
	}
	return errors.Join(faults...)
}

// checkDial checks where the CLI comes from: a path, a private copy, or an address to dial.
func (c *Config) checkDial() error {
	if !clibin.Verify(c.VerifyCLI).Valid() {
		return wrongf("verify_cli", "%q is not one of found, all, none", c.VerifyCLI)
	}
	if c.InstallCLI && c.CLIPath != "" {
		return wrongf("install_cli", "the private copy and a CLI given by path (cli) exclude each other")
	}
	if c.Dial == "" {
		if c.DialToken != "" {
			return wrongf("dial_token", "a token needs an address to dial (dial)")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Dial); err != nil {
		return wrongf("dial", "%q is not HOST:PORT: %w", c.Dial, err)
	}
	if c.CLIPath != "" || c.InstallCLI {
		return wrongf("dial", "a CLI server to dial and a CLI to start (cli, install_cli) exclude each other")
	}
	return nil
}

// checkProfile looks at what the CLI processes are to be like.
func (c *Config) checkProfile() error {
	profile, err := c.profile()
	if err != nil {
		return err
	}
	err = profile.Validate()
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Field == "log_level" {
		return wrong("cli_log_level", err)
	}
	return wrong("env", err) // directories were made absolute
}

func (c *Config) complete() {
	c.Version = cmp.Or(c.Version, "dev")
	c.DrainGrace = cmp.Or(c.DrainGrace, DefaultDrainGrace)
	c.ConnectionAgeGrace = cmp.Or(c.ConnectionAgeGrace, DefaultConnectionAgeGrace)
	c.MaxPromptBytes = cmp.Or(c.MaxPromptBytes, bridge.DefaultMaxPromptBytes)
	c.MaxAttachmentBytes = cmp.Or(c.MaxAttachmentBytes, bridge.DefaultMaxAttachmentBytes)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, server.DefaultMaxRecvBytes)
	c.MaxEphemeralBytes = cmp.Or(c.MaxEphemeralBytes, journal.DefaultMaxEphemeralBytes)
	c.MaxMemoryBytes = cmp.Or(c.MaxMemoryBytes, journal.DefaultMaxMemoryBytes)
	c.Fsync = cmp.Or(c.Fsync, string(journal.FsyncInterval))
	c.FsyncInterval = cmp.Or(c.FsyncInterval, journal.DefaultFsyncInterval)
	c.SealingTTL = cmp.Or(c.SealingTTL, DefaultSealingTTL)
	c.Cluster.Lease = cmp.Or(c.Cluster.Lease, cluster.DefaultTTL)
	c.CallbackTimeout = cmp.Or(c.CallbackTimeout, callback.DefaultTimeout)
	c.MaxSessionsPerRuntime = cmp.Or(c.MaxSessionsPerRuntime, placement.DefaultMaxSessions)
	c.MaxRuntimes = cmp.Or(c.MaxRuntimes, placement.DefaultMaxRuntimes)
	c.RuntimeIdle = cmp.Or(c.RuntimeIdle, placement.DefaultIdle)
	c.StallTimeout = cmp.Or(c.StallTimeout, turn.DefaultStall)
	c.ModelCallTimeout = cmp.Or(c.ModelCallTimeout, turn.DefaultModelCall)
	c.IdleUnload = cmp.Or(c.IdleUnload, fleet.DefaultIdleUnload)
	c.ConfinementGrace = cmp.Or(c.ConfinementGrace, fleet.DefaultConfinementGrace)
	c.PingTimeout = cmp.Or(c.PingTimeout, runtime.DefaultPingTimeout)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	c.WebLoginTime = cmp.Or(c.WebLoginTime, login.DefaultLifetime)
	c.VerifyCLI = cmp.Or(c.VerifyCLI, string(clibin.VerifyFound))
	c.LogFormat = cmp.Or(c.LogFormat, formatText)
}

// checkListen looks at the form of the addresses, and makes paths absolute: callers may
// have another working directory than we.
func (c *Config) checkListen() error {
	if len(c.Listen) == 0 {
		path, err := DefaultSocket()
		if err != nil {
			return wrongf("listen", "no default socket; set an address to listen on: %w", err)
		}
		c.Listen = []string{unixPrefix + path}
	}
	c.Listen = slices.Clone(c.Listen)
	for i, address := range c.Listen {
		if strings.HasPrefix(address, "/") {
			return wrongf("listen", "address %q: write a socket as %q", address, unixPrefix+address)
		}
		if err := server.CheckAddress(address, c.wide()); err != nil {
			return wrong("listen", err)
		}
		if path, ok := strings.CutPrefix(address, unixPrefix); ok {
			absolute, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			c.Listen[i] = unixPrefix + absolute
		}
	}
	return nil
}

func (c *Config) checkNumbers() error {
	var faults []error
	for _, s := range c.Table().All() {
		if negative(s.Value) {
			faults = append(faults, wrongf(s.Key, "it must not be negative"))
		}
	}
	if c.MaxPromptBytes > c.MaxRequestBytes {
		faults = append(faults, wrongf("max_prompt_bytes", "a prompt of %d bytes does not fit into a request of %d "+
			"(max_request_bytes)", c.MaxPromptBytes, c.MaxRequestBytes))
	}
	return errors.Join(faults...)
}

func negative(value any) bool {
	switch n := value.(type) {
	case *int:
		return *n < 0
	case *int64:
		return *n < 0
	case *float64:
		return *n < 0
	case *time.Duration:
		return *n < 0
	}
	return false
}

// checkProfiles looks at what callers may say of runtimes.
func (c *Config) checkProfiles() error {
	for _, field := range c.ProfileFields {
		if !slices.Contains(tenancy.ProfileFields(), field) {
			return wrongf("profile_fields", "%q is not one of %s", field, strings.Join(tenancy.ProfileFields(), ", "))
		}
	}
	for name, dir := range c.Homes {
		if !filepath.IsAbs(dir) {
			return wrongf("profile_home", "%s: %q is not an absolute path", name, dir)
		}
	}
	return nil
}

func (c *Config) placement() placement.Config {
	return placement.Config{MaxSessions: c.MaxSessionsPerRuntime, MaxRuntimes: c.MaxRuntimes, Idle: c.RuntimeIdle}
}

// profile says what the CLI processes are like.
func (c *Config) profile() (runtime.Profile, error) {
	p := runtime.Profile{
		Env: maps.Clone(c.Env), Token: c.GitHubToken, LogLevel: c.CLILogLevel, Args: slices.Clone(c.CLIArgs),
		Multi: c.MultiConnection, ExtensionLaunch: c.ExtensionLaunch,
		UseLogin: !c.NoLogin && c.OfflineModel == "",
	}
	for _, dir := range []struct{ from, to *string }{
		{&c.Home, &p.Home}, {&c.UserHome, &p.UserHome}, {&c.WorkDir, &p.Dir},
	} {
		if *dir.from == "" {
			continue
		}
		absolute, err := filepath.Abs(*dir.from)
		if err != nil {
			return p, err
		}
		*dir.to = absolute
	}
	return p, nil
}
