package app

import (
	"fmt"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// EnvPrefix begins the environment variable of each setting.
const EnvPrefix = "COPILOT_GRPC_"

// fixed is a setting that takes a restart, live one that Reload changes, secret one that
// nobody is shown.
func fixed(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Help: help}
}

func live(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Traits: setting.Live, Help: help}
}

func secret(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Traits: setting.Secret, Help: help}
}

// Table is all that a server can be told, with the members of c as its values: a line here
// makes the flag, the variable, the key of the file, the help and the row of
// docs/configuration.md. What is live has to be put into force by App.Reload.
func (c *Config) Table() setting.Table {
	return setting.Table{
		{Title: "Callers", Rows: c.callerRows()},
		{Title: "The CLI", Rows: c.cliRows()},
		{Title: "CLI processes", Rows: c.runtimeRows()},
		{Title: "What is kept", Rows: c.dataRows()},
		{Title: "Sizes and times", Rows: c.boundRows()},
		{Title: "The log", Rows: c.logRows()},
		{Title: "Telemetry", Rows: c.observeRows()},
	}
}

func (c *Config) callerRows() []setting.Row {
	return []setting.Row{
		fixed("listen", &c.Listen, "`address` to listen on, unix:PATH or HOST:PORT, which takes TLS and a policy unless it is loopback; repeatable, or with commas (default: unix:$XDG_RUNTIME_DIR/copilot-grpc.sock, else one in the user's cache folder)"),
		live("tls_cert", &c.TLSCert, "`file` with the certificate of TCP addresses, in PEM; read anew when it changes"),
		live("tls_key", &c.TLSKey, "`file` with its key, in PEM"),
		live("tls_client_ca", &c.TLSClientCA, "`file` with the CAs of client certificates, in PEM"),
		live("tls_client_crl", &c.TLSClientCRL, "`file` with the revocation lists (CRLs) of client certificates, in PEM or one in DER; read anew when it changes. Every CA that signs client certificates needs one, and a list that is out of date refuses all of its CA"),
		live("policy", &c.Policy, "`file` that says who may do what (docs/security.md); read anew when it changes"),
		secret("token", &c.Token, "bearer `token` of callers over TCP, at least 16 characters (default: a random one, printed)"),
		live("lax_permissions", &c.LaxPermissions, "start although every user of the machine can change a file that the server trusts (policy, tokens, keys, data directory), with a warning in place of an error"),
		fixed("raw", &c.Raw, "switch RawService on, which passes any call on to the CLI"),
		fixed("internal", &c.Internal, "serve the methods of copilot.cli.v1 too that the CLI marks as internal"),
		live("max_connections", &c.MaxConnections, "most connections over TCP; beyond it one of the caller that has most of them is closed (default, and at most: the process's limit of open files without reserved_files)"),
		live("reserved_files", &c.ReservedFiles, "open `files` that connections leave to sessions, CLI processes, reloading and the admin listener (default: a quarter of the limit of open files, between 64 and 1024)"),
		live("max_connection_age", &c.MaxConnectionAge, "how long a connection over TCP may live, give or take a tenth, before its streams are asked to resume on another; 0 is for good; of connections that come later"),
		live("connection_age_grace", &c.ConnectionAgeGrace, "how long calls on such a connection may go on before they are cut off"),
		fixed("drain_grace", &c.DrainGrace, "how long streams and turns may go on once the server is asked to end"),
	}
}

func (c *Config) cliRows() []setting.Row {
	return []setting.Row{
		fixed("cli", &c.CLIPath, "`path` of the copilot executable; also COPILOT_CLI_PATH (default: looked for on PATH, else installed)"),
		fixed("verify_cli", &c.VerifyCLI, "which CLI `executables` must be in the table of published ones: found (what is installed or found on PATH), all (a given path too), none"),
		fixed("any_cli", &c.AnyCLI, "run a CLI of any version, also of one that was not tested with this server"),
		fixed("no_install", &c.NoInstall, "fail when the CLI is not found, in place of installing a private copy"),
		fixed("dial", &c.Dial, "`host:port` of a CLI server that runs already, to use in place of starting one"),
		secret("dial_token", &c.DialToken, "connection `token` of that server"),
		fixed("home", &c.Home, "state `directory` of the CLI, COPILOT_HOME (default: the user's own)"),
		fixed("user_home", &c.UserHome, "home `directory` of the CLI and the shells it starts (default: the user's own)"),
		fixed("work_dir", &c.WorkDir, "working `directory` of sessions that name none (default: the current one)"),
		secret("env", &c.Env, "`NAME=VALUE` to add to the CLI's environment, which its shells see; repeatable"),
		secret("github_token", &c.GitHubToken, "GitHub `token` of sessions that bring none; the CLI's shells see it"),
		fixed("no_login", &c.NoLogin, "do not let the CLI use the login it has stored on this machine"),
		fixed("offline_model", &c.OfflineModel, "`script` that plays the model: a path, or \""+OfflineDefault+"\" for the built-in one"),
		live("provider", &c.Providers, "`NAME=FILE` of a model provider that callers may name: a JSON object, with its secrets; of sessions opened later; repeatable"),
		fixed("extension_launch", &c.ExtensionLaunch, "callers that handle EXTENSION_LAUNCH say how extensions are started, in place of the CLI"),
		fixed("multi_connection", &c.MultiConnection, "let the CLI take several connections, on a loopback port with a token: participants with canvases need one each"),
		fixed("cli_log_level", &c.CLILogLevel, "`level` of the CLI's own log files: none, error, warning, info, debug, all"),
	}
}

