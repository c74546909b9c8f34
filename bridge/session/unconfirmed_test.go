package session

import (
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A message that waits behind a turn is in the CLI's memory only. One that is lost with that is
// given to the next process, before those that come later.
func TestQueuedMessageOfALostRuntime(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "long", Turns: []fakecli.Turn{{Hang: true}}}}})
	r.open(Opening{})
	running := r.send(message("long"))
	r.awaitEvent("assistant.turn_start")
	queued := r.send(message("queued"))
	r.crash()
	if out := running.Waiter.Wait(t.Context(), 0); out.Status != lost || out.Err != nil {
		t.Errorf("the running turn ended as %v", out)
	}
	if queued.Waiter.state.Over() {
		t.Error("the queued message is settled before anybody has looked")
	}
	if out := r.send(message("next")).Waiter.Wait(t.Context(), 0); out.Status != completed {
		t.Errorf("the next turn ended as %v", out)
	}
	if out := queued.Waiter.Wait(t.Context(), 0); out.Status != completed || out.Err != nil {
		t.Errorf("the queued message's turn ended as %v", out)
	}
	if again, err := r.s.Repeat(t.Context(), queued.MessageID); err != nil || again.ResentID == "" || again.ResentID == queued.MessageID {
		t.Errorf("the queued message is now %q, %v", again.ResentID, err)
	}
	if again, err := r.s.Repeat(t.Context(), running.MessageID); err != nil || again.ResentID != "" {
		t.Errorf("the running turn's message is now %q, %v", again.ResentID, err)
	}
	got := r.received("session.send")
	if len(got) != 2 {
		t.Fatalf("the second life was given %q", got)
	}
	has(t, got[0], "queued")
	has(t, got[1], "next")
	note := r.await("the note", func(rec *journal.Record) bool { _, ok := rec.Note.(prompts.Resent); return ok }).Note.(prompts.Resent)
	if !slices.Equal(note.IDs, []string{queued.MessageID}) || len(note.As) != 1 {
		t.Errorf("readers are told %v", note)
	}
}

// Nobody tries any more: what cannot be settled is lost.
func TestDoubtEndsWithTheTrying(t *testing.T) {
	t.Parallel()
	s := played()
	w := s.newWaiter(nil)
	w.accept()
	s.mu.Lock()
	s.turnLost(lost)
	s.mu.Unlock()
	s.GiveUp(t.Context(), nil)
	if w.state.Over() {
		t.Fatal("it is over before its id is known")
	}
	w.identify("m1")
	wantReason(t, w.Wait(t.Context(), 0).Err, fault.SendInDoubt)
}

// The runtime ends while a message is being sent.
func TestSendDuringTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault string
		want  fault.Reason
	}{
		"it was not taken up": {fakecli.FaultExit, fault.SendInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: test.fault}}}})
			r.open(Opening{})
			r.mu.Lock()
			cli := r.cli
			r.mu.Unlock()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				<-cli.Exited()
				r.crash()
			}()
			_, err := r.s.Send(t.Context(), message("hi"))
			<-gone
			wantReason(t, err, test.want)
		})
	}
}

// What was sent when the runtime ended is found in the history by what it says, and answered
// as the CLI would have answered it.
func TestSentAfterAll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, params string
		want           string // "" where nothing tells
	}{
		"a message":             {"", `{"prompt":"two"}`, `{"messageId":"m2"}`},
		"by its name":           {"session.send", `{"prompt":"three"}`, `{"messageId":"m3"}`},
		"one from before":       {"session.send", `{"prompt":"one"}`, ""},
		"another":               {"session.send", `{"prompt":"four"}`, ""},
		"several":               {"session.sendMessages", `{"messages":[{"prompt":"two"},{"prompt":"three"}]}`, `{"messageIds":["m2","m3"]}`},
		"several, in part":      {"session.sendMessages", `{"messages":[{"prompt":"three"},{"prompt":"four"}]}`, ""},
		"several, out of order": {"session.sendMessages", `{"messages":[{"prompt":"three"},{"prompt":"two"}]}`, ""},
		"none":                  {"session.sendMessages", `{"messages":[]}`, ""},
		"a fleet":               {"session.fleet.start", `{"prompt":"two"}`, ""},
		"a fleet of few words":  {"session.fleet.start", `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := played()
			s.play("user.message", `{"messageId":"m1","content":"one"}`)
			before := s.journal.Last()
			s.play("user.message", `{"messageId":"m2","content":"two"}`)
			s.play("assistant.message", `{"content":"three"}`)
			s.play("user.message", `{"messageId":"m3","content":"three"}`)
			params, err := jsonobj.Parse([]byte(test.params))
			if err != nil {
				t.Fatal(err)
			}
			m := Message{Method: test.method, Params: params}
			ids, at := s.inHistory(m, before)
			got := ""
			if ids != nil {
				got = string(m.result(ids))
			}
			if got != test.want || (at != journal.Position{}) != (test.want != "") {
				t.Errorf("found %q at %v, want %q", got, at, test.want)
			}
		})
	}
}

// CLI 1.0.81 does not always name the message that it takes up: the order does.
func TestMessagesWithoutIDs(t *testing.T) {
	t.Parallel()
	s := played()
	first, second := s.newWaiter(nil), s.newWaiter(nil)
	for i, w := range []*Waiter{first, second} {
		w.accept()
		w.identify([]string{"m1", "m2"}[i])
	}
	s.play("user.message", "")
	s.play("session.error", `{"errorType":"query"}`)
	if !first.state.Over() || first.state.Outcome().Status != failed {
		t.Errorf("the first: %v", first.state.Outcome())
	}
	if second.state.Over() {
		t.Fatalf("the second ended with the first: %v", second.state.Outcome())
	}
	s.play("user.message", "")
	s.play("session.idle", "")
	if !second.state.Over() || second.state.Outcome().Status != completed {
		t.Errorf("the second: %v", second.state.Outcome())
	}
}
