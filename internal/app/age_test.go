package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Connections that end at their age lose a client nothing: its events come once and in order,
// its tools are called once for each turn, and its calls succeed.
func TestClientOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	const age, turns = 300 * time.Millisecond, 30
	r := start(t, Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: t.TempDir(), MaxConnectionAge: age, ConnectionAgeGrace: age,
	}, WithRunner(fake(t, fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{
		{PauseMS: 50, Text: "I look.", Tools: []fakecli.Tool{{Name: "look"}}}, {PauseMS: 50, Text: "Seen."},
	}}}})))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	c, err := copilot.Dial(ctx, r.Target(), copilot.WithToken(r.Token()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var looked atomic.Int32
	s, err := c.CreateSession(ctx, copilot.SessionOptions{
		Tools: []copilot.Tool{copilot.NewTool("look", "looks", func(context.Context, struct{}) (string, error) {
			looked.Add(1)
			return "seen", nil
		})},
		OnPermission: copilot.ApproveAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	agedOut := agedStream(ctx, t, c, s.ID())
	events, stop := context.WithCancel(ctx)
	defer stop()
	got := make(chan []string, 1)
	last := fmt.Sprint("prompt ", turns-1)
	go func() {
		var ids []string
		ended := false
		for e, err := range s.Events(events, copilot.FromBeginning()) {
			if err != nil {
				t.Error(err)
				break
			}
			if e.GetEvent().GetEventType() == "user.message" && e.GetEvent().GetUserMessage().GetContent() == last {
				ended = true
			}
			if !e.GetEvent().GetEphemeral() {
				ids = append(ids, e.GetEvent().GetId())
			}
			if ended && e.GetEvent().GetEventType() == "session.idle" {
				break
			}
		}
		got <- ids
	}()
	for i := range turns {
		if _, err := s.SendAndWait(ctx, fmt.Sprint("prompt ", i)); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
	}
	ids := <-got
	var want []string
	for e, err := range s.History(ctx, copilot.FromBeginning()) {
		if err != nil {
			t.Fatal(err)
		}
		if !e.GetEvent().GetEphemeral() {
			want = append(want, e.GetEvent().GetId())
		}
	}
	if len(want) < turns*4 || !slices.Equal(ids, want[:min(len(ids), len(want))]) || len(ids) < len(want)-1 {
		t.Errorf("%d events came, of %d that there are", len(ids), len(want))
	}
	if n := looked.Load(); n != turns {
		t.Errorf("the tool was called %d times in %d turns", n, turns)
	}
	if <-agedOut < 2 {
		t.Error("the connection did not end at its age")
	}
}

// agedStream reads streams of a session, one after the other, each to the position at which it must resume, and returns
// their number.
func agedStream(ctx context.Context, t *testing.T, c *copilot.Client, id string) <-chan int {
	t.Helper()
	told := make(chan int, 1)
	go func() {
		n := 0
		var after *bridgev1.Position
		for n < 3 && ctx.Err() == nil {
			stream, err := c.EventStreams().Subscribe(ctx, &bridgev1.SubscribeRequest{
				Sessions: []*bridgev1.SessionCursor{{SessionId: id, After: after}},
			})
			for err == nil {
				var f *bridgev1.SubscribeResponse
				if f, err = stream.Recv(); err != nil {
					break
				}
				if g := f.GetGoAway(); g != nil {
					if g.GetReason() != bridgev1.GoAwayReason_GO_AWAY_REASON_CONNECTION_AGE ||
						len(g.GetPositions()) != 1 || g.GetGracePeriod() == nil {
						t.Errorf("it is told %v", g)
					}
					after = g.GetPositions()[0].GetPosition()
					n++
				}
				if f.GetClosed() != nil && f.GetClosed().GetReason() != bridgev1.CloseReason_CLOSE_REASON_DRAINING {
					t.Errorf("it ends with %v", f)
				}
			}
		}
		told <- n
	}()
	return told
}
