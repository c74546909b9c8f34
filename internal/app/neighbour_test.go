package app

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// noises are what a noisy tenant does as often as it can.
var noises = map[string]func(ctx context.Context, conn *grpc.ClientConn) error{
	"creates": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := bridgev1.NewSessionServiceClient(conn).CreateSession(ctx, &bridgev1.CreateSessionRequest{})
		return err
	},
	"sends": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := bridgev1.NewSessionServiceClient(conn).Send(ctx,
			&bridgev1.SendRequest{SessionId: "s0", Prompt: &bridgev1.Prompt{Text: "noise"}})
		return err
	},
	"streams": func(ctx context.Context, conn *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx,
			&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{
				{SessionId: "s0", Start: bridgev1.StreamStart_STREAM_START_BEGINNING},
			}})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
	"large messages": func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := bridgev1.NewRuntimeServiceClient(conn).Ping(ctx,
			&bridgev1.PingRequest{Message: strings.Repeat("x", 1<<20)})
		return err
	},
}

// While one tenant does all it can, the calls of another are answered as ever.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	ts := limited(t, "requests_per_second: 50, calls: 4, streams: 4, turns: 2, sessions: 4, message_bytes: 100000, "+
		"journal_bytes: 10000000")
	for _, name := range []string{"acme", "rival"} {
		if err := makeSessions(t, ts.as(name), 1); err != nil {
			t.Fatal(err)
		}
	}
	quiet := bridgev1.NewSessionServiceClient(ts.as("rival"))
	turns := func(n int) (median, worst time.Duration) {
		took := make([]time.Duration, n)
		for i := range took {
			begin := time.Now()
			out, err := quiet.SendAndWait(t.Context(),
				&bridgev1.SendAndWaitRequest{SessionId: "s0", Prompt: &bridgev1.Prompt{Text: "hi"}})
			if err != nil || out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
				t.Errorf("the quiet tenant gets %v, %v", out, err)
			}
			took[i] = time.Since(begin)
		}
		slices.Sort(took)
		return took[n/2], took[n-1]
	}
	const n = 30
	alone, aloneWorst := turns(n)
	ctx, stop := context.WithCancel(t.Context())
	var refused, done atomic.Int64
	ended := make(chan struct{})
	const each = 4
	for _, noise := range noises {
		for range each {
			conn := ts.as("acme")
			go func() {
				defer func() { ended <- struct{}{} }()
				for ctx.Err() == nil {
					switch err := noise(ctx, conn); status.Code(err) {
					case codes.ResourceExhausted:
						refused.Add(1)
					case codes.OK:
						done.Add(1)
					}
				}
			}()
		}
	}
	for (refused.Load() == 0 || done.Load() == 0) && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	beside, besideWorst := turns(n)
	stop()
	for range each * len(noises) {
		<-ended
	}
	t.Logf("a turn of the quiet tenant takes %v alone (at worst %v), and %v (%v) beside the noisy one, of whose "+
		"calls %d are made and %d refused",
		alone, aloneWorst, beside, besideWorst, done.Load(), refused.Load())
	if refused.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d calls of the noisy tenant are made, %d refused", done.Load(), refused.Load())
	}
	// It shares the machine, but never waits for what the other may not have.
	if limit := 20*alone + time.Second; beside > limit {
		t.Errorf("the quiet tenant's turn takes %v beside the noisy one, more than %v", beside, limit)
	}
}

// A CLI that does not answer while a session of its tenant is to leave it keeps no other
// tenant's session where it is.
func TestUnloadingIsATenantsOwn(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) { c.IdleUnload = 200 * time.Millisecond })
	ts.plays("acme", fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.metadata.activity", Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
	}})
	if err := makeSessions(t, ts.as("acme-owner"), 1); err != nil {
		t.Fatal(err)
	}
	await(t, "acme's CLI to be asked", func() bool {
		return strings.Contains(asked(ts.cli("acme").Log()), "session.metadata.activity")
	})
	if err := makeSessions(t, ts.as("rival"), 1); err != nil {
		t.Fatal(err)
	}
	rival := bridgev1.NewSessionServiceClient(ts.as("rival"))
	await(t, "the other tenant's session to be unloaded", func() bool {
		got, err := rival.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s0"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetSession().GetState() == bridgev1.SessionState_SESSION_STATE_UNLOADED
	})
}

// await polls, for changes that no stream reports.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(testTimeout), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
