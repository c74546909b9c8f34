package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// Runtimes of a tenant other than the host's share only what Profile specifies. Their directories are separate. From
// the server's environment they receive variables that every program needs, and no data about the server's user.

// tenantInherited are the server's variables that such a runtime receives.
var tenantInherited = map[string]bool{
	"PATH": true, "LANG": true, "LANGUAGE": true, "TZ": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, "NODE_EXTRA_CA_CERTS": true,
	"SYSTEMROOT": true, "SYSTEMDRIVE": true, "WINDIR": true, "COMSPEC": true, "PATHEXT": true,
}

// tmpName is the folder for temporary files in a tenant's home.
const tmpName = "tmp"

// allowed reports whether a runtime of the profile receives a variable of the server.
func (p Profile) allowed(upper string) bool {
	if p.Tenant != "" {
		return tenantInherited[upper] || strings.HasPrefix(upper, "LC_")
	}
	return inherited[upper] || strings.HasPrefix(upper, "LC_")
}

// confineEnv sets a tenant's values in place of the server's.
func (p Profile) confineEnv(env map[string]string) {
	if p.Tenant == "" {
		return
	}
	env["HOME"] = p.UserHome
	env["TMPDIR"] = filepath.Join(p.UserHome, tmpName)
	// The key ring belongs to the machine's owner.
	env["COPILOT_DISABLE_KEYTAR"] = "1"
}

// makeDirs creates the directories that a runtime needs. Directories of a tenant, and a newly created parent of them,
// are accessible to its user only.
func (p Profile) makeDirs() error {
	dirs := []string{p.Home}
	if p.Tenant != "" {
		if parent := filepath.Dir(p.Home); p.User != nil && p.Home != "" && missing(parent) {
			dirs = []string{parent, p.Home}
		}
		dirs = append(dirs, p.UserHome, p.Dir, filepath.Join(p.UserHome, tmpName))
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fault.Wrap(err, fault.CLIStartFailed, "no home for the CLI")
		}
		if p.User == nil {
			continue
		}
		if err := os.Chown(dir, int(p.User.UID), int(p.User.GID)); err != nil {
			return fault.Wrap(err, fault.CLIStartFailed, "no home for the CLI")
		}
	}
	return nil
}

func missing(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// confine starts the CLI through the profile's sandbox, as the profile's user.
func (p Profile) confine(o *process.Options, cache string) {
	if p.User != nil {
		o.User = &process.User{UID: p.User.UID, GID: p.User.GID}
	}
	if len(p.Sandbox) == 0 {
		return
	}
	expand := strings.NewReplacer(
		"{home}", p.Home, "{user_home}", p.UserHome, "{dir}", p.Dir, "{bin}", filepath.Dir(o.Path), "{cache}", cache,
	)
	args := make([]string, 0, len(p.Sandbox)+len(o.Args))
	for _, arg := range p.Sandbox[1:] {
		args = append(args, expand.Replace(arg))
	}
	o.Args = append(append(args, o.Path), o.Args...)
	o.Path = expand.Replace(p.Sandbox[0])
}
