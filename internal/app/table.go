package app

import (
	"fmt"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// EnvPrefix begins the environment variable of each setting.
const EnvPrefix = "COPILOT_GRPC_"

// fixed is a setting that changes with a restart only.
func fixed(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Help: help}
}

// live is a setting that Reload changes.
func live(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Live: true, Help: help}
}

// secret is a setting that is never printed.
func secret(key string, value any, help string) setting.Row {
	return setting.Row{Key: key, Value: value, Secret: true, Help: help}
}

// Table lists every setting of the server; the members of c are the values. Each line defines the
// flag, the environment variable, the key of the file, the help text and the row of
// docs/configuration.md. App.Reload applies live settings.
func (c *Config) Table() setting.Table {
	return setting.Table{
		{Title: "Callers", Rows: c.callerRows()},
		{Title: "The CLI", Rows: c.cliRows()},
		{Title: "CLI processes", Rows: c.runtimeRows()},
		{Title: "Storage", Rows: c.dataRows()},
		{Title: "Cluster", Rows: append(c.Cluster.rows(), fixed("node_label", &c.NodeLabels,
			"`KEY=VALUE` of a label of this server, which sessions can require (node_labels of CreateSession); "+
				"repeatable"))},
		{Title: "Sizes and timeouts", Rows: c.boundRows()},
		{Title: "Log", Rows: c.logRows()},
		{Title: "Telemetry", Rows: c.observeRows()},
	}
}

func (c *Config) callerRows() []setting.Row {
	return []setting.Row{
		fixed("listen", &c.Listen, "`address` to listen on, unix:PATH or HOST:PORT. An address other than loopback "+
			"requires TLS and a policy. Repeatable, or separated by commas (default: "+
			"unix:$XDG_RUNTIME_DIR/copilot-grpc.sock, or a socket in the user's cache directory)"),
		fixed("xds", &c.XDS, "let a control plane configure the TCP addresses of listen by xDS: which connections they "+
			"take, and their certificates. GRPC_XDS_BOOTSTRAP names its bootstrap file. Requires TLS, a policy, and a "+
			"program built with -tags xds (docs/mesh.md)"),
		fixed("web", &c.Web, "also listen for browsers, curl and clients of Connect and gRPC-Web, on web_listen "+
			"(docs/web.md)"),
		fixed("web_listen", &c.WebListen, "`address` for browsers and curl, HOST:PORT; the same rules as for listen. "+
			"Setting it includes web (default with web: "+DefaultWebListen+")"),
		fixed("web_origins", &c.WebOrigins, "`origins` of other web pages that may call, like https://example.com; "+
			"repeatable, or separated by commas"),
		fixed("web_url", &c.WebURL, "`URL` by which browsers reach web_listen, like https://agents.example:7780, for "+
			"the links of logins (default: the address of web_listen)"),
		fixed("web_login_time", &c.WebLoginTime, "time after which a browser has to log in again; less if its token "+
			"expires earlier"),
		live("tls_cert", &c.TLSCert, "PEM `file` with the server certificate for TCP; reloaded when it changes"),
		live("tls_key", &c.TLSKey, "PEM `file` with the private key of tls_cert; reloaded when it changes"),
		live("tls_client_ca", &c.TLSClientCA,
			"PEM `file` with the CAs that sign client certificates; reloaded when it changes"),
		live("tls_client_crl", &c.TLSClientCRL,
			"`file` with the revocation lists (CRLs) of client certificates, in PEM, or one list in DER; reloaded "+
				"when it changes. Every CA that signs client certificates needs a list. If a list is out of date, "+
				"all certificates of its CA are refused"),
		live("policy", &c.Policy, "`file` that maps identities to tenants, roles and limits (docs/security.md); "+
			"reloaded when it changes"),
		secret("token", &c.Token, "bearer `token` of callers over TCP, at least 16 characters (default: random and "+
			"printed at the start)"),
		live("lax_permissions", &c.LaxPermissions,
			"log a warning instead of refusing to start when every user of the machine can change a trusted file "+
				"(policy, tokens, keys, data directory)"),
		fixed("raw", &c.Raw, "serve RawService, which forwards any call to the CLI"),
		fixed("internal", &c.Internal, "also serve the methods of copilot.cli.v1 that the CLI marks as internal"),
		live("max_connections", &c.MaxConnections,
			"maximum number of TCP connections. At the limit the server closes a connection of the caller with the "+
				"most connections (default and maximum: three quarters of the process's limit of open files; the rest is "+
				"for sessions and CLI processes)"),
		live("max_connection_age", &c.MaxConnectionAge,
			"maximum age of a TCP connection, plus or minus 10 %. Then its streams must resume on another "+
				"connection, for which they have 10 minutes; 0 means no limit. Applies to new connections"),
		fixed("drain_grace", &c.DrainGrace,
			"time for which streams and turns may continue after the server received SIGTERM"),
	}
}

