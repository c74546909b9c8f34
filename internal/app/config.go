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
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
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

// Config says what to run. Table has the meaning of each setting, its unit and its default; the comments here have
// what a program that makes a Config needs besides. The zero value listens on the default socket, finds the CLI and
// lets it use the home directory and the login of the user.
type Config struct {
	// Version is the version that the program reports to callers.
	Version string

	Listen []string
	XDS    bool
	// Token is random by default if there is a TCP address: see App.Token.
	Token string
	// WebListen alone adds the listener for browsers, too.
	Web          bool
	WebListen    string
	WebOrigins   []string
	WebURL       string
	WebLoginTime time.Duration

	TLSCert      string
	TLSKey       string
	TLSClientCA  string
	TLSClientCRL string
	Policy       string

	CLIPath       string
	InstallCLI    bool
	NoInstall     bool
	TestedCLIOnly bool
	VerifyCLI     string // a clibin.Verify
	Dial          string
	DialToken     string
	Home          string
	UserHome      string
	WorkDir       string
	// Env is added to the CLI's environment, which otherwise has little of ours.
	Env         map[string]string
	GitHubToken string
	// NoLogin is implied by an offline model.
	NoLogin     bool
	CLILogLevel string
	// CLIArgs are further arguments of the CLI, of a program that embeds the server, as the shim does.
	CLIArgs []string

	ProfileFields         []string
	Homes                 map[string]string
	MaxSessionsPerRuntime int
	MaxRuntimes           int
	RuntimeIdle           time.Duration
	// WarmRuntimes is not 0 in DefaultConfig only, as MaxConnectionAge.
	WarmRuntimes    int
	ExtensionLaunch bool
	MultiConnection bool

	// OfflineModel is the path of a script that plays the model, or OfflineDefault.
	OfflineModel string
	NodeLabels   map[string]string
	Providers    map[string]string
	Raw          bool
	// SingleClient says that the server is one program's own: if that asks for the CLI's own
	// behaviour, it may also call what changes a whole CLI process.
	SingleClient bool
	Internal     bool

	SealingKeys    string
	SealingTTL     time.Duration
	DataDir        string
	Fsync          string
	FsyncInterval  time.Duration
	JournalBytes   int64
	JournalAge     time.Duration
	Cluster        Cluster
	MaxMemoryBytes int

	MaxPromptBytes     int
	MaxAttachmentBytes int
	MaxRequestBytes    int
	// MaxEphemeralBytes bounds the stored ephemeral events of each session; it is no setting.
	MaxEphemeralBytes int
	CallbackTimeout   time.Duration
	DrainGrace        time.Duration
	StallTimeout      time.Duration
	ModelCallTimeout  time.Duration
	IdleUnload        time.Duration
	// ConfinementGrace is how long a CLI process may go on when the policy has changed what
	// confines it; it is no setting.
	ConfinementGrace time.Duration

	MaxConnections   int
	MaxConnectionAge time.Duration
	// ConnectionAgeGrace is how long calls may go on when their connection has its age; it is no setting.
	ConnectionAgeGrace time.Duration
	MaxRuntimeAge      time.Duration
	MaxRuntimeRSS      int64
	KillRSS            int64
	// PingInterval is the interval of pings, by default half of PingTimeout; it is no setting.
	PingInterval time.Duration
	PingTimeout  time.Duration

	LaxPermissions bool

	AdminListen string
	AdminToken  string
	AdminWide   bool
	// OTLP sends spans and metrics as the environment (OTEL_*) says; OTLPEndpoint and OTLPProtocol win over it. An
	// endpoint switches it on.
	OTLP            bool
	OTLPEndpoint    string
	OTLPProtocol    string
	MetricsByTenant []string
	// AuditLog is the file of the audit log, or AuditStderr.
	AuditLog string

	LogLevel    string
	LogFormat   string
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
		wrong("node_label", sessions.CheckLabels(c.NodeLabels, "node_label")), c.checkNumbers(), c.checkProfiles(),
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
