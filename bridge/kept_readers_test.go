package bridge

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A reader that stops forever delays no other reader, on a journal that is on disk and has little memory. When
// it reads again it receives all stored events.
func TestStoppedReaderOnDisk(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{Fsync: journal.FsyncAlways, SegmentBytes: 16 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	burst := fakecli.Prompt{Match: "burst", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 500, Size: 100}, Text: "end"}}}
	r := newLives(t, always(fakecli.Script{Prompts: []fakecli.Prompt{burst}}), func(c *Config) {
		c.Directory, c.MaxEphemeralBytes, c.MaxMemoryBytes = kept, 16<<10, 64<<10
	})
	r.create("s1")
	stopped := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	stopped.until("<caught_up>")
	stopped.hold.Lock()
	const turns = 20
	for range turns {
		if out := r.ask("s1", "burst"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Errorf("with a reader that has stopped, a turn is %v", out)
		}
	}
	durable := func(s *reading) (got []string) {
		gaps := 0
		for idle := 0; idle < turns; {
			f := s.next()
			if f.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST && f.GetGap().GetSession().GetSessionId() == "s1" {
				gaps++
			}
			for _, e := range f.GetEvents().GetEvents() {
				switch {
				case e.GetEvent().GetEventType() == "session.idle":
					idle++
				case !e.GetEvent().GetEphemeral() &&
					slices.Contains([]string{"user.message", "assistant.message"}, e.GetEvent().GetEventType()):
					got = append(got, e.GetEvent().GetId())
				}
			}
		}
		if gaps == 0 {
			t.Error("it was not told what it lacks")
		}
		return got
	}
	fresh := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	want := durable(fresh)
	stopped.hold.Unlock()
	if got := durable(stopped); len(want) != 2*turns || !slices.Equal(got, want) {
		t.Errorf("who stopped has %d messages, who did not %d", len(got), len(want))
	}
}

// A participant resumes by its token after a restart of the bridge. It is the same participant, and receives
// its unanswered callbacks again.
func TestParticipantReturnsInTheNextLife(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	r.create("s1")
	r.ask("s1", "hi")
	start := &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s1"}, Grace: durationpb.New(time.Hour),
		Tools: []*cliv1.ToolDefinition{{Name: "work", SkipPermission: proto.Bool(true)}},
	}
	attach := func(r *keptLife) (*Attachment, *bridgev1.AttachStarted, chan *bridgev1.AttachResponse) {
		t.Helper()
		a, err := r.Participants.Attach(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		frames := make(chan *bridgev1.AttachResponse, 1000)
		ctx, stop := context.WithCancel(r.ctx)
		t.Cleanup(stop)
		r.streams.Go(func() {
			_ = a.Stream(ctx, func(f frame.Frame) error {
				if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
					frames <- proto.Clone(m).(*bridgev1.AttachResponse)
				}
				return nil
			})
			a.Lost()
		})
		return a, (<-frames).GetStarted(), frames
	}
	_, first, _ := attach(r)
	r.begin("s1", "tool")
	pending := func(r *keptLife) (all []*bridgev1.Callback) {
		list, err := r.Callbacks.ListPending(t.Context(), &bridgev1.ListPendingRequest{SessionId: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetCallbacks()
	}
	eventually(t, "the tool's call", func() bool { return len(pending(r)) == 1 })
	call := pending(r)[0]
	r.store.SaveDirty() // as it would a moment later
	next := r.reborn()
	start.ParticipantToken = first.GetParticipantToken()
	a, again, _ := attach(next)
	if !again.GetResumed() || again.GetParticipantId() != first.GetParticipantId() {
		t.Errorf("it was %v, and is %v", first, again)
	}
	eventually(t, "the call to come again", func() bool {
		all := pending(next)
		return len(all) == 1 && all[0].GetCallbackId() == call.GetCallbackId() && slices.Contains(all[0].GetParticipantIds(), first.GetParticipantId())
	})
	done := next.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	answer := &bridgev1.CallbackAnswer{CallbackId: call.GetCallbackId(), Answer: &bridgev1.Answer{
		Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}},
	}}
	if err := a.Handle(t.Context(), &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: answer}}); err != nil {
		t.Fatal(err)
	}
	done.until("external_tool.completed")
	// No participant has the other token.
	start.ParticipantToken = "another"
	if _, err := next.Participants.Attach(t.Context(), start); err == nil {
		t.Error("a token that nobody has is taken")
	}
}
