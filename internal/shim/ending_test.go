package shim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// replying is a CLI that has some more methods.
func replying(replies map[string]string) fakecli.Script {
	s := fakecli.Script{Replies: map[string]json.RawMessage{}}
	for method, reply := range replies {
		s.Replies[method] = json.RawMessage(reply)
	}
	return s
}

// A session that was deleted is gone for the program that had it open: resuming it is
// refused by the CLI, and not for want of a participant's token.
func TestResumeOfDeleted(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script).connect(false)
	p.call("session.create", creation)
	p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
	p.await("session.idle", 1)
	if got := p.call("session.delete", `{"sessionId":"s1"}`); got != string(succeeded) {
		t.Fatalf("deleted: %s", got)
	}
	p.await("session.deleted", 1)
	if got := p.call("session.resume", `{"sessionId":"s1"}`); !strings.Contains(got, "Session not found: s1") {
		t.Errorf("resumed: %s", got)
	}
	if got := p.call("session.destroy", `{"sessionId":"s1"}`); got != string(nothing) {
		t.Errorf("destroyed: %s", got)
	}
	if got := p.call("session.create", creation); !strings.Contains(got, `"sessionId":"s1"`) {
		t.Errorf("made anew: %s", got)
	}
}

// Programs learn that a session was deleted even if none had it open any more.
func TestDeletionOfLeftIsTold(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script).connect(false)
	p.call("session.create", creation)
	p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
	p.await("session.idle", 1)
	p.call("session.destroy", `{"sessionId":"s1"}`)
	p.call("session.delete", `{"sessionId":"s1"}`)
	p.await("session.deleted", 1)
}

// session.shutdown is the CLI's, and what needs the session next finds it.
func TestShutdownOfASession(t *testing.T) {
	t.Parallel()
	s := replying(map[string]string{"session.shutdown": "null", "session.suspend": "null"})
	s.Prompts = script.Prompts
	p := newFixture(t, s).connect(false)
	p.call("session.create", creation)
	for i := range 3 {
		p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
		p.await("session.idle", i+1)
		method := []string{"session.suspend", "session.shutdown", "session.shutdown"}[i]
		for range 2 {
			if got := p.call(method, `{"sessionId":"s1"}`); got != "null" {
				t.Errorf("%s: %s", method, got)
			}
		}
	}
	if got := p.call("session.destroy", `{"sessionId":"s1"}`); got != string(succeeded) {
		t.Errorf("destroyed: %s", got)
	}
}

// Calls about a whole CLI process go to it where the program has the bridge to itself, and nowhere else.
func TestWholeProcess(t *testing.T) {
	t.Parallel()
	s := replying(map[string]string{
		"sessions.open": `{"status":"not_found"}`, "sessions.close": `{}`, "sessions.setAdditionalPlugins": `{}`,
		"session.ui.registerDirectAutoModeSwitchHandler": `{"handle":"h"}`,
	})
	calls := [][2]string{
		{"sessions.open", `{}`},
		{"sessions.setAdditionalPlugins", `{"plugins":[]}`},
		{"session.ui.registerDirectAutoModeSwitchHandler", `{"sessionId":"s1"}`},
		{"sessions.close", `{"sessionId":"s1"}`},
	}
	shared, alone := newFixture(t, s).connect(false), newFixtureWith(t, s, sole).connect(false)
	for _, p := range []*program{shared, alone} {
		p.call("session.create", creation)
	}
	for _, call := range calls {
		if got := shared.call(call[0], call[1]); !strings.Contains(got, "Unhandled method "+call[0]) {
			t.Errorf("in a shared bridge %s: %s", call[0], got)
		}
		if got, want := alone.call(call[0], call[1]), string(s.Replies[call[0]]); got != want {
			t.Errorf("%s: got %s, want %s", call[0], got, want)
		}
	}
	if got := alone.call("session.send", `{"sessionId":"s1","prompt":"x"}`); !strings.Contains(got,
		"Session not found for sessionId: s1") {
		t.Errorf("sent into a closed session: %s", got)
	}
	if got := shared.call("session.send", `{"sessionId":"s1","prompt":"x"}`); !strings.Contains(got, "messageId") {
		t.Errorf("sent: %s", got)
	}
}

// A request that is too long for a frame reaches the program whole, and as the CLI wrote it.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	question := strings.Repeat("Which? ", 400_000)
	params, err := json.Marshal(map[string]any{"question": question, "choices": []string{}, "allowFreeform": true,
		"unheardOf": nil})
	if err != nil {
		t.Fatal(err)
	}
	s := fakecli.Script{Prompts: []fakecli.Prompt{{Match: "long", Turns: []fakecli.Turn{{
		Requests: []fakecli.Reverse{{Method: "userInput.request", Params: params}}, Text: "Fine.",
	}}}}}
	asked := make(chan json.RawMessage, 2)
	for _, direct := range []bool{true, false} {
		p := newFixture(t, s).connect(direct)
		p.answer = func(_ string, params json.RawMessage) (json.RawMessage, error) {
			asked <- append(json.RawMessage(nil), params...)
			return json.RawMessage(`{"answer":"b","wasFreeform":true}`), nil
		}
		p.call("session.create", creation)
		p.call("session.send", `{"sessionId":"s1","prompt":"long"}`)
		p.await("session.idle", 1)
	}
	want, got := masked(t, []string{string(<-asked)}), masked(t, []string{string(<-asked)})
	if got[0] != want[0] || len(got[0]) < len(question) {
		t.Errorf("asked with %d bytes, want %d", len(got[0]), len(want[0]))
	}
}
