package runtime

import (
	"maps"
	"net/url"
	"strings"
)

// inherited are the variables of ours that a runtime gets. The shells that the
// CLI starts for the model inherit its environment, so whatever is in it may
// end up in a model request: nothing is passed on that is not known to be
// needed and harmless.
var inherited = map[string]bool{
	"PATH": true, "HOME": true, "LANG": true, "LANGUAGE": true, "TERM": true, "TMPDIR": true, "TZ": true,
	"USER": true, "LOGNAME": true, "SHELL": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, "NODE_EXTRA_CA_CERTS": true,
	// What a program needs on Windows.
	"SYSTEMROOT": true, "SYSTEMDRIVE": true, "WINDIR": true, "COMSPEC": true, "PATHEXT": true, "TEMP": true, "TMP": true,
	"USERPROFILE": true, "APPDATA": true, "LOCALAPPDATA": true, "PROGRAMDATA": true, "PROGRAMFILES": true,
}

// proxies are passed on unless they carry a password: without them nothing
// works behind a proxy, with it the model's shell would know it. Who accepts
// that can put them into Profile.Env.
var proxies = map[string]bool{
	"HTTP_PROXY": true, "HTTPS_PROXY": true, "ALL_PROXY": true, "NO_PROXY": true,
}

// environment builds the environment of a runtime from the allowed part of
// ours and from its profile. It also names the proxies left out for their
// password.
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

// hasPassword errs on the safe side: what cannot be read as an URL and has an
// "@" is taken to have one.
func hasPassword(proxy string) bool {
	if !strings.Contains(proxy, "@") {
		return false
	}
	u, err := url.Parse(proxy)
	return err != nil || u.User != nil || u.Host == ""
}
