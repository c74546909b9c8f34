package runtime

import (
	"maps"
	"net/url"
	"strings"
)

// inherited are the server's variables that a runtime receives. The shells that the CLI starts for the model inherit
// its environment, so all of it may occur in a model request: only variables known to be necessary and harmless are
// passed on.
var inherited = map[string]bool{
	"PATH": true, "HOME": true, "LANG": true, "LANGUAGE": true, "TERM": true, "TMPDIR": true, "TZ": true,
	"USER": true, "LOGNAME": true, "SHELL": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, "NODE_EXTRA_CA_CERTS": true,
	// Variables that programs on Windows need.
	"SYSTEMROOT": true, "SYSTEMDRIVE": true, "WINDIR": true, "COMSPEC": true, "PATHEXT": true, "TEMP": true,
	"TMP":         true,
	"USERPROFILE": true, "APPDATA": true, "LOCALAPPDATA": true, "PROGRAMDATA": true, "PROGRAMFILES": true,
}

// proxies are passed on unless they contain a password: nothing works behind a proxy without them, but the model's
// shell could read the password. To accept that, set them in Profile.Env.
var proxies = map[string]bool{
	"HTTP_PROXY": true, "HTTPS_PROXY": true, "ALL_PROXY": true, "NO_PROXY": true,
}

// environment builds a runtime's environment from the permitted part of the server's and from its profile. withheld
// names the proxies that were omitted because of their password.
func environment(p Profile, ours []string) (env map[string]string, withheld []string) {
	env = map[string]string{"TERM": "dumb"}
	for _, entry := range ours {
		name, value, _ := strings.Cut(entry, "=")
		upper := strings.ToUpper(name)
		switch {
		case p.allowed(upper):
			env[name] = value
		case proxies[upper] && hasPassword(value):
			withheld = append(withheld, name)
		case proxies[upper]:
			env[name] = value
		}
	}
	p.confineEnv(env)
	maps.Copy(env, p.Env)
	if p.UserHome != "" {
		env["HOME"] = p.UserHome
		if env["USERPROFILE"] != "" {
			env["USERPROFILE"] = p.UserHome
		}
	}
	if p.Home != "" {
		env["COPILOT_HOME"] = p.Home
	}
	if p.Token != "" {
		env[tokenEnv] = p.Token
	}
	return env, withheld
}

// hasPassword reports whether a proxy URL has a password. An unparsable URL with an "@" counts as one with a
// password.
func hasPassword(proxy string) bool {
	if !strings.Contains(proxy, "@") {
		return false
	}
	u, err := url.Parse(proxy)
	return err != nil || u.User != nil || u.Host == ""
}
