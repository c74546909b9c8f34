package sessions

import (
	"maps"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// A saved profile has no secrets. Restoring it adds the secrets of the tenant's profile.
func TestSavedProfilesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	own := runtime.Profile{Home: "/home", Token: "t", Env: map[string]string{"A": "1"}}
	with := func(change func(*runtime.Profile)) runtime.Profile {
		p := own
		p.Env = maps.Clone(own.Env)
		change(&p)
		return p
	}
	for name, test := range map[string]struct {
		p     runtime.Profile
		saved bool
		lacks []string
	}{
		"the tenant's own": {p: own},
		"another home":     {p: with(func(p *runtime.Profile) { p.Home = "/other" }), saved: true},
		"another token":    {p: with(func(p *runtime.Profile) { p.Token = "x" }), saved: true, lacks: []string{profileToken}},
		"another variable": {p: with(func(p *runtime.Profile) { p.Env["B"] = "2" }), saved: true, lacks: []string{profileEnv}},
	} {
		saved, lacks := withoutSecrets(test.p, own)
		if (saved != nil) != test.saved || !slices.Equal(lacks, test.lacks) {
			t.Errorf("%s: saved %v without %v", name, saved, lacks)
		}
		if saved == nil {
			continue
		}
		if saved.Token != "" || saved.Env != nil {
			t.Errorf("%s: the secrets %q, %v are saved", name, saved.Token, saved.Env)
		}
		if back := withSecrets(*saved, own); back.Token != own.Token || !maps.Equal(back.Env, own.Env) || back.Home != test.p.Home {
			t.Errorf("%s: restored as %v", name, back)
		}
	}
}