func (c *Config) cliRows() []setting.Row {
	return []setting.Row{
		fixed("cli", &c.CLIPath, "`path` of the copilot executable; also COPILOT_CLI_PATH (default: searched on "+
			"PATH, or else installed)"),
		fixed("install_cli", &c.InstallCLI, "use a private copy of version "+clibin.PinnedVersion+", which is "+
			"installed if it is missing, instead of a CLI on PATH or in COPILOT_CLI_PATH"),
		fixed("no_install", &c.NoInstall, "fail if no CLI is found, instead of installing a private copy"),
		fixed("tested_cli_only", &c.TestedCLIOnly, "refuse a CLI newer than "+clibin.PinnedVersion+", the newest that "+
			"was tested with this server, instead of warning"),
		fixed("verify_cli", &c.VerifyCLI,
			"which CLI `executables` must be the published ones: found (installed by the server, or on PATH with a "+
				"version that this server knows), all (also one given by path, and of an unknown version), none"),
		fixed("dial", &c.Dial, "`host:port` of a running CLI server to use, instead of starting one"),
		secret("dial_token", &c.DialToken, "connection `token` of the CLI server in dial"),
		fixed("home", &c.Home, "state `directory` of the CLI, COPILOT_HOME (default: the user's)"),
		fixed("user_home", &c.UserHome,
			"home `directory` of the CLI and of the shells it starts (default: the user's)"),
		fixed("work_dir", &c.WorkDir, "working `directory` of sessions that do not name one (default: the current "+
			"directory)"),
		secret("env", &c.Env, "`NAME=VALUE` to add to the environment of the CLI and of its shells; repeatable"),
		secret("github_token", &c.GitHubToken,
			"GitHub `token` of the host owner's sessions that have none; visible to the CLI's shells"),
		fixed("no_login", &c.NoLogin, "do not let the CLI use the login stored on this machine"),
		fixed("offline_model", &c.OfflineModel,
			"`script` that plays the model: a path, or \""+OfflineDefault+"\" for the built-in script"),
		live("provider", &c.Providers, "`NAME=FILE` of a model provider that callers may name: a JSON object that "+
			"includes its secrets. Applies to sessions opened later; repeatable"),
		fixed("extension_launch", &c.ExtensionLaunch,
			"let callers that handle EXTENSION_LAUNCH decide how extensions are started, instead of the CLI"),
		fixed("multi_connection", &c.MultiConnection,
			"let the CLI accept several connections, on a loopback port with a token. Each participant with canvases "+
				"needs its own connection"),
		fixed("cli_log_level", &c.CLILogLevel,
			"`level` of the CLI's log files: none, error, warning, info, debug, all"),
	}
}

