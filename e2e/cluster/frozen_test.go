package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const (
	shortLease = 5 * time.Second
	// answerLimit is how long a call may wait for a replica that does not answer, as cluster.md has it, and a second for
	// a busy machine.
	answerLimit = 5*time.Second + time.Second
)

// entry calls one replica without the library's own repetitions.
type entry struct {
	sessions  bridgev1.SessionServiceClient
	events    bridgev1.EventServiceClient
	callbacks bridgev1.CallbackServiceClient
	metadata  cliv1.SessionMetadataServiceClient
}

func entryOf(d *harness.Daemon) entry {
	d.T.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(d.Root, "s"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { _ = conn.Close() })
	return entry{bridgev1.NewSessionServiceClient(conn), bridgev1.NewEventServiceClient(conn),
		bridgev1.NewCallbackServiceClient(conn), cliv1.NewSessionMetadataServiceClient(conn)}
}

// subscribe reads a stream from its begin until it has caught up, and then reports that. It returns why the stream
// ended.
func (e entry) subscribe(ctx context.Context, caughtUp func()) error {
	stream, err := e.events.Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
	for err == nil {
		var frame *bridgev1.SubscribeResponse
		if frame, err = stream.Recv(); frame.GetCaughtUp() != nil {
			caughtUp()
		}
	}
	return err
}

// onceAsked is a prompt that is sent to the frozen owner and again, with one request id, to the next.
var onceAsked = &bridgev1.SendRequest{SessionId: "s", RequestId: "1", Prompt: &bridgev1.Prompt{Text: "only once"}}

// firstCalls are calls for the session of an owner.
var firstCalls = map[string]func(ctx context.Context, e entry) error{
	"GetSession": func(ctx context.Context, e entry) error {
		_, err := e.sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		return err
	},
	"ListSessions": func(ctx context.Context, e entry) error {
		_, err := e.sessions.ListSessions(ctx, &bridgev1.ListSessionsRequest{})
		return err
	},
	"ListEvents": func(ctx context.Context, e entry) error {
		_, err := e.sessions.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: "s"})
		return err
	},
	"Send": func(ctx context.Context, e entry) error {
		_, err := e.sessions.Send(ctx, onceAsked)
		return err
	},
	"ListPending": func(ctx context.Context, e entry) error {
		_, err := e.callbacks.ListPending(ctx, &bridgev1.ListPendingRequest{SessionId: "s"})
		return err
	},
	"a call of the CLI": func(ctx context.Context, e entry) error {
		_, err := e.metadata.Activity(ctx, &cliv1.SessionMetadataServiceActivityRequest{SessionId: "s"})
		return err
	},
	"Subscribe": func(ctx context.Context, e entry) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		served := false
		if err := e.subscribe(ctx, func() { served = true; end() }); !served {
			return err
		}
		return nil
	},
	"Attach": func(ctx context.Context, e entry) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		stream, err := e.callbacks.Attach(ctx)
		if err == nil {
			err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{
				Start: harness.JoinOf("s", &bridgev1.Handlers{})}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
}

// TestFrozenOwnerIsNotWaitedFor stops the process of an owner with SIGSTOP. The first calls through the other replica,
// and a stream that it relays, end within the limit: unavailable with the time to retry, or served by the next owner.
// The next owner serves the session when the lease has ended, and each call until then ends within the limit. A prompt
// that the frozen owner may have received, and that is repeated, has one turn, also after that owner has continued.
func TestFrozenOwnerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2,
		func(int) []string { return []string{"--cluster-lease", shortLease.String()} })
	create(d[0], "s")
	e := entryOf(d[1])
	caughtUp, streamEnded := make(chan struct{}, 1), make(chan error, 1)
	go func() { streamEnded <- e.subscribe(d[1].Ctx, func() { caughtUp <- struct{}{} }) }()
	harness.Await(d[1].Scripted, caughtUp, "the stream")

	frozen := d[0].Cmd.Process
	t.Cleanup(func() { _ = frozen.Signal(syscall.SIGCONT) }) // or its end would be awaited in vain
	freeze(t, frozen)
	began := time.Now()
	var calls sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(firstCalls)) {
		calls.Go(func() { endsInTime(t, name, began, firstCalls[name](d[1].Ctx, e)) })
	}
	calls.Go(func() {
		err := <-streamEnded
		if endsInTime(t, "the stream", began, err); err == nil {
			t.Error("the stream ended without an error")
		}
	})
	calls.Wait()
	for err := context.DeadlineExceeded; err != nil; {
		began := time.Now()
		err = firstCalls["GetSession"](d[1].Ctx, e)
		endsInTime(t, "a later call", began, err)
	}
	if took, limit := time.Since(began), 2*shortLease+answerLimit; took > limit {
		t.Errorf("another replica serves the session after %v, with a lease of %v", took, shortLease)
	}
	send(d[1], onceAsked)
	answer(d[1], "s", "asked later")
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = ended(d[0])
	answer(d[1], "s", "the end")
	sent := conversation(d[1], "the end")
	if n := strings.Count(sent, "You said: only once"); n != 1 {
		t.Errorf("the agent answered the repeated prompt %d times", n)
	}
	asked := 0
	for _, r := range d[1].Model.ModelRequests() {
		if text := string(r.Body); strings.Contains(text, "only once") && !strings.Contains(text, "asked later") {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the model was asked the repeated prompt %d times", asked)
	}
}

// freeze stops a process, and waits until all of its threads stand still: one that still ran could begin with a call that
// comes now, and record that it did.
func freeze(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	still := func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid)) // none without a /proc
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(10 * time.Second); !still(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not stop")
		}
	}
}

// endsInTime checks the end of a call that began at a time.
func endsInTime(t *testing.T, name string, began time.Time, err error) {
	t.Helper()
	if took := time.Since(began); took > answerLimit {
		t.Errorf("%s took %v", name, took)
	}
	if err == nil {
		return
	}
	f, ok := copilot.FromError(err).(*copilot.Error)
	if !ok || f.Code != codes.Unavailable || f.RetryAfter <= 0 ||
		f.Reason != bridgev1.ErrorReason_ERROR_REASON_SESSION_UNAVAILABLE {
		t.Errorf("%s: %v", name, err)
	}
}
