package app

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// A participant that reads nothing, while thousands of events and hundreds of callbacks come,
// costs little memory, and others nothing: its callbacks fall to their deadline.
func TestStuckParticipant(t *testing.T) { //nolint:paralleltest // it measures the process
	if race.Enabled {
		t.Skip("the detector changes what is measured")
	}
	const most = 32 << 20
	if held := load(t); held > most {
		t.Errorf("up to %d bytes are held, want at most %d", held, most)
	}
}

// servedBytes is the memory that is held, by the last collection, for all but fake CLIs.
func servedBytes() (bytes int64) {
	runtime.GC()
	runtime.GC() // a profile describes the collection before the last
	records := make([]runtime.MemProfileRecord, 10_000)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		return math.MaxInt64
	}
	for _, r := range records[:n] {
		fake := false
		for frames := runtime.CallersFrames(r.Stack()); ; {
			f, more := frames.Next()
			if fake = fake || strings.Contains(f.Function, "internal/testing/fakecli"); !more {
				break
			}
		}
		if !fake {
			bytes += r.InUseBytes()
		}
	}
	return bytes
}

// load has a session produce 50 MB of events while its participant neither answers nor reads, and returns the most
// memory that the process used for it.
func load(t *testing.T) (held int64) {
	t.Helper()
	const messages, deltas, size, tools = 20, 1000, 1200, 160
	turns := make([]fakecli.Turn, messages)
	for i := range turns {
		turns[i].Deltas = &fakecli.Deltas{Count: deltas, Size: size}
		for range tools / messages {
			turns[i].Tools = append(turns[i].Tools, fakecli.Tool{Name: "work"})
		}
	}
	ts := startTenants(t, func(c *Config) {
		c.CallbackTimeout, c.MaxMemoryBytes, c.MaxEphemeralBytes = 200*time.Millisecond, 4<<20, 1<<20
	})
	ts.mu.Lock()
	ts.clis["acme"] = fakecli.New(fakecli.Options{Script: fakecli.Script{Prompts: []fakecli.Prompt{
		{Match: "much", Turns: append(turns, fakecli.Turn{Text: "done"})},
	}}})
	ts.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*testTimeout)
	defer cancel()
	conn := ts.as("acme-owner")
	if err := makeSessions(t, conn, 1); err != nil {
		t.Fatal(err)
	}
	participant := participates(ctx, t, ts.as("acme-owner"))
	before := servedBytes()
	watcher := watched(ctx, t, conn)
	client := bridgev1.NewSessionServiceClient(conn)
	over := make(chan error, 1)
	go func() {
		out, err := client.SendAndWait(ctx,
			&bridgev1.SendAndWaitRequest{SessionId: "much", Prompt: &bridgev1.Prompt{Text: "much"}})
		if err == nil && out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Errorf("the turn ends with %v", out)
		}
		over <- err
	}()
	for i, running := 0, true; running; i++ {
		begin := time.Now()
		if _, err := client.SendAndWait(ctx,
			&bridgev1.SendAndWaitRequest{SessionId: "s0", Prompt: &bridgev1.Prompt{Text: "hi"}}); err != nil {
			t.Fatalf("another session, after %v: %v", time.Since(begin), err)
		}
		if i%10 == 0 { // it takes time
			held = max(held, servedBytes()-before)
		}
		select {
		case err := <-over:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
	}
	if seen := <-watcher; seen.timeouts != tools && !seen.gap {
		t.Errorf("%d of %d callbacks fell to their deadline, and no gap was told", seen.timeouts, tools)
	}
	if ended := toolsEnded(ctx, t, client); ended != tools {
		t.Errorf("%d of %d tool calls have ended by the history", ended, tools)
	}
	// When the reader reads at last, it gets the events that are still there.
	if f, err := participant.Recv(); err != nil || f.GetFrame() == nil {
		t.Errorf("when it reads at last: %v, %v", f, err)
	}
	t.Logf("up to %d KiB are held", held>>10)
	return held
}

// participates makes a session with a tool and takes part in it.
func participates(
	ctx context.Context, t *testing.T, conn *grpc.ClientConn,
) grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse] {
	t.Helper()
	skip := true
	stream, err := bridgev1.NewCallbackServiceClient(conn).Attach(ctx)
	if err == nil {
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{SessionId: "much"}},
			Tools:   []*cliv1.ToolDefinition{{Name: "work", SkipPermission: &skip}},
		}}})
	}
	if err == nil {
		_, err = attachedFrame(stream)
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// toolsEnded counts the ends of tool calls in the session's history.
func toolsEnded(ctx context.Context, t *testing.T, client bridgev1.SessionServiceClient) (n int) {
	t.Helper()
	q := &bridgev1.ListEventsRequest{SessionId: "much",
		Filter: &bridgev1.EventFilter{Types: []string{"external_tool.completed"}}}
	for {
		page, err := client.ListEvents(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.GetEvents())
		if q.PageToken = page.GetNextPageToken(); q.PageToken == "" {
			return n
		}
	}
}

// watch is the view of a reader until its session's turn ended: the number of callbacks that reached their deadline,
// and whether a gap was reported.
type watch struct {
	timeouts int
	gap      bool
}

// watched reads the session's events to the end of its turn.
func watched(ctx context.Context, t *testing.T, conn *grpc.ClientConn) <-chan watch {
	t.Helper()
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{
		Callbacks: true,
		Sessions:  []*bridgev1.SessionCursor{{SessionId: "much", Start: bridgev1.StreamStart_STREAM_START_END}},
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan watch, 1)
	go func() {
		var seen watch
		for {
			f, err := stream.Recv()
			if err != nil {
				t.Error(err)
				break
			}
			if r := f.GetCallbackResolved(); r != nil &&
				r.GetOutcome() == bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT {
				seen.timeouts++
			}
			seen.gap = seen.gap || f.GetGap() != nil
			if f.GetTurnEnded() != nil {
				break
			}
		}
		told <- seen
	}()
	return told
}
