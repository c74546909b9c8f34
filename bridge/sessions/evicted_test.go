package sessions_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Of a session that was disconnected long ago nothing is in memory; when it is resumed, all
// its positions are good.
func TestDisconnectedLongAgo(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	r.Create("old")
	r.Ask("old", "hi")
	s, err := r.Store().Open(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	last := s.Journal().Last()
	r.Disconnect("old")
	for i := range sessions.MaxDisconnected {
		id := fmt.Sprint("s", i)
		r.Create(id)
		r.Disconnect(id)
	}
	bridgetest.Eventually(t, "the old session to be out of memory", func() bool {
		return r.Store().Get("old") == nil
	})
	if _, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "old"}); err != nil {
		t.Fatal(err)
	}
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
		SessionId: "old", After: &bridgev1.Position{Epoch: last.Epoch, Seq: 1},
	}}})
	watching.Frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		if f.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
			t.Error("the epoch has ended")
		}
		return f.GetCaughtUp() != nil
	})
	if s, err = r.Store().Open(t.Context(), "old"); err != nil || s.Journal().Last().Epoch != last.Epoch || s.Journal().Last().Seq <= last.Seq {
		t.Errorf("the journal was at %v, is at %v, %v", last, s.Journal().Last(), err)
	}
	if out := r.Ask("old", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the turn is %v", out)
	}
}

// A session is deleted while another is created under its id: what the new one keeps stays.
func TestCreateWhileDeleting(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	const id = "again"
	r.Create(id)
	for range 30 {
		r.Ask(id, "hi")
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := r.Sessions.DeleteSession(t.Context(), &bridgev1.DeleteSessionRequest{SessionId: id}); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		for {
			_, err := r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: id})
			if err == nil {
				break
			}
			if fault.ReasonOf(err) != fault.SessionExists {
				t.Fatalf("create: %v", err)
			}
		}
		both.Wait()
		s, err := r.Store().Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Journal().AwaitShown(t.Context()); err != nil || s.Journal().Degraded() != nil {
			t.Fatalf("the journal: %v, %v", err, s.Journal().Degraded())
		}
		if state, err := r.Directory.Session(id); err != nil || state == nil {
			t.Fatalf("the directory has %s of it, %v", state, err)
		}
	}
	if r = r.Restart(); r.Ask(id, "hi").GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Error("the next life does not have it")
	}
}
