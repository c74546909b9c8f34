package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// Profile has the properties of a runtime that cannot change while it runs. Only sessions with equal profiles may
// share a runtime, because a runtime does not isolate its sessions.
type Profile struct {
	// Tenant owns the runtime and its content.
	Tenant string `json:"tenant,omitzero"`
	// Home is the CLI's state directory (COPILOT_HOME); "" means the CLI's default, .copilot in UserHome.
	Home string `json:"home,omitzero"`
	// UserHome is HOME for the CLI and its shells; "" means the server's.
	UserHome string `json:"user_home,omitzero"`
	// Dir is the default working directory of sessions; "" means the server's.
	Dir string `json:"dir,omitzero"`
	// Env is added to the permitted environment. The CLI's shells can read it.
	Env map[string]string `json:"env,omitzero"`
	// Token is a GitHub token for the whole runtime; "" means none. The CLI's shells can read it.
	Token string `json:"token,omitzero"`
	// UseLogin lets the CLI use the login stored on the machine.
	UseLogin bool `json:"use_login,omitzero"`
	// LogLevel is the CLI's log level; "" means its default.
	LogLevel string `json:"log_level,omitzero"`
	// Args are further arguments of the CLI, before the bridge's.
	Args []string `json:"args,omitempty"`
	// Telemetry makes the CLI forward its telemetry to the bridge.
	Telemetry bool `json:"telemetry,omitzero"`
	// SessionFS is the file system that the bridge provides for the runtime's sessions; nil leaves files to the CLI.
	SessionFS *SessionFS `json:"session_fs,omitempty"`
	// ModelInference makes the bridge send the requests to models; nil leaves them to the CLI.
	ModelInference *ModelInference `json:"model_inference,omitempty"`
	// ExtensionLaunch lets callers determine how extensions are started, in place of the CLI.
	ExtensionLaunch bool `json:"extension_launch,omitzero"`
	// Multi makes the runtime accept several connections: it listens on a loopback port, with a token, instead of
	// using stdio.
	Multi bool `json:"multi,omitzero"`
	// User is the runtime's user; nil means the server's.
	User *User `json:"user,omitempty"`
	// Sandbox is the command, with arguments, that starts the runtime. The placeholders {home}, {user_home}, {dir},
	// {bin} and {cache} stand for the directories of the profile, the folder of the CLI's executable and that of its
	// unpacked files.
	Sandbox []string `json:"sandbox,omitempty"`
	// Confinement identifies the policy's confinement of the tenant at the time the profile was made. It differs from
	// the current one after the policy changes, because a runtime keeps its own.
	Confinement string `json:"confinement,omitzero"`
	// Shard distinguishes runtimes with otherwise equal profiles.
	Shard int `json:"shard,omitzero"`
}

// User is a user of the operating system.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Hash identifies the profile: equal profiles have equal hashes in every process and, since unset fields do not
// count, in every version. It does not reveal the profile's content.
func (p Profile) Hash() string {
	raw, err := json.Marshal(p) // sorts the keys of maps
	if err != nil {
		panic(err) // strings, bools, ints and a map of strings always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// tokenEnv is the variable with Token; its name is passed on the command line.
const tokenEnv = "COPILOT_SDK_AUTH_TOKEN"

// reserved are the variables that Profile.Env must not set: the bridge sets them, or they are secrets shared with the
// CLI.
var reserved = map[string]string{
	"HOME":                     "UserHome",
	"USERPROFILE":              "UserHome",
	"COPILOT_HOME":             "Home",
	tokenEnv:                   "Token",
	connectionTokenEnv:         "",
	clibin.PkgCacheEnv:         "",
	clibin.PathEnv:             "",
	"COPILOT_SEA_EXTRACT_ONLY": "",
	process.MarkerEnv:          "",
}

// Reserved reports whether Profile.Env must not contain a variable.
func Reserved(name string) bool {
	_, ok := reserved[strings.ToUpper(name)]
	return ok
}

// logLevels are the CLI's log levels.
var logLevels = []string{"none", "error", "warning", "info", "debug", "all", "default"}

// LogLevels returns the CLI's log levels.
func LogLevels() []string { return slices.Clone(logLevels) }

// Validate reports whether a runtime can be started with the profile.
func (p Profile) Validate() error {
	for name, dir := range map[string]string{"home": p.Home, "user_home": p.UserHome, "dir": p.Dir} {
		if dir != "" && !filepath.IsAbs(dir) {
			return invalid(name, "%q is not an absolute path", dir)
		}
	}
	for name := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(p.Env[name], "\x00") {
			return invalid("env", "%q is not usable as a variable", name)
		}
		if instead, ok := reserved[strings.ToUpper(name)]; ok {
			e := invalid("env", "%q cannot be set through env", name)
			if instead != "" {
				e = invalid("env", "%q cannot be set through env: set %s", name, instead)
			}
			return e
		}
	}
	if p.LogLevel != "" && !slices.Contains(logLevels, p.LogLevel) {
		return invalid("log_level", "%q is none of %s", p.LogLevel, strings.Join(logLevels, ", "))
	}
	return nil
}

func invalid(field, format string, args ...any) *fault.Error {
	return fault.New(fault.InvalidField, "profile "+field+": "+format, args...).WithField(field)
}

// args are the CLI's arguments for a server of this profile.
func (p Profile) args() []string {
	args := append(slices.Clone(p.Args), "--headless", "--no-auto-update")
	if !p.UseLogin {
		args = append(args, "--no-auto-login")
	}
	if p.Multi {
		args = append(args, "--port", "0")
	} else {
		args = append(args, "--stdio")
	}
	if p.Token != "" {
		args = append(args, "--auth-token-env", tokenEnv)
	}
	if p.LogLevel != "" {
		args = append(args, "--log-level", p.LogLevel)
	}
	return args
}

// StateDir is the folder of the CLI's sessions; "" if unknown.
func (p Profile) StateDir() string {
	if p.Home != "" {
		return p.Home
	}
	home := p.UserHome
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".copilot")
}

// removeLocks removes the lock files that a killed process left in its sessions. The pid must still be reserved, or
// the files could belong to another process.
func (p Profile) removeLocks(pid int) (removed int) {
	dir := p.StateDir()
	if dir == "" {
		return 0
	}
	// inuse.<pid>.lock, and since 1.0.102 also inuse.<pid>.hold.
	sessions, _ := os.ReadDir(filepath.Join(dir, "session-state"))
	for _, s := range sessions {
		for _, ext := range []string{"lock", "hold"} {
			name := "inuse." + strconv.Itoa(pid) + "." + ext
			if os.Remove(filepath.Join(dir, "session-state", s.Name(), name)) == nil {
				removed++
			}
		}
	}
	return removed
}

// sortedEnv formats variables as the environment of a process.
func sortedEnv(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}
