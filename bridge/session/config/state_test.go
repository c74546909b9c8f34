package config

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// TestSettings: for any sequence of settings, keys are unique, the latest setting is the last, a copy of the
// state does not change, and a saved state can be restored.
func TestSettings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var s State
		for n := range rapid.IntRange(1, 30).Draw(rt, "settings") {
			savepoint, before := s, fmt.Sprint(s.Settings)
			one := Setting{Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "key"), Method: "session.options.update"}
			one.Params.SetString(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "member"), fmt.Sprint(n))
			s.Remember(one, rapid.Bool().Draw(rt, "merge"))
			last := s.Settings[len(s.Settings)-1]
			if last.Key != one.Key || !slices.ContainsFunc(last.Params, func(m jsonobj.Member) bool { return string(m.Value) == fmt.Sprintf("%q", fmt.Sprint(n)) }) {
				rt.Fatalf("the last setting is %v, want %v", last, one)
			}
			if fmt.Sprint(savepoint.Settings) != before {
				rt.Fatal("a savepoint has changed")
			}
		}
		seen := map[string]bool{}
		for _, one := range s.Settings {
			if one.Key != "" && seen[one.Key] {
				rt.Fatalf("two settings have the key %q", one.Key)
			}
			seen[one.Key] = true
		}
		saved, _ := s.Save(nil, nil)
		again, err := Restore(saved, nil, nil)
		if err != nil || fmt.Sprint(again.Settings) != fmt.Sprint(s.Settings) {
			rt.Fatalf("restored are %v, %v; want %v", again.Settings, err, s.Settings)
		}
	})
}

// TestMissing: secrets are missing until a caller sets their member or calls their method again.
func TestMissing(t *testing.T) {
	t.Parallel()
	s := State{Missing: []string{"provider.apiKey", "providers.x", "session.options.update.token"}}
	if err := s.CredentialsNeeded("s1"); fault.ReasonOf(err) != fault.CredentialsNeeded {
		t.Errorf("the error is %v", err)
	}
	given := s.Regained("provider", "session.options.update")
	if want := []string{"provider.apiKey", "session.options.update.token"}; !slices.Equal(given, want) {
		t.Errorf("given are %q, want %q", given, want)
	}
	s.Lack(given...)
	s.Forget() // a setting's secrets go with the settings
	if want := []string{"providers.x", "provider.apiKey"}; !slices.Equal(s.Missing, want) {
		t.Errorf("missing are %q, want %q", s.Missing, want)
	}
	if s.Regained("provider", "providers"); s.CredentialsNeeded("s1") != nil {
		t.Errorf("%q are still missing", s.Missing)
	}
}
