//go:build unix

package runtime

import (
	"reflect"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// Sessions are placed by the hash across restarts and versions of the bridge,
// so it must not change by accident.
func TestHashIsStable(t *testing.T) {
	t.Parallel()
	p := Profile{Tenant: "t", Home: "/h", Env: map[string]string{"B": "2", "A": "1"}, Token: "x", Shard: 1}
	const want = "f111166c37955e590b44cb583471821c"
	if got := p.Hash(); got != want {
		t.Errorf("Hash = %q, want %q", got, want)
	}
}

// Two profiles that differ in anything must never share a runtime.
func TestHashCoversEveryField(t *testing.T) {
	t.Parallel()
	seen := map[string]string{Profile{}.Hash(): "none"}
	var p Profile
	note := func(name string) {
		if other, ok := seen[p.Hash()]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[p.Hash()] = name
	}
	for i := range reflect.TypeFor[Profile]().NumField() {
		p = Profile{}
		name, field := reflect.TypeFor[Profile]().Field(i).Name, reflect.ValueOf(&p).Elem().Field(i)
		if field.Kind() != reflect.Pointer {
			vary(t, field)
			note(name)
			continue
		}
		inner := field.Type().Elem()
		field.Set(reflect.New(inner))
		note(name)
		for j := range inner.NumField() {
			field.Set(reflect.New(inner))
			vary(t, field.Elem().Field(j))
			note(name + "." + inner.Field(j).Name)
		}
	}
}

// vary gives a field another value than its zero.
func vary(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.String:
		field.SetString("x")
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int:
		field.SetInt(1)
	case reflect.Uint32:
		field.SetUint(1)
	case reflect.Slice:
		field.Set(reflect.ValueOf([]string{"x"}))
	case reflect.Map:
		field.Set(reflect.ValueOf(map[string]string{"A": "x"}))
	default:
		t.Fatalf("field of kind %s", field.Kind())
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	env := func(name string) Profile { return Profile{Env: map[string]string{name: "v"}} }
	for name, tc := range map[string]struct {
		profile Profile
		field   string // "" when valid
	}{
		"zero": {Profile{}, ""},
		"full": {Profile{Home: "/h", UserHome: "/u", Dir: "/d", LogLevel: "debug",
			Env: map[string]string{"A": "b"}}, ""},
		"relative home":    {Profile{Home: "h"}, "home"},
		"relative user":    {Profile{UserHome: "u"}, "user_home"},
		"relative dir":     {Profile{Dir: "d"}, "dir"},
		"log level":        {Profile{LogLevel: "loud"}, "log_level"},
		"home by env":      {env("HOME"), "env"},
		"token by env":     {env("COPILOT_SDK_AUTH_TOKEN"), "env"},
		"marker by env":    {env(process.MarkerEnv), "env"},
		"connection token": {env("copilot_connection_token"), "env"},
		"no name":          {env(""), "env"},
		"bad name":         {env("A=B"), "env"},
		"bad value":        {Profile{Env: map[string]string{"A": "x\x00y"}}, "env"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.profile.Validate()
			if tc.field == "" {
				if err != nil {
					t.Errorf("Validate = %v", err)
				}
				return
			}
			f, ok := err.(*fault.Error)
			if !ok || f.Reason != fault.InvalidField || f.Field != tc.field {
				t.Errorf("Validate = %#v, want a fault in %q", err, tc.field)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		profile Profile
		want    []string
	}{
		{Profile{}, []string{"--headless", "--no-auto-update", "--no-auto-login", "--stdio"}},
		{
			Profile{UseLogin: true, Token: "secret", LogLevel: "debug"},
			[]string{"--headless", "--no-auto-update", "--stdio", "--auth-token-env", tokenEnv, "--log-level", "debug"},
		},
		{
			Profile{Args: []string{"--deny-tool", "shell"}, Multi: true},
			[]string{"--deny-tool", "shell", "--headless", "--no-auto-update", "--no-auto-login", "--port", "0"},
		},
	} {
		if got := tc.profile.args(); !slices.Equal(got, tc.want) {
			t.Errorf("args = %q, want %q", got, tc.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	ours := []string{
		"PATH=/bin", "HOME=/me", "LC_ALL=C", "SSL_CERT_FILE=/ca", "TERM=xterm",
		"GITHUB_TOKEN=leak", "AWS_SECRET_ACCESS_KEY=leak", "COPILOT_CONNECTION_TOKEN=leak", "COPILOT_HOME=/mine",
		"LD_PRELOAD=/x.so", process.MarkerEnv + "=outer", "odd",
		"HTTPS_PROXY=http://user:pass@proxy:3128", "http_proxy=http://proxy:3128", "no_proxy=localhost",
		"ALL_PROXY=user:pass@proxy",
	}
	p := Profile{Home: "/h", Token: "tok", Env: map[string]string{"EXTRA": "1", "TERM": "vt100"}}
	env, withheld := environment(p, ours)
	want := map[string]string{
		"PATH": "/bin", "HOME": "/me", "LC_ALL": "C", "SSL_CERT_FILE": "/ca", "TERM": "vt100", "EXTRA": "1",
		"http_proxy": "http://proxy:3128", "no_proxy": "localhost", "COPILOT_HOME": "/h", tokenEnv: "tok",
	}
	if !reflect.DeepEqual(env, want) {
		t.Errorf("environment = %v\nwant          %v", env, want)
	}
	if slices.Sort(withheld); !slices.Equal(withheld, []string{"ALL_PROXY", "HTTPS_PROXY"}) {
		t.Errorf("withheld = %q", withheld)
	}
	env, _ = environment(Profile{UserHome: "/u"}, ours)
	if env["HOME"] != "/u" || env["TERM"] != "xterm" {
		t.Errorf("environment with a user home = %v", env)
	}
	if _, ok := env["COPILOT_HOME"]; ok {
		t.Error("our own COPILOT_HOME reached a profile without one")
	}
}
