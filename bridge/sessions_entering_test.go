package bridge

import (
	"fmt"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func (r *rig) disconnect(id string) {
	r.t.Helper()
	if _, err := r.Sessions.DisconnectSession(r.t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: id}); err != nil {
		r.t.Fatal(err)
	}
}

// Of a session that was disconnected long ago nothing is in memory; when it is resumed, all
// its positions are good.
func TestDisconnectedLongAgo(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(fakecli.Script{}))
	r.create("old")
	r.ask("old", "hi")
	s, err := r.store.Open(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	last := s.Journal().Last()
	r.disconnect("old")
	for i := range registry.MaxDisconnected {
		id := fmt.Sprint("s", i)
		r.create(id)
		r.disconnect(id)
	}
	eventually(t, "the old session to be out of memory", func() bool {
		return r.store.Get("old") == nil
	})
	if _, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "old"}); err != nil {
		t.Fatal(err)
	}
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
		SessionId: "old", After: &bridgev1.Position{Epoch: last.Epoch, Seq: 1},
	}}})
	watching.frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		if f.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
			t.Error("the epoch has ended")
		}
		return f.GetCaughtUp() != nil
	})
	if s, err = r.store.Open(t.Context(), "old"); err != nil || s.Journal().Last().Epoch != last.Epoch || s.Journal().Last().Seq <= last.Seq {
		t.Errorf("the journal was at %v, is at %v, %v", last, s.Journal().Last(), err)
	}
	if out := r.ask("old", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the turn is %v", out)
	}
}

// A session is deleted while another is created under its id: what the new one keeps stays.
func TestCreateWhileDeleting(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(fakecli.Script{}))
	const id = "again"
	r.create(id)
	for range 30 {
		r.ask(id, "hi")
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
		s, err := r.store.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Journal().Settle(t.Context()); err != nil || s.Journal().Degraded() != nil {
			t.Fatalf("the journal: %v, %v", err, s.Journal().Degraded())
		}
		if state, err := r.directory.Session(id); err != nil || state == nil {
			t.Fatalf("the directory has %s of it, %v", state, err)
		}
	}
	if r = r.reborn(); r.ask(id, "hi").GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Error("the next life does not have it")
	}
}
