package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// make creates the fixture's session.
func (r *fixture) make(o Opening) {
	r.t.Helper()
	if _, err := r.s.loader.Create(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

// savedText is the stored form of a session.
func savedText(s *Session, defaults jsonobj.Object, providers Providers) json.RawMessage {
	text, _ := s.Save(defaults, providers)
	return text
}

// Secrets are not kept, wherever they stand, and the session knows which it lacks.
func TestSavedWithoutSecrets(t *testing.T) {
	t.Parallel()
	const given = `{"model":"m","provider":{"baseUrl":"u","apiKey":"SECRET","headers":{"A":"SECRET"},"bearerToken":""},` +
		`"gitHubToken":"SECRET","mcpServers":{"one":{"command":"c","env":{"K":"SECRET"}},"two":{"url":"u","headers":{}}},` +
		`"list":[{"password":"SECRET"},{"ok":true}],"systemMessage":{"content":"kept"}}`
	r := newFixture(t, fakecli.Script{})
	r.make(Opening{Config: object(t, given), Tools: &[]config.Tool{{Name: "t", JSON: json.RawMessage(`{"name":"t"}`)}}, Lifetime: bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT})
	r.s.mu.Lock()
	joined, err := r.s.participants.add(Joining{Brings: roster.Brings{Name: "n", Tools: tools("own"), Grace: time.Hour}})
	r.s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	p := joined.Participant
	text := string(savedText(r.s, nil, nil))
	if strings.Contains(text, "SECRET") || strings.Contains(text, p.Token) || !strings.Contains(text, "kept") {
		t.Errorf("kept is %s", text)
	}
	next := New(Config{ID: "s1", Host: r, Epoch: 8})
	if err := next.Restore(json.RawMessage(text), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"gitHubToken", "list.password", "mcpServers.one.env", "provider.apiKey", "provider.headers"}
	if !slices.Equal(next.settings.State.Missing, want) {
		t.Errorf("missing are %v, want %v", next.settings.State.Missing, want)
	}
	if _, err := next.loader.Load(t.Context()); fault.ReasonOf(err) != fault.CredentialsNeeded {
		t.Errorf("loading without secrets: %v", err)
	}
	if got := next.Snapshot(); got.GetState() != bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED ||
		got.GetModelId() != r.s.Snapshot().GetModelId() || got.GetLifetime() != bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT {
		t.Errorf("the next life has %v", got)
	}
	// Only the caller with the token is the same participant.
	next.mu.Lock()
	defer next.mu.Unlock()
	if _, err := next.participants.add(Joining{Token: "another"}); fault.ReasonOf(err) != fault.ParticipantNotFound {
		t.Errorf("with another token: %v", err)
	}
	back, err := next.participants.add(Joining{Token: p.Token, Brings: roster.Brings{Grace: time.Hour}})
	if err != nil || !back.Returned || back.Participant.ID != p.ID {
		t.Errorf("with the token: %+v, %v, %v", back.Participant, back.Returned, err)
	}
	back.Participant.StopTimer()
}

// Defaults of the bridge are not stored: the next process may have others.
func TestSavedDefaults(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	before, after := object(t, `{"provider":{"baseUrl":"old","apiKey":"k"}}`), object(t, `{"provider":{"baseUrl":"new","apiKey":"l"}}`)
	r.make(Opening{Config: before.Merge(object(t, `{"model":"m"}`))})
	next := New(Config{ID: "s1", Host: r, Epoch: 8})
	if err := next.Restore(savedText(r.s, before, nil), nil, after, nil); err != nil {
		t.Fatal(err)
	}
	if got := string(next.settings.State.Object.Get("provider")); got != `{"baseUrl":"new","apiKey":"l"}` || next.settings.State.Missing != nil {
		t.Errorf("the provider is %s, missing %v", got, next.settings.State.Missing)
	}
}

// A provider of the bridge's own configuration is not kept either: its next life gives what
// it has under the name then. Without that the session says what it lacks.
func TestSavedProviderRef(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	named := func(key string) Providers {
		return Providers{"ours": json.RawMessage(`{"baseUrl":"u","apiKey":"` + key + `"}`)}
	}
	r.make(Opening{ProviderRef: "ours", Config: object(t, `{"provider":`+string(named("SECRET")["ours"])+`}`)})
	text := savedText(r.s, nil, named("SECRET"))
	if strings.Contains(string(text), "SECRET") {
		t.Errorf("kept is %s", text)
	}
	next := New(Config{ID: "s1", Host: r, Epoch: 8})
	if err := next.Restore(text, nil, nil, named("fresh")); err != nil {
		t.Fatal(err)
	}
	if got := string(next.settings.State.Object.Get("provider")); got != string(named("fresh")["ours"]) || next.settings.State.Missing != nil {
		t.Errorf("the provider is %s, missing %v", got, next.settings.State.Missing)
	}
	// Its key was replaced while the session was open.
	if again := string(savedText(r.s, nil, named("ROTATED"))); again != string(text) {
		t.Errorf("after another key, kept is %s, was %s", again, text)
	}
	next = New(Config{ID: "s1", Host: r, Epoch: 9})
	if err := next.Restore(text, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(next.settings.State.Missing, []string{"provider"}) {
		t.Errorf("without the name, missing are %v", next.settings.State.Missing)
	}
}

// TestSavedState: the next process has a session as it was left: disconnected, or open and in no runtime. Each change of that
// is saved.
func TestSavedState(t *testing.T) {
	t.Parallel()
	for _, end := range []bool{false, true} {
		f := newCrowded()
		if f.saved = 0; end {
			if _, err := f.of.loader.Disconnect(t.Context(), true); err != nil || f.saved == 0 {
				t.Fatalf("disconnected: %v, saved %d times", err, f.saved)
			}
		}
		next := New(Config{ID: "s1", Host: f, Epoch: 8})
		if err := next.Restore(savedText(f.of, nil, nil), nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		if state := next.loader.State(); end != (state == Disconnected) || end == (state == Unloaded) {
			t.Errorf("disconnected %v: the next process has it in state %v", end, state)
		}
	}
}

// Callbacks that were pending when the bridge ended are saved until a runtime has the session again: each process that ends
// before that leaves it to the next one to load the session.
func TestPendingIsSavedUntilALoad(t *testing.T) {
	t.Parallel()
	text := json.RawMessage(`{"config":{},"pending":["p1","p2"]}`)
	for range 2 {
		s := New(Config{ID: "s1", Host: &fixture{}, Epoch: 8})
		if err := s.Restore(text, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		s.callbacks.Registry().Add(&callback.Pending{ID: "p2", Kind: callback.ForEvent(callback.ToolRequested)}, nil)
		text = savedText(s, nil, nil)
		if !s.Awaited() || strings.Count(string(text), "p1") != 1 || strings.Count(string(text), "p2") != 1 {
			t.Errorf("awaited: %v, saved: %s", s.Awaited(), text)
		}
		s.loader.loadedIn(&puppet{})
		if after := string(savedText(s, nil, nil)); strings.Contains(after, "p1") || !strings.Contains(after, "p2") {
			t.Errorf("when a runtime has it, saved is %s", after)
		}
	}
}

// TestShutdownIsSaved: that the work of a session has ended is saved, and that a load has begun it again.
func TestShutdownIsSaved(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	f.of.ingester.Known.HasHistory = true
	if _, _, err := f.of.loader.Shutdown(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for f.saved = 0; f.of.loader.State() != Loaded; {
		f.of.loader.loadedIn(f)
	}
	if f.saved == 0 || f.of.loader.shut {
		t.Errorf("loaded again, saved %d times, the work has ended: %v", f.saved, f.of.loader.shut)
	}
}

// TestSecretsAreSavedApart: with what Save returns beside the stored form, the next process lacks nothing.
func TestSecretsAreSavedApart(t *testing.T) {
	t.Parallel()
	for given, secret := range map[string]bool{`{"model":"m","gitHubToken":"SECRET"}`: true, `{"model":"m"}`: false} {
		r := newFixture(t, fakecli.Script{})
		r.make(Opening{Config: object(t, given)})
		text, apart := r.s.Save(nil, nil)
		if strings.Contains(string(text), "SECRET") || (apart != nil) != secret || secret && !strings.Contains(string(apart), "SECRET") {
			t.Errorf("%s is stored as %s and %s", given, text, apart)
		}
		next := New(Config{ID: "s1", Host: r, Epoch: 8})
		if err := next.Restore(text, apart, nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := string(next.settings.State.Object.JSON()); got != given || next.settings.State.Missing != nil {
			t.Errorf("the next process has %s, missing %v", got, next.settings.State.Missing)
		}
		if err := next.Restore(text, []byte("{"), nil, nil); err == nil {
			t.Error("a secret that cannot be read is none")
		}
	}
}

// A configuration that the CLI has not accepted yet is not saved: if it refuses it, no later process could load the session.
func TestUnacceptedIsNotSaved(t *testing.T) {
	t.Parallel()
	s := New(Config{ID: "s1", Host: &fixture{}})
	s.loader.state = Loaded
	err := s.settings.try(func() error {
		s.settings.State.Object = object(t, `{"model":"m"}`)
		return nil
	}, func() error {
		lacks(t, string(savedText(s, nil, nil)), `"model"`)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	has(t, string(savedText(s, nil, nil)), `"model":"m"`)
}

// TestRestoreWithoutATimeout: what a saved state does not have is as in a new session.
func TestRestoreWithoutATimeout(t *testing.T) {
	t.Parallel()
	before := New(Config{ID: "s1", Host: &fixture{}})
	before.loader.state, before.loader.timeout = Loaded, 0
	s := New(Config{ID: "s1", Host: &fixture{}})
	if err := s.Restore(savedText(before, nil, nil), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if s.loader.timeout != callback.DefaultTimeout {
		t.Errorf("callbacks have %v", s.loader.timeout)
	}
	if got := s.Snapshot().GetOnInterruption(); got != bridgev1.OnInterruption_ON_INTERRUPTION_REPORT {
		t.Errorf("an interruption is followed by %v", got)
	}
}
