package callback

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// pendingStream is a stream of WatchPending.
type pendingStream struct {
	t    *testing.T
	recv func() (*bridgev1.WatchPendingResponse, error)
	stop context.CancelFunc
}

// watchPending opens a stream of the sessions with the test's label, and reads it up to caught_up.
func watchPending(
	t *testing.T, ctx context.Context, c *copilot.Client, q *bridgev1.WatchPendingRequest,
) (in *pendingStream, waiting []*bridgev1.Callback) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	q.Filter = &bridgev1.PendingFilter{Labels: map[string]string{"test": t.Name()}}
	stream, err := c.Callbacks().WatchPending(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	in = &pendingStream{t: t, recv: stream.Recv, stop: stop}
	for {
		m := in.next()
		if m.GetCaughtUp() != nil {
			return in, waiting
		}
		waiting = append(waiting, m.GetRequested())
	}
}

// next returns the next change that is no heartbeat.
func (in *pendingStream) next() *bridgev1.WatchPendingResponse {
	in.t.Helper()
	for {
		m, err := in.recv()
		if err != nil {
			in.t.Fatalf("the stream ended: %v", err)
		}
		if m.GetHeartbeat() == nil {
			return m
		}
	}
}

// requested returns the next change, which must be a callback.
func (in *pendingStream) requested() *bridgev1.Callback {
	in.t.Helper()
	m := in.next()
	if m.GetRequested() == nil {
		in.t.Fatalf("the change is %v, want a callback", m)
	}
	return m.GetRequested()
}

// labelled creates a session without participants and handlers, with the test's label.
func labelled(st *harness.Scripted) *harness.TestSession {
	st.T.Helper()
	out, err := st.Client.Sessions().CreateSession(st.Ctx, &bridgev1.CreateSessionRequest{
		Config: st.Config(), Labels: map[string]string{"test": st.T.Name()},
	})
	if err != nil {
		st.T.Fatal(err)
	}
	return st.Adopt(st.Client.Session(out.GetSession().GetSessionId()))
}

