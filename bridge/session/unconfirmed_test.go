package session

import (
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A message that waits behind a turn is only in the CLI's memory. If the CLI loses it, the next process
// receives it before later messages.
func TestQueuedMessageOfALostRuntime(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "long", Turns: []fakecli.Turn{{Hang: true}}}}})
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
	if again, err := r.s.sender.Repeat(t.Context(), queued.MessageID); err != nil || again.ResentID == "" || again.ResentID == queued.MessageID {
		t.Errorf("the queued message is now %q, %v", again.ResentID, err)
	}
	if again, err := r.s.sender.Repeat(t.Context(), running.MessageID); err != nil || again.ResentID != "" {
		t.Errorf("the running turn's message is now %q, %v", again.ResentID, err)
	}
	got := r.received("session.send")
	if len(got) != 2 {
		t.Fatalf("the second life was given %q", got)
	}
	has(t, got[0], "queued")
	has(t, got[1], "next")
	note := r.await("the note", func(rec *journal.Record) bool { _, ok := rec.Note.(Resent); return ok }).Note.(Resent)
	if !slices.Equal(note.IDs, []string{queued.MessageID}) || len(note.As) != 1 {
		t.Errorf("readers are told %v", note)
	}
}

// The CLI confirms an abort and ends before it reports that it is idle. No history contains the message that the abort
// removed: its sender learns of the abort.
func TestRuntimeEndsBehindAnAbort(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "long", Turns: []fakecli.Turn{{Hang: true}}}}})
	r.open(Opening{})
	running := r.send(message("long"))
	r.awaitEvent("assistant.turn_start")
	queued := r.send(message("queued"))
	if running, err := r.s.prompts.abort(t.Context(), r.s.prompts.acknowledged(), r.s.prompts.awaitStored); !running || err != nil {
		t.Fatal("no prompt was ended")
	}
	r.crash()
	if out := running.Waiter.Wait(t.Context(), time.Minute); out.Status != lost {
		t.Errorf("the running turn ended as %v", out)
	}
	if out := queued.Waiter.Wait(t.Context(), time.Second); out.Status != aborted || out.Err != nil {
		t.Errorf("the queued message ended as %v", out)
	}
	r.send(message("next")).Waiter.Wait(t.Context(), time.Minute)
	if given := r.received("session.send"); len(given) != 1 {
		t.Errorf("the next runtime got %q", given)
	}
}

// The runtime ends while a message is being sent.
func TestSendDuringTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault string
		want  fault.Reason
	}{
		"it was not taken up": {fakecli.FaultExit, fault.SendUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: test.fault}}}})
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
			_, err := sendAndAwaitReply(t.Context(), r.s, message("hi"))
			<-gone
			wantReason(t, err, test.want)
		})
	}
}

// CLI 1.0.81 does not always name the message that it takes up: the order does.
func TestMessagesWithoutIDs(t *testing.T) {
	t.Parallel()
	s := played()
	first, second := s.turns.expect(nil), s.turns.expect(nil)
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

// The CLI takes a message up and ends before it replies and before it stores the message: readers have seen it, and the
// conversation does not contain it.
func TestMessageLostBeforeItsReply(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.send", After: 1, Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
	}})
	r.open(Opening{})
	r.send(message("one")).Waiter.Wait(t.Context(), time.Minute)
	r.awaitEvent("session.idle")
	type reply struct {
		sent Sent
		err  error
	}
	replied := make(chan reply, 1)
	r.s.sender.Start(t.Context(), message("two"), func(sent Sent, err error) { replied <- reply{sent, err} })
	if _, err := r.rt.Call(t.Context(), "ping", nil); err != nil { // the CLI has the message when it answers
		t.Fatal(err)
	}
	r.s.play("user.message", `{"messageId":"m9","content":"two"}`)
	r.crash()
	got := <-replied
	sent, err := got.sent, got.err
	if wantReason(t, err, fault.SendUnconfirmed); err == nil {
		t.Fatalf("it was sent as %q", sent.MessageID)
	}
	has(t, err.Error(), "before it stored it")
	if out := r.send(message("three")).Waiter.Wait(t.Context(), time.Minute); out.Status != completed {
		t.Errorf("the next turn ended as %v", out)
	}
	if given := r.received("session.send"); len(given) != 1 {
		t.Errorf("the next runtime got %q", given)
	}
}
