package e2e

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestParticipantReturns cuts a client's connection while its tool runs: it takes its place
// again, and its answer counts.
func TestParticipantReturns(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("slow", call("slow", nil)), onResult("slow", say("{{tool_result}}")))
	cable := new(cable)
	client := st.dial(cable.option())
	slow := newHold()
	s, err := client.CreateSession(st.ctx, copilot.SessionOptions{Config: st.config(), Tools: []copilot.Tool{slow.tool("slow", "finished")}})
	if err != nil {
		t.Fatal(err)
	}
	st.adopt(s)
	id := s.ParticipantID()
	turn := st.goSay(st.client.Session(s.ID()), "slow")
	await(st, slow.asked, "the tool's call")
	cable.cut()
	if _, err := s.Get(st.ctx); err != nil { // by the next connection
		t.Fatal(err)
	}
	slow.release()
	if out := turn(); out.GetText() != "finished" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if s.ParticipantID() != id || slow.calls.Load() != 1 {
		t.Errorf("it is participant %q now, was %q; its tool was called %d times", s.ParticipantID(), id, slow.calls.Load())
	}
}

// TestCallbacksComeAgain looks at the same without the comforts of clients/go.
func TestCallbacksComeAgain(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	s := st.create(copilot.SessionOptions{})
	cable := new(cable)
	a := st.attachBy(st.dial(cable.option()), joinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	turn := st.goSay(s, "touch")
	asked := a.requested()
	cable.cut()
	if err := a.end(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	start := joinOf(s.ID(), &bridgev1.Handlers{Permission: true})
	start.Token = a.token
	again := st.attach(start)
	if !again.started.GetReturned() || again.id != a.id {
		t.Errorf("came back as %v", again.started)
	}
	if cb := again.requested(); cb.GetCallbackId() != asked.GetCallbackId() || !slices.Contains(cb.GetParticipantIds(), again.id) {
		t.Errorf("asked %v", cb)
	}
	again.answer(asked.GetCallbackId(), copilot.AnswerPermission(copilot.ApproveOnce()))
	turn()
}

func TestReplacedStream(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{})
	first := st.attach(joinOf(s.ID(), nil))
	start := joinOf(s.ID(), nil)
	start.Token = first.token
	second := st.attach(start)
	if !second.started.GetReturned() || second.id != first.id {
		t.Errorf("the second is %v", second.started)
	}
	wantError(t, first.end(), codes.Aborted, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED)
	if c := first.closed(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("the first was told %v", c)
	}
	now, err := s.Get(st.ctx)
	if err != nil || len(now.GetParticipants()) != 2 {
		t.Errorf("participants %v, %v", now.GetParticipants(), err)
	}
}

// TestGraceIsOver has a participant's place be gone, with its tools, when it comes too late.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{})
	cable := new(cable)
	start := joinOf(s.ID(), nil)
	start.Tools = append(start.Tools, answering("brief", "x").Definition)
	start.Grace = noGrace
	a := st.attachBy(st.dial(cable.option()), start)
	cable.cut()
	if err := a.end(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	<-time.After(500 * time.Millisecond) // the promise
	st.say(s, "anybody?")
	if offered := names(st.lastModelRequest().Tools); slices.Contains(offered, "brief") {
		t.Errorf("the model was offered %q", offered)
	}
	late := joinOf(s.ID(), nil)
	late.Token = a.token
	_, err := st.tryAttach(st.client, late)
	wantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND, "start.token")
}
