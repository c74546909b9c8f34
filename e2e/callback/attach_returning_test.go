package callback

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestParticipantReturns cuts a client's connection while its tool runs: it takes its place
// again, and its answer counts.
func TestParticipantReturns(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("slow", harness.Call("slow", nil)),
		harness.OnResult("slow", harness.Say("{{tool_result}}")))
	cable := new(harness.Cable)
	client := st.Dial(cable.Option())
	slow := harness.NewHold()
	s, err := client.CreateSession(st.Ctx,
		copilot.SessionOptions{Config: st.Config(), Tools: []copilot.Tool{slow.Tool("slow", "finished")}})
	if err != nil {
		t.Fatal(err)
	}
	st.Adopt(s)
	id := s.ParticipantID()
	turn := st.GoSay(st.Client.Session(s.ID()), "slow")
	harness.Await(st, slow.Asked, "the tool's call")
	cable.Cut()
	if _, err := s.Get(st.Ctx); err != nil { // by the next connection
		t.Fatal(err)
	}
	slow.Release()
	if out := turn(); out.Text() != "finished" {
		t.Errorf("the agent said %q", out.Text())
	}
	if s.ParticipantID() != id || slow.Calls.Load() != 1 {
		t.Errorf("it is participant %q now, was %q; its tool was called %d times", s.ParticipantID(), id,
			slow.Calls.Load())
	}
}

// TestCallbacksComeAgain looks at the same without the comforts of clients/go.
func TestCallbacksComeAgain(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnResult("bash", harness.Say("done")))
	s := st.Create(copilot.SessionOptions{})
	cable := new(harness.Cable)
	a := st.AttachBy(st.Dial(cable.Option()), harness.JoinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	turn := st.GoSay(s, "touch")
	asked := a.Requested()
	cable.Cut()
	if err := a.End(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	start := harness.JoinOf(s.ID(), &bridgev1.Handlers{Permission: true})
	start.ParticipantToken = a.Token
	again := st.Attach(start)
	if !again.Started.GetResumed() || again.ID != a.ID {
		t.Errorf("came back as %v", again.Started)
	}
	if cb := again.Requested(); cb.GetCallbackId() != asked.GetCallbackId() ||
		!slices.Contains(cb.GetParticipantIds(), again.ID) {
		t.Errorf("asked %v", cb)
	}
	again.Answer(asked.GetCallbackId(), copilot.AnswerPermission(copilot.ApproveOnce()))
	turn()
}

// A program that closes while its stream is broken leaves by its token: its tool's name is free at once, also after the
// server was killed in the meantime.
func TestLeaveByToken(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	s, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{Config: d.Config()})
	if err != nil {
		t.Fatal(err)
	}
	d.SayTo(s.ID(), "hello") // the CLI keeps no session without a turn
	join := func(name string) (*harness.Attached, error) {
		start := harness.JoinOf(s.ID(), nil)
		start.Name, start.Grace = name, durationpb.New(time.Hour)
		start.Tools = []*cliv1.ToolDefinition{{Name: "measure", Description: "measures"}}
		return d.TryAttach(d.Client, start)
	}
	leave := func(token string) bool {
		t.Helper()
		r, err := d.Client.Callbacks().Leave(d.Ctx, &bridgev1.LeaveRequest{SessionId: s.ID(), ParticipantToken: token})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetLeft()
	}
	first, err := join("first")
	if err != nil {
		t.Fatal(err)
	}
	_, err = join("second")
	wantConflict(t, err, "first", false)
	d.Crash()
	d.Provide(s.ID())
	_, err = join("second")
	wantConflict(t, err, "first", true)
	if !leave(first.Token) || leave(first.Token) || leave("no such token") {
		t.Error("the participant was not there once")
	}
	second, err := join("second")
	if err != nil {
		t.Fatal(err)
	}
	if !leave(second.Token) {
		t.Error("a participant with a stream was not there")
	}
	if err := second.End(); err != nil {
		t.Errorf("its stream ended with %v", err)
	}
	if closed := second.Closed(); closed.GetReason() != bridgev1.CloseReason_CLOSE_REASON_LEFT {
		t.Errorf("its stream ended with %v", closed)
	}
}

// wantConflict checks the error about a tool's name that a participant has.
func wantConflict(t *testing.T, err error, holder string, gone bool) {
	t.Helper()
	e, ok := errors.AsType[*copilot.Error](copilot.FromError(err))
	if !ok || e.Reason != bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT || e.Metadata["holder"] != holder {
		t.Fatalf("the conflict is %v", err)
	}
	since, free := e.Metadata["disconnected_since"], e.Metadata["free_at"]
	if !gone {
		if since != "" || free != "" {
			t.Errorf("a connected holder has %v", e.Metadata)
		}
		return
	}
	from, err := time.Parse(time.RFC3339, since)
	until, err2 := time.Parse(time.RFC3339, free)
	if err != nil || err2 != nil || until.Sub(from) != time.Hour || time.Since(from) > time.Minute {
		t.Errorf("the holder that is gone has %v", e.Metadata)
	}
}

func TestReplacedStream(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	first := st.Attach(harness.JoinOf(s.ID(), nil))
	start := harness.JoinOf(s.ID(), nil)
	start.ParticipantToken = first.Token
	second := st.Attach(start)
	if !second.Started.GetResumed() || second.ID != first.ID {
		t.Errorf("the second is %v", second.Started)
	}
	harness.WantError(t, first.End(), codes.Aborted, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED)
	if c := first.Closed(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("the first was told %v", c)
	}
	now, err := s.Get(st.Ctx)
	if err != nil || len(now.Proto.GetParticipants()) != 2 {
		t.Errorf("participants %v, %v", now.Proto.GetParticipants(), err)
	}
}

// TestGraceIsOver has a participant's place be gone, with its tools, when it comes too late.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	cable := new(harness.Cable)
	start := harness.JoinOf(s.ID(), nil)
	start.Tools = append(start.Tools, harness.Answering("brief", "x").Definition)
	start.Grace = harness.NoGrace
	a := st.AttachBy(st.Dial(cable.Option()), start)
	cable.Cut()
	if err := a.End(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	<-time.After(500 * time.Millisecond) // the promise
	st.Say(s, "anybody?")
	if offered := harness.Names(st.LastModelRequest().Tools); slices.Contains(offered, "brief") {
		t.Errorf("the model was offered %q", offered)
	}
	late := harness.JoinOf(s.ID(), nil)
	late.ParticipantToken = a.Token
	_, err := st.TryAttach(st.Client, late)
	harness.WantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND,
		"start.participant_token")
}