func (c *Config) runtimeRows() []setting.Row {
	return []setting.Row{
		fixed("profile_fields", &c.ProfileFields, "`fields` of RuntimeProfile that callers may set; repeatable, or with commas: "+
			strings.Join(bridge.ProfileFields(), ", ")+" (default: "+strings.Join(bridge.DefaultProfileFields, ",")+")"),
		fixed("profile_home", &c.Homes, "`NAME=DIRECTORY` of a state directory that callers may choose by name; repeatable"),
		live("max_sessions_per_runtime", &c.MaxSessionsPerRuntime, "`sessions` that a CLI process may have loaded before another is started"),
		live("max_runtimes", &c.MaxRuntimes, "most CLI `processes`"),
		live("runtime_idle", &c.RuntimeIdle, "how long a CLI process but the first may have no session before it is ended"),
		live("max_runtime_age", &c.MaxRuntimeAge, "replace a CLI process that is older, when nothing goes on in its sessions; 0 never"),
		live("max_runtime_rss", &c.MaxRuntimeRSS, "replace a CLI process that has more memory, in `bytes`; 0 never"),
		live("max_runtime_latency", &c.MaxRuntimeLatency, "replace a CLI process that takes longer to answer a ping; 0 never"),
		live("kill_rss", &c.KillRSS, "end a CLI process at once that has more memory, in `bytes`; 0 never; of processes started later"),
		live("ping_interval", &c.PingInterval, "how often a CLI process is asked for a sign of life; of processes started later"),
		live("ping_timeout", &c.PingTimeout, "how long it may be silent then before it is ended and replaced; of processes started later"),
	}
}

func (c *Config) dataRows() []setting.Row {
	return []setting.Row{
		fixed("data_dir", &c.DataDir, "`folder` in which sessions outlive the server; \"\" keeps nothing (default: $XDG_STATE_HOME/copilot-grpc, else ~/.local/state/copilot-grpc)"),
		fixed("fsync", &c.Fsync, "`policy` for crashes of the machine: always, interval, never"),
		fixed("fsync_interval", &c.FsyncInterval, "how often the policy \"interval\" syncs"),
		fixed("journal_bytes", &c.JournalBytes, "most that is kept of each session's events on disk, in `bytes`; 0 is everything. Whole files of a quarter of that go, of 64 KiB at least and 4 MiB at most"),
		fixed("journal_age", &c.JournalAge, "how long events are kept on disk; 0 is for good"),
		fixed("max_memory_bytes", &c.MaxMemoryBytes, "most that is kept of all sessions' events in memory, in `bytes`"),
		fixed("max_ephemeral_bytes", &c.MaxEphemeralBytes, "most that is kept of each session's ephemeral events, in `bytes`"),
	}
}

func (c *Config) boundRows() []setting.Row {
	return []setting.Row{
		live("max_prompt_bytes", &c.MaxPromptBytes, "largest text of a prompt, in `bytes`"),
		live("max_attachment_bytes", &c.MaxAttachmentBytes, "largest attachment sent in pieces, in `bytes`"),
		fixed("max_request_bytes", &c.MaxRequestBytes, "largest message of a caller, in `bytes`"),
		live("callback_timeout", &c.CallbackTimeout, "how long tool calls, permissions and the like wait for an answer; of sessions opened later"),
		live("stall_timeout", &c.StallTimeout, "how long nothing may happen in a turn, with no tool or callback outstanding, before it ends as stalled; of sessions opened later"),
		live("model_call_timeout", &c.ModelCallTimeout, "the same while the turn waits for a model; of sessions opened later"),
		live("confinement_grace", &c.ConfinementGrace, "how long a CLI process may go on when the policy has changed its sandbox, user, environment or folders; then it is ended, and its sessions go on in another"),
		live("idle_unload", &c.IdleUnload, "how long nothing goes on in a session before it is unloaded; whatever needs it loads it again"),
	}
}

func (c *Config) logRows() []setting.Row {
	return []setting.Row{
		live("log_level", &c.LogLevel, "`level` of the log: debug, info, warn, error"),
		fixed("log_format", &c.LogFormat, "`format` of the log: text, json"),
		live("log_requests", &c.LogRequests, "log requests too, without secrets, but with prompts"),
	}
}

// KeyError is something that is wrong with a setting.
type KeyError struct {
	// Key is that of the table.
	Key string
	Err error
}

// Error implements error.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *KeyError) Unwrap() error { return e.Err }

// wrong is the error of a setting; nil if nothing is wrong.
func wrong(key string, err error) error {
	if err == nil {
		return nil
	}
	return &KeyError{Key: key, Err: err}
}

func wrongf(key, format string, args ...any) error { return wrong(key, fmt.Errorf(format, args...)) }