func (c *Config) runtimeRows() []setting.Row {
	return []setting.Row{
		fixed("profile_fields", &c.ProfileFields,
			"`fields` of RuntimeProfile that callers may set; repeatable, or separated by commas: "+
				strings.Join(tenancy.ProfileFields(), ", ")+" (default: "+
				strings.Join(tenancy.DefaultProfileFields, ",")+")"),
		fixed("profile_home", &c.Homes, "`NAME=DIRECTORY` of a state directory that callers may select by name; "+
			"repeatable"),
		live("max_sessions_per_runtime", &c.MaxSessionsPerRuntime,
			"maximum number of loaded `sessions` in a CLI process; further sessions go to another process"),
		live("max_runtimes", &c.MaxRuntimes, "maximum number of CLI `processes`"),
		live("warm_runtimes", &c.WarmRuntimes,
			"number of CLI `processes` that are kept ready with room for a session, so that a new session does not "+
				"wait for a start; 0 starts further processes on demand. A process takes about 250 MB of memory"),
		live("runtime_idle", &c.RuntimeIdle,
			"time without a session after which a CLI process ends; does not apply to the first process"),
		live("max_runtime_age", &c.MaxRuntimeAge,
			"age at which a CLI process is replaced, once its sessions are idle; 0 means never"),
		live("max_runtime_rss", &c.MaxRuntimeRSS,
			"memory, in `bytes`, at which a CLI process is replaced, once its sessions are idle; 0 means never"),
		live("kill_rss", &c.KillRSS, "memory, in `bytes`, at which a CLI process is killed at once; 0 means never. "+
			"Applies to processes started later"),
		live("ping_timeout", &c.PingTimeout,
			"time without an answer to a ping (one is sent in half of it), or any other output, after which a CLI "+
				"process is killed and replaced. Applies to processes started later"),
	}
}

func (c *Config) dataRows() []setting.Row {
	return []setting.Row{
		fixed("data_dir", &c.DataDir, "`directory` in which sessions survive a restart of the server; \"\" stores "+
			"nothing (default: $XDG_STATE_HOME/copilot-grpc or ~/.local/state/copilot-grpc)"),
		live("sealing_keys", &c.SealingKeys, "`file` with keys that encrypt the credentials of sessions, so that they "+
			"are stored with the sessions; one key a line, 32 bytes in base64, of which the first encrypts (default: "+
			"credentials are not stored)"),
		live("sealing_ttl", &c.SealingTTL, "time after the last save of a session in which its stored "+
			"credentials can be used"),
		fixed("fsync", &c.Fsync, "`policy` for crashes of the machine: always, interval, never"),
		fixed("fsync_interval", &c.FsyncInterval, "time between syncs with the fsync policy \"interval\""),
		fixed("journal_bytes", &c.JournalBytes,
			"maximum size, in `bytes`, of each session's events on disk; 0 means no limit. The server deletes whole "+
				"files of a quarter of this size, at least 64 KiB and at most 4 MiB"),
		fixed("journal_age", &c.JournalAge, "maximum age of events on disk; 0 means no limit"),
		fixed("max_memory_bytes", &c.MaxMemoryBytes, "maximum memory, in `bytes`, for the events of all sessions"),
	}
}

func (c *Config) boundRows() []setting.Row {
	return []setting.Row{
		live("max_prompt_bytes", &c.MaxPromptBytes, "maximum size of a prompt's text, in `bytes`"),
		live("max_attachment_bytes", &c.MaxAttachmentBytes,
			"maximum size, in `bytes`, of an attachment that is sent in pieces"),
		fixed("max_request_bytes", &c.MaxRequestBytes, "maximum size of a request message, in `bytes`"),
		live("callback_timeout", &c.CallbackTimeout,
			"time for which tool calls, permissions and other callbacks wait for an answer. Applies to sessions "+
				"opened later"),
		live("stall_timeout", &c.StallTimeout,
			"time without any event after which a turn ends as stalled, if no tool or callback is outstanding. "+
				"Applies to sessions opened later"),
		live("model_call_timeout", &c.ModelCallTimeout,
			"the same limit while the turn waits for a model. Applies to sessions opened later"),
		live("idle_unload", &c.IdleUnload,
			"time without activity after which a session is unloaded. The next call that needs the session loads it "+
				"again"),
	}
}

func (c *Config) logRows() []setting.Row {
	return []setting.Row{
		live("log_level", &c.LogLevel, "`level` of the log: debug, info, warn, error"),
		fixed("log_format", &c.LogFormat, "`format` of the log: text, json"),
		live("log_requests", &c.LogRequests, "also log requests, including prompts, without secrets"),
	}
}

// KeyError is an invalid setting.
type KeyError struct {
	// Key is the setting's key in the table.
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// wrong returns a KeyError for err, or nil if err is nil.
func wrong(key string, err error) error {
	if err == nil {
		return nil
	}
	return &KeyError{Key: key, Err: err}
}

func wrongf(key, format string, args ...any) error { return wrong(key, fmt.Errorf(format, args...)) }
