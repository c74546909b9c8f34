package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Settings survive a restart of the bridge: the newest of each kind, without secrets.
func TestSettingsAreSaved(t *testing.T) {
	t.Parallel()
	params := func(text string) jsonobj.Object {
		o, err := jsonobj.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	s := New(Config{ID: "s1", Host: &fixture{}})
	s.loader.state = Loaded
	s.settings.State.Remember(config.Setting{Key: "skill\x00a", Method: "session.skills.disable", Params: params(`{"name":"a"}`)}, false)
	s.settings.State.Remember(config.Setting{Key: "options", Method: "session.options.update", Params: params(`{"model":"m","verbosity":"low"}`)}, true)
	s.settings.State.Remember(config.Setting{Key: "", Method: "session.provider.add", Params: params(`{"providers":[{"apiKey":"secret"}]}`)}, false)
	s.settings.State.Remember(config.Setting{Key: "skill\x00a", Method: "session.skills.enable", Params: params(`{"name":"a"}`)}, false)
	s.settings.State.Remember(config.Setting{Key: "options", Method: "session.options.update", Params: params(`{"verbosity":"high"}`)}, true)

	after := New(Config{ID: "s1", Host: &fixture{}})
	if err := after.Restore(savedText(s, nil, nil), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range after.settings.State.Settings {
		got = append(got, one.Method+string(one.Params.JSON()))
	}
	want := []string{`session.skills.enable{"name":"a"}`, `session.options.update{"model":"m","verbosity":"high"}`}
	if !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// A setting that carried secrets is missing in the bridge's next life: the session says so,
// by method and member, and goes on when the call is made again.
func TestSettingsWithSecrets(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{
		Replies: map[string]json.RawMessage{"session.provider.add": json.RawMessage(`{}`), "session.options.update": json.RawMessage(`{"success":true}`)},
		Faults:  []fakecli.MethodFault{{Method: "session.provider.add", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "no"}}},
	})
	r.open(Opening{})
	r.send(message("one")).Waiter.Wait(t.Context(), 0)
	add, update := object(t, `{"providers":[{"name":"p","apiKey":"SECRET"}]}`), object(t, `{"verbosity":"low","provider":{"apiKey":"SECRET"}}`)
	if _, _, err := r.s.settings.Apply(t.Context(), "session.provider.add", add, config.Keep{}); err == nil { // once in each life
		t.Error("the CLI refused, without an error")
	}
	for method, params := range map[string]jsonobj.Object{"session.provider.add": add, "session.options.update": update} {
		keep := config.Keep{Key: map[string]string{"session.options.update": "options"}[method], Merge: true}
		if _, _, err := r.s.settings.Apply(t.Context(), method, params, keep); err != nil {
			t.Fatal(err)
		}
	}
	text := savedText(r.s, nil, nil)
	if strings.Contains(string(text), "SECRET") || !strings.Contains(string(text), "verbosity") {
		t.Errorf("kept is %s", text)
	}
	r.crash()
	next := New(Config{ID: "s1", Host: r, Epoch: 8, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	if err := next.Restore(text, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"session.options.update.provider.apiKey", "session.provider.add.providers.apiKey"}
	if !slices.Equal(next.settings.State.Missing, want) {
		t.Errorf("missing are %q, want %q", next.settings.State.Missing, want)
	}
	_, _, err := next.settings.Apply(t.Context(), "session.provider.add", add, config.Keep{})
	if fault.ReasonOf(err) != fault.CredentialsNeeded || !strings.Contains(err.Error(), want[0]) || len(next.settings.State.Missing) != 2 {
		t.Errorf("one of two given: %v, missing %q", err, next.settings.State.Missing)
	}
	next.settings.State.Regained("session.options.update")
	if _, _, err := next.settings.Apply(t.Context(), "session.provider.add", add, config.Keep{}); err == nil || !slices.Equal(next.settings.State.Missing, want[1:]) {
		t.Errorf("the CLI refused, the error is %v, missing %q", err, next.settings.State.Missing)
	}
	if _, _, err := next.settings.Apply(t.Context(), "session.provider.add", add, config.Keep{}); err != nil || len(next.settings.State.Missing) > 0 {
		t.Errorf("given again: %v, missing %q", err, next.settings.State.Missing)
	}
	if _, err := next.loader.Load(t.Context()); err != nil {
		t.Error(err)
	}
}

// A call that sets something does not wait for a resume that waits for another call: whoever answers what that call asks may
// set something first.
func TestSettingsPassAWaitingResume(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{})
	calls := &r.s.participants.resumes
	if err := calls.beginCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	go func() {
		_, err := r.s.loader.Resume(t.Context(), Opening{})
		resumed <- err
	}()
	for len(r.s.loader.lifecycle) == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := r.s.settings.Apply(ctx, "session.mode.set", object(t, `{"mode":"plan"}`), config.Keep{Key: "mode"}); err != nil {
		t.Error(err)
	}
	if len(resumed) > 0 {
		t.Error("the resume did not wait for the call")
	}
	calls.endCall()
	if err := <-resumed; err != nil {
		t.Error(err)
	}
}

// A load leaves out a setting that the CLI refuses, and fails with its runtime.
func TestRepeatedSettingFails(t *testing.T) {
	t.Parallel()
	for reason, want := range map[fault.Reason]fault.Reason{fault.SessionRefused: 0, fault.RuntimeLost: fault.RuntimeLost} {
		rt := &puppet{answer: func(method string) (string, error) {
			if method == "session.skills.disable" {
				return "", fault.New(reason, "it fails")
			}
			return `{}`, nil
		}}
		s := onStock(t, &stock{rt: rt})
		s.settings.State.Remember(config.Setting{Method: "session.skills.disable"}, false)
		s.settings.State.Remember(config.Setting{Method: "session.skills.enable"}, false)
		err := s.settings.repeat(t.Context(), rt)
		if got := fault.ReasonOf(err); got != want || rt.called("session.skills.enable") != (want == 0) {
			t.Errorf("%v: it fails with %v; calls %q", reason, err, rt.calls)
		}
	}
}
