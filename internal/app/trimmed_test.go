package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A reader whose position is gone from disk gets a Gap and the session's present state, and goes on with the oldest
// event that is there.
func TestReaderOfWhatIsTrimmed(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	r := start(t, Config{DataDir: t.TempDir(), JournalBytes: most, MaxMemoryBytes: most},
		WithRunner(fake(t, fakecli.Script{})), func(s *settings) { s.tidy = 10 * time.Millisecond })
	ctx, client := r.dial(t)
	conn := client.Conn().(*grpc.ClientConn)
	if err := makeSessions(t, conn, 1); err != nil {
		t.Fatal(err)
	}
	id := []*bridgev1.SessionCursor{{SessionId: "s0"}}
	first := attachedAt(t, conn, id).GetFirstAvailable()
	long := strings.Repeat("x", most)
	for attachedAt(t, conn, id).GetFirstAvailable().GetSeq() == first.GetSeq() {
		// Whole files go, so that it takes some.
		if _, err := bridgev1.NewSessionServiceClient(conn).SendAndWait(ctx, &bridgev1.SendAndWaitRequest{
			SessionId: "s0", Prompt: &bridgev1.Prompt{Text: long},
		}); err != nil {
			t.Fatal(err)
		}
	}
	id[0].After = &bridgev1.Position{Epoch: first.GetEpoch(), Seq: first.GetSeq()}
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{Sessions: id})
	if err != nil {
		t.Fatal(err)
	}
	var gap *bridgev1.Gap
	for {
		f, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if g := f.GetGap(); g != nil && gap == nil {
			gap = g
		}
		if events := f.GetEvents().GetEvents(); len(events) > 0 { // of what is there
			at := events[0].GetPosition().GetSeq()
			if gap.GetReason() != bridgev1.GapReason_GAP_REASON_TRIMMED || gap.GetAfter().GetSeq() != first.GetSeq() ||
				gap.GetSession().GetSessionId() != "s0" {
				t.Errorf("before events from %d on came a gap %v after %v", at, gap.GetReason(), gap.GetAfter())
			}
			if gap.GetThrough().GetSeq() <= first.GetSeq() || at <= gap.GetThrough().GetSeq() {
				t.Errorf("the gap is through %v, the next event %d", gap.GetThrough(), at)
			}
			return
		}
	}
}

// attachedAt is how a stream of the sessions begins.
func attachedAt(t *testing.T, conn *grpc.ClientConn, sessions []*bridgev1.SessionCursor) *bridgev1.SubscriptionStarted {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{Sessions: sessions})
	for err == nil {
		var f *bridgev1.SubscribeResponse
		if f, err = stream.Recv(); f.GetStarted() != nil {
			return f.GetStarted()
		}
	}
	t.Fatal(err)
	return nil
}
