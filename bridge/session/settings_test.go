package session

import (
	"slices"
	"testing"
)

// What is set is kept for the bridge's next life, the newest of each kind, without what
// carries secrets.
func TestSettingsAreSaved(t *testing.T) {
	t.Parallel()
	params := func(text string) Object {
		o, err := ParseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	s := New(Config{ID: "s1"})
	s.state = Loaded
	s.remember(setting{"skill\x00a", "session.skills.disable", params(`{"name":"a"}`)}, false)
	s.remember(setting{"options", "session.options.update", params(`{"model":"m","verbosity":"low"}`)}, true)
	s.remember(setting{"", "session.provider.add", params(`{"providers":[{"apiKey":"secret"}]}`)}, false)
	s.remember(setting{"skill\x00a", "session.skills.enable", params(`{"name":"a"}`)}, false)
	s.remember(setting{"options", "session.options.update", params(`{"verbosity":"high"}`)}, true)

	after := New(Config{ID: "s1"})
	if err := after.Restore(s.Save(nil, nil), nil, nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range after.settings {
		got = append(got, one.method+string(one.params.JSON()))
	}
	want := []string{`session.skills.enable{"name":"a"}`, `session.options.update{"model":"m","verbosity":"high"}`}
	if !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}