func grace(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// A command in a session without handlers is denied at once. With a caller of WatchPending it waits, in a session that
// exists and in a new one; of two callers one answers, and the other one sees who did.
func TestWatchPendingPermission(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("run", harness.Call("bash", harness.Shell("echo it-ran > it-ran"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	old := labelled(st)
	if text := old.Ask("run"); !strings.Contains(strings.ToLower(text), "permission") {
		t.Errorf("without a handler: %q", text)
	}
	first, waiting := watchPending(t, st.Ctx, st.Client, &bridgev1.WatchPendingRequest{Handle: true, Grace: grace(0)})
	second, _ := watchPending(t, st.Ctx, st.Dial(), &bridgev1.WatchPendingRequest{Handle: true, Grace: grace(0)})
	if len(waiting) > 0 {
		t.Errorf("callbacks are left: %v", waiting)
	}
	for i, s := range []*harness.TestSession{old, labelled(st)} {
		sent := s.Submit(fmt.Sprint("run ", i))
		asked := first.requested()
		if asked.GetSessionId() != s.ID() || asked.GetPermission() == nil {
			t.Fatalf("the callback is %v", asked)
		}
		second.requested()
		if err := s.Resolve(st.Ctx, asked.GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{
			Approve: &bridgev1.Approve{},
		}}); err != nil {
			t.Fatal(err)
		}
		for _, in := range []*pendingStream{first, second} {
			end := in.next().GetResolved()
			if end.GetSessionId() != s.ID() || end.GetResolved().GetCallbackId() != asked.GetCallbackId() ||
				end.GetResolved().GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED ||
				end.GetResolved().GetAnsweredBy() == "" {
				t.Errorf("the end is %v", end)
			}
		}
		s.WaitAfter(sent.GetPosition(), "session.idle")
	}
}

// A caller of WatchPending gives the agent its tool for questions: of sessions that exist and of new ones. A question
// waits while the caller reconnects, and is declined when nobody is left.
func TestWatchPendingUserInput(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("ask", harness.Call("ask_user", map[string]any{"question": "Which colour?"})),
		harness.OnResult("ask_user", harness.Say("{{tool_result}}")))
	old := labelled(st)
	old.Ask("hello")
	if tools := harness.Names(st.LastModelRequest().Tools); strings.Contains(strings.Join(tools, " "), "ask_user") {
		t.Errorf("without a handler the agent has %q", tools)
	}
	in, _ := watchPending(t, st.Ctx, st.Client, &bridgev1.WatchPendingRequest{Handle: true, Grace: grace(time.Minute)})
	fresh := labelled(st)
	fresh.Submit("ask in the new one")
	if q := in.requested(); q.GetSessionId() != fresh.ID() || q.GetUserInput().GetQuestion() != "Which colour?" {
		t.Errorf("the callback is %v", q)
	}
	st.Eventually("the tool in the old session", func() bool {
		old.Ask("hello")
		return strings.Contains(strings.Join(harness.Names(st.LastModelRequest().Tools), " "), "ask_user")
	})
	in.stop()
	again, waiting := watchPending(t, st.Ctx, st.Client, &bridgev1.WatchPendingRequest{Handle: true, Grace: grace(0)})
	if len(waiting) != 1 {
		t.Fatalf("after the reconnection %v wait", waiting)
	}
	violet := rawAnswer(`{"answer":"violet","wasFreeform":true}`)
	if err := fresh.Resolve(st.Ctx, waiting[0].GetCallbackId(), violet); err != nil {
		t.Fatal(err)
	}
	again.next()
	fresh.WaitFor("session.idle")
	if got := harness.Talk(st.LastModelRequest()); !strings.Contains(got, "violet") {
		t.Errorf("the model was told %s", got)
	}
	sent := old.Submit("ask in the old one")
	again.requested()
	watching, _ := watchPending(t, st.Ctx, st.Dial(), &bridgev1.WatchPendingRequest{})
	again.stop()
	end := watching.next().GetResolved().GetResolved()
	if end.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED || end.GetAnsweredBy() != "" {
		t.Errorf("the end is %v", end)
	}
	old.WaitAfter(sent.GetPosition(), "session.idle")
}

// A permission request that waits when the server is killed still waits afterwards, for a caller that watches again.
func TestWatchPendingAfterACrash(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("run", harness.Call("bash", harness.Shell("echo it-ran > it-ran"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	if st.Before("1.0.102") {
		t.Skip("an older CLI writes its history too late")
	}
	d := harness.NewDaemon(st)
	out, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{
		Config: st.Config(), Labels: map[string]string{"test": t.Name()},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := out.GetSession().GetSessionId()
	in, _ := watchPending(t, d.Ctx, d.Client, &bridgev1.WatchPendingRequest{Handle: true})
	if _, err := d.Client.Sessions().Send(d.Ctx, &bridgev1.SendRequest{
		SessionId: id, Prompt: &bridgev1.Prompt{Text: "run"},
	}); err != nil {
		t.Fatal(err)
	}
	asked := in.requested()
	d.Written(id)
	d.Crash()
	d.Provide(id)
	in, waiting := watchPending(t, d.Ctx, d.Client, &bridgev1.WatchPendingRequest{Handle: true})
	if len(waiting) == 0 {
		waiting = append(waiting, in.requested())
	}
	if waiting[0].GetCallbackId() != asked.GetCallbackId() {
		t.Errorf("the callback %q waits, want %q", waiting[0].GetCallbackId(), asked.GetCallbackId())
	}
	if _, err := d.Client.Callbacks().Resolve(d.Ctx, &bridgev1.ResolveRequest{
		SessionId: id, CallbackId: asked.GetCallbackId(),
		Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}},
	}); err != nil {
		t.Fatal(err)
	}
	d.After(id, nil, "session.idle")
}
