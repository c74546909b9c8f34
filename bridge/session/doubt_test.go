package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/fakecli"
)

// A message that waits behind a turn is in the CLI's memory only.
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
	if queued.Waiter.over() {
		t.Error("the queued message is settled before anybody has looked")
	}
	if _, err := r.s.Loaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := queued.Waiter.Wait(t.Context(), 0)
	wantReason(t, out.Err, fault.SendInDoubt)
	wantReason(t, r.s.Doubted(queued.MessageID), fault.SendInDoubt)
	if err := r.s.Doubted(running.MessageID); err != nil {
		t.Errorf("the running turn's message: %v", err)
	}
	if out := r.send(message("next")).Waiter.Wait(t.Context(), 0); out.Status != completed {
		t.Errorf("the next turn ended as %v", out)
	}
}

// Nobody tries any more: what cannot be settled is lost.
func TestDoubtEndsWithTheTrying(t *testing.T) {
	t.Parallel()
	s := played()
	w := s.newWaiter()
	w.accept()
	s.mu.Lock()
	s.turn.lost(lost, s.journal.Last())
	s.mu.Unlock()
	s.GiveUp()
	if w.over() {
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

// CLI 1.0.81 does not always name the message that it takes up: the order does.
func TestMessagesWithoutIDs(t *testing.T) {
	t.Parallel()
	s := played()
	first, second := s.newWaiter(), s.newWaiter()
	for i, w := range []*Waiter{first, second} {
		w.accept()
		w.identify([]string{"m1", "m2"}[i])
	}
	s.play("user.message", "")
	s.play("session.error", `{"errorType":"query"}`)
	if !first.over() || first.out.Status != failed {
		t.Errorf("the first: %v", first.out)
	}
	if second.over() {
		t.Fatalf("the second ended with the first: %v", second.out)
	}
	s.play("user.message", "")
	s.play("session.idle", "")
	if !second.over() || second.out.Status != completed {
		t.Errorf("the second: %v", second.out)
	}
}
