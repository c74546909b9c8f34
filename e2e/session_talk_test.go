package e2e

import (
	"strings"
	"testing"
)

func TestSessionStateful(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
rules:
  - when: {user: "What is my name", body: "My name is Ada"}
    reply: [{text: "Ada."}]
default: {reply: [{text: "Noted."}]}`)
	s := r.session(r.options())
	if got := s.ask("My name is Ada."); got != "Noted." {
		t.Errorf("first answer is %q", got)
	}
	if got := s.ask("What is my name?"); got != "Ada." {
		t.Errorf("second answer is %q", got)
	}
	last := r.lastModelRequest()
	var said []string
	for _, m := range last.Messages {
		said = append(said, string(m.Role)+" "+m.Text)
	}
	talk := strings.Join(said, "\n")
	for _, want := range []string{"My name is Ada.", "assistant Noted.", "What is my name?"} {
		if !strings.Contains(talk, want) {
			t.Errorf("the model was not told %q, but:\n%s", want, talk)
		}
	}
	wantOrder(t, s.recordedTypes(), "session.start", "user.message", "assistant.message", "user.message", "assistant.message")
}
