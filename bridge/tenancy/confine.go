package tenancy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// Confinement identifies what the policy says of the processes of a tenant: equal texts for
// equal confinements. It covers what decides what a process may touch, and what its
// environment holds.
func (t Tenant) Confinement() string {
	p := t.Profile
	raw, err := json.Marshal(struct {
		Sandbox, Args, Fields, Providers []string
		User                             *runtime.User
		Env, Homes                       map[string]string
		Home, UserHome, Dir, Token       string
		UseLogin                         bool
	}{
		Sandbox: p.Sandbox, Args: p.Args, User: p.User, Env: p.Env, Homes: t.Homes,
		Fields: slices.Sorted(slices.Values(t.Fields())), Providers: slices.Sorted(slices.Values(t.Providers)),
		Home: p.Home, UserHome: p.UserHome, Dir: p.Dir, Token: p.Token, UseLogin: p.UseLogin,
	})
	if err != nil {
		panic(err) // texts, numbers and maps of texts always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Confine returns a profile with the confinement of the current policy. base is the tenant's profile from which
// p was made. Members of p that equal base are replaced by the policy's. All others are the caller's; they
// remain if callers may still set them.
func (t Tenant) Confine(p, base runtime.Profile) (runtime.Profile, error) {
	now := t.Profile
	may := func(field string) bool { return slices.Contains(t.Fields(), field) }
	switch {
	case p.SessionFS != nil && !may("session_fs"):
		return p, notAnyMore("session_fs")
	case p.ModelInference != nil && !may("model_inference"):
		return p, notAnyMore("model_inference")
	}
	p.Sandbox, p.User, p.Args, p.Confinement = now.Sandbox, now.User, now.Args, t.Confinement()
	named := slices.Contains(slices.Collect(maps.Values(t.Homes)), p.Home)
	for _, text := range []struct {
		to        *string
		base, now string
		may       bool
	}{
		{&p.Home, base.Home, now.Home, may("home") || named},
		{&p.UserHome, base.UserHome, now.UserHome, may("user_home")},
		{&p.Dir, base.Dir, now.Dir, may("working_directory")},
		{&p.Token, base.Token, now.Token, may("github_token")},
		{&p.LogLevel, base.LogLevel, now.LogLevel, may("log_level")},
	} {
		if !text.may || *text.to == text.base {
			*text.to = text.now
		}
	}
	for _, flag := range []struct {
		to        *bool
		base, now bool
		may       bool
	}{
		{&p.UseLogin, base.UseLogin, now.UseLogin, may("use_login")},
		{&p.Telemetry, base.Telemetry, now.Telemetry, may("telemetry")},
		{&p.ExtensionLaunch, base.ExtensionLaunch, now.ExtensionLaunch, may("extension_launch")},
	} {
		if !flag.may || *flag.to == flag.base {
			*flag.to = flag.now
		}
	}
	p.Env = confineEnv(p.Env, base.Env, now.Env, may("env"))
	return p, nil
}

// confineEnv puts the environment that a caller has added, if it still may, over the policy's.
func confineEnv(env, base, now map[string]string, may bool) map[string]string {
	out := maps.Clone(now)
	if !may {
		return out
	}
	for name, value := range env {
		if was, ok := base[name]; ok && was == value {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}

func notAnyMore(field string) error {
	return fault.New(fault.Forbidden, "the session has %s, which the policy no longer allows its tenant", field).
		WithField("runtime_profile." + field)
}
