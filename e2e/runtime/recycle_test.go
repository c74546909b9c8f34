package runtime

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// recycled recycles a runtime in the background.
func recycled(st *harness.Scripted, id string, grace time.Duration) (wait func() *bridgev1.RecycleRuntimeResponse) {
	var out *bridgev1.RecycleRuntimeResponse
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = st.Client.Runtimes().RecycleRuntime(st.Ctx,
			&bridgev1.RecycleRuntimeRequest{RuntimeId: id, GracePeriod: durationpb.New(grace)})
	}()
	return func() *bridgev1.RecycleRuntimeResponse {
		st.T.Helper()
		if harness.Await(st, done, "the end of the runtime"); err != nil {
			st.T.Fatalf("recycle: %v", err)
		}
		return out
	}
}

// runtimes returns the runtimes in a state.
func runtimes(st *harness.Scripted, state bridgev1.RuntimeState) []*bridgev1.RuntimeInfo {
	st.T.Helper()
	out, err := st.Client.Runtimes().ListRuntimes(st.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		st.T.Fatal(err)
	}
	return slices.DeleteFunc(out.GetRuntimes(), func(rt *bridgev1.RuntimeInfo) bool { return rt.GetState() != state })
}

// A recycled process ends after its turn. The conversations continue in another process, with their history and on
// the same streams.
func TestRecycledRuntime(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	busy := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
	idle := st.Create(copilot.SessionOptions{})
	st.Say(idle, "a word before")
	watching := st.Callbacks(busy.ID())
	old := st.Ready()[0]
	ended := st.GoTurn(busy, "work")
	harness.Await(st, works.Asked, "the tool's call")
	wait := recycled(st, old.GetRuntimeId(), harness.Patience)
	st.Eventually("the idle session to leave", func() bool {
		left := runtimes(st, bridgev1.RuntimeState_RUNTIME_STATE_STOPPING)
		return len(left) == 1 && left[0].GetRuntimeId() == old.GetRuntimeId() && left[0].GetLoadedSessions() == 1
	})
	if out := st.Say(idle, "a word after"); out.Text() != "You said: a word after" {
		t.Errorf("the idle session says %q", out.Text())
	}
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "a word before") {
		t.Errorf("the idle session has forgotten: the model was told %q", texts)
	}
	_, err := st.Client.Runtimes().DrainRuntime(st.Ctx, &bridgev1.DrainRuntimeRequest{RuntimeId: old.GetRuntimeId()})
	harness.WantField(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_RUNTIME_ENDING, "runtime_id")
	works.Release()
	if out := ended(); out.Text() != "worked" {
		t.Errorf("the turn in flight ended with %v", out)
	}
	out := wait()
	if out.GetInterruptedSessions() != 0 || out.GetRuntime().GetState() != bridgev1.RuntimeState_RUNTIME_STATE_DOWN ||
		harness.Alive(old.GetPid()) {
		t.Errorf("recycled: %v", out)
	}
	st.Say(busy, "and again")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "work") {
		t.Errorf("the session has forgotten: the model was told %q", texts)
	}
	if list := st.Ready(); len(list) != 1 || list[0].GetPid() == old.GetPid() || list[0].GetLoadedSessions() != 2 {
		t.Errorf("then the runtimes are %v", list)
	}
	watching.Mu.Lock()
	defer watching.Mu.Unlock()
	if watching.Closed != nil {
		t.Errorf("the stream was closed: %v", watching.Closed)
	}
}

// A drained process keeps its session and gets no new one.
func TestDrainedRuntime(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	drain := func(id string, undo bool) bridgev1.RuntimeState {
		t.Helper()
		out, err := st.Client.Runtimes().DrainRuntime(st.Ctx, &bridgev1.DrainRuntimeRequest{RuntimeId: id, Undo: undo})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetRuntime().GetState()
	}
	s := st.Create(copilot.SessionOptions{})
	old := st.Ready()[0]
	if got := drain(old.GetRuntimeId(), false); got != bridgev1.RuntimeState_RUNTIME_STATE_DRAINING {
		t.Errorf("the drained runtime is %v", got)
	}
	other := st.Create(copilot.SessionOptions{})
	if list := st.Ready(); len(list) != 1 || list[0].GetIndex() != 1 || list[0].GetLoadedSessions() != 1 {
		t.Errorf("the other session's runtime is %v", list)
	}
	st.Say(s, "in the drained one")
	st.Say(other, "in the new one")
	list := runtimes(st, bridgev1.RuntimeState_RUNTIME_STATE_DRAINING)
	if len(list) != 1 || list[0].GetPid() != old.GetPid() || list[0].GetLoadedSessions() != 1 {
		t.Errorf("draining: %v", list)
	}
	if got := drain(old.GetRuntimeId(), true); got != bridgev1.RuntimeState_RUNTIME_STATE_READY {
		t.Errorf("undrained: %v", got)
	}
}

// The log's warnings can be read: the end of a killed process is one.
func TestServerLog(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	s := st.Create(copilot.SessionOptions{})
	st.Say(s, "first")
	st.Written(s)
	st.Kill(s.ID())
	st.Say(s, "second")
	stream, err := st.Client.Runtimes().WatchServerLog(st.Ctx, &bridgev1.WatchServerLogRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var killed []*bridgev1.ServerLogRecord
	for {
		f, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if f.GetCaughtUp() != nil {
			break
		}
		if r := f.GetRecord(); r.GetMessage() == "runtime ended" {
			killed = append(killed, r)
		}
	}
	if len(killed) != 1 || killed[0].GetTime() == nil || killed[0].GetAttributes()["reason"] != "CLI_EXITED" ||
		killed[0].GetLevel() != bridgev1.ServerLogLevel_SERVER_LOG_LEVEL_WARN {
		t.Errorf("the records are %v", killed)
	}
}

// TestRecycledInATurn: after the grace period the turn ends with the process. The answer to its tool call comes later,
// and the successor continues the conversation with it.
func TestRecycledInATurn(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]func(st *harness.Scripted, s *copilot.Session, recycle func()){
		"after the end": func(_ *harness.Scripted, _ *copilot.Session, recycle func()) { recycle() },
		"in the successor": func(st *harness.Scripted, s *copilot.Session, recycle func()) {
			recycle()
			st.Pending(s, 1)
		},
		"after a conversation": func(st *harness.Scripted, s *copilot.Session, recycle func()) {
			st.Say(s, "hello")
			recycle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewOwnScripted(t, harness.HostConfig{}, harness.OnUser("work", harness.Call("works", nil)),
				harness.OnResult("works", harness.Say("{{tool_result}}")))
			works := harness.NewHold()
			s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
			answered(st, s, func() {
				old := st.Ready()[0]
				ended := st.GoTurn(s, "work")
				harness.Await(st, works.Asked, "the tool's call")
				if out := recycled(st, old.GetRuntimeId(), 0)(); out.GetInterruptedSessions() != 1 {
					t.Errorf("recycled: %v", out)
				}
				if out := ended(); out.Status() != copilot.TurnRuntimeLost {
					t.Errorf("the turn ended with %v", out)
				}
			})
			works.Release()
			done := st.First(s, "tool.execution_complete")
			said := st.First(s, "assistant.message", copilot.After(done.GetPosition()))
			if text := said.GetEvent().GetAssistantMessage().GetContent(); text != "worked" {
				t.Errorf("the agent said %q", text)
			}
			st.Say(s, "and again")
		})
	}
}
