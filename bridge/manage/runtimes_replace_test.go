package manage_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	readyState    = bridgev1.RuntimeState_RUNTIME_STATE_READY
	stoppingState = bridgev1.RuntimeState_RUNTIME_STATE_STOPPING
	drainingState = bridgev1.RuntimeState_RUNTIME_STATE_DRAINING
)

// runtimes lists the runtimes that the caller sees.
func runtimes(ctx context.Context, r *bridgetest.Bridge) []*bridgev1.RuntimeInfo {
	r.T.Helper()
	out, err := r.Runtimes.ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		r.T.Fatal(err)
	}
	return out.GetRuntimes()
}

// in returns the only runtime in a state.
func in(r *bridgetest.Bridge, state bridgev1.RuntimeState) *bridgev1.RuntimeInfo {
	r.T.Helper()
	found := slices.DeleteFunc(runtimes(r.T.Context(), r), func(rt *bridgev1.RuntimeInfo) bool {
		return rt.GetState() != state
	})
	if len(found) != 1 {
		r.T.Fatalf("%d runtimes are %v", len(found), state)
	}
	return found[0]
}

// someRuntime reports whether a runtime has a property.
func someRuntime(r *bridgetest.Bridge, is func(*bridgev1.RuntimeInfo) bool) func() bool {
	return func() bool { return slices.ContainsFunc(runtimes(r.T.Context(), r), is) }
}

func drain(r *bridgetest.Bridge, id string, undo bool) *bridgev1.RuntimeInfo {
	r.T.Helper()
	out, err := r.Runtimes.DrainRuntime(r.T.Context(), &bridgev1.DrainRuntimeRequest{RuntimeId: id, Undo: undo})
	if err != nil {
		r.T.Fatal(err)
	}
	return out.GetRuntime()
}

// recycle recycles a runtime in the background.
func recycle(r *bridgetest.Bridge, id string, grace *durationpb.Duration) (wait func() (*bridgev1.RecycleRuntimeResponse, error)) {
	var out *bridgev1.RecycleRuntimeResponse
	var err error
	done := make(chan struct{})
	r.Spawn(func() {
		defer close(done)
		out, err = r.Runtimes.RecycleRuntime(r.Context(), &bridgev1.RecycleRuntimeRequest{RuntimeId: id, GracePeriod: grace})
	})
	return func() (*bridgev1.RecycleRuntimeResponse, error) {
		<-done
		return out, err
	}
}

// records is an audit log.
type records struct {
	mu   sync.Mutex
	list []audit.Entry
}

func (r *records) Record(_ context.Context, e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

// A draining runtime keeps its sessions and gets no new one, until the drain is undone or its process ends.
func TestDrainedRuntime(t *testing.T) {
	t.Parallel()
	log := &records{}
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Audit = log })
	l.Create("old")
	old := in(l, readyState)
	for range 2 {
		if got := drain(l, old.GetRuntimeId(), false); got.GetState() != drainingState {
			t.Fatalf("the drained runtime is %v", got)
		}
	}
	l.Create("new")
	if next := in(l, readyState); next.GetLoadedSessions() != 1 || next.GetIndex() != 1 {
		t.Errorf("the new session's runtime is %v", next)
	}
	if out := l.Ask("old", "still there"); out.GetText() != "You said: still there" {
		t.Errorf("the session in the draining runtime says %v", out)
	}
	if got := in(l, drainingState); got.GetRuntimeId() != old.GetRuntimeId() || got.GetLoadedSessions() != 1 {
		t.Errorf("the draining runtime is %v", got)
	}
	if got := drain(l, old.GetRuntimeId(), true); got.GetState() != readyState {
		t.Errorf("without the drain the runtime is %v", got)
	}
	l.Create("newer")
	for _, rt := range runtimes(t.Context(), l) {
		if want := int32(2 - rt.GetIndex()); rt.GetLoadedSessions() != want {
			t.Errorf("runtime %d has %d sessions, want %d", rt.GetIndex(), rt.GetLoadedSessions(), want)
		}
	}
	drain(l, old.GetRuntimeId(), false)
	first := l.Processes()[0].CLI
	first.Kill()
	bridgetest.Eventually(t, "the end of the drained process", someRuntime(l, func(rt *bridgev1.RuntimeInfo) bool {
		return rt.GetCause() != ""
	}))
	l.Create("after")
	bridgetest.Eventually(t, "a session in the successor", someRuntime(l, func(rt *bridgev1.RuntimeInfo) bool {
		return rt.GetState() == readyState && rt.GetIndex() == 0 && rt.GetLoadedSessions() > 0
	}))
	want := []string{"runtime.drain", "runtime.drain", "runtime.undrain", "runtime.drain"}
	var got []string
	for _, e := range log.list {
		if e.Subject == old.GetRuntimeId() && e.Outcome == audit.Done {
			got = append(got, e.Action)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

// A session whose runtime was chosen before a drain or a recycle, and that is not in it yet, enters another runtime.
func TestSessionsDoNotEnterDrainingRuntimes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *bridgetest.Bridge, id string){
		"drain": func(l *bridgetest.Bridge, id string) { drain(l, id, false) },
		"recycle": func(l *bridgetest.Bridge, id string) {
			recycle(l, id, durationpb.New(time.Minute))
			bridgetest.Eventually(l.T, "the recycle", someRuntime(l, func(rt *bridgev1.RuntimeInfo) bool {
				return rt.GetState() == stoppingState
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts)
			l.Create("entering")
			l.Ask("entering", "hello")
			l.Create("busy", bridgetest.WithTool)
			l.Begin("busy", "tool") // so that a recycled runtime stays
			l.Disconnect("entering")
			e := l.Store().Get("entering")
			chosen, err := l.Fleet().Place(caller.With(t.Context(), caller.Caller{Role: caller.Admin}), e)
			if err != nil {
				t.Fatal(err)
			}
			old := in(l, readyState)
			end(l, old.GetRuntimeId())
			if err := chosen.Route(e.Session); !errors.Is(err, session.ErrNotAdmitted) {
				t.Errorf("entering the runtime: %v", err)
			}
			if _, err := l.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "entering"}); err != nil {
				t.Fatal(err)
			}
			for _, rt := range runtimes(t.Context(), l) {
				if rt.GetLoadedSessions() != 1 {
					t.Errorf("a runtime is %v", rt)
				}
			}
			l.Ask("entering", "again")
		})
	}
}

// A recycled runtime ends when its turn has ended. Meanwhile its successor serves new sessions, and cannot be recycled
// itself. The session continues in the successor.
func TestRecycledRuntime(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts)
	l.Create("idle")
	l.Create("busy", bridgetest.WithTool)
	l.Ask("busy", "before")
	l.Begin("busy", "tool")
	watching := l.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("busy"), Callbacks: true})
	call := ""
	watching.Frame("the tool call", func(f *bridgev1.SubscribeResponse) bool {
		for _, c := range append(f.GetStarted().GetPendingCallbacks(), f.GetCallbackRequested().GetCallback()) {
			if c != nil {
				call = c.GetCallbackId()
			}
		}
		return call != ""
	})
	old := in(l, readyState)
	drain(l, old.GetRuntimeId(), false) // the successor is not draining
	wait := recycle(l, old.GetRuntimeId(), durationpb.New(time.Minute))
	bridgetest.Eventually(t, "the idle session to leave", someRuntime(l, func(rt *bridgev1.RuntimeInfo) bool {
		return rt.GetState() == stoppingState && rt.GetLoadedSessions() == 1
	}))
	l.Ask("idle", "hello")
	next := in(l, readyState)
	if next.GetIndex() != old.GetIndex() || next.GetRuntimeId() == old.GetRuntimeId() {
		t.Errorf("the successor of %v is %v", old, next)
	}
	for id, reason := range map[string]fault.Reason{
		old.GetRuntimeId(): fault.RuntimeEnding, next.GetRuntimeId(): fault.LimitExceeded,
		"rt-none": fault.RuntimeNotFound,
	} {
		_, err := recycle(l, id, nil)()
		if f, ok := fields.AsFault(err); !ok || f.Reason != reason || f.Field != "runtime_id" {
			t.Errorf("recycling %s: %v, want %v of runtime_id", id, err, reason)
		}
	}
	drain := &bridgev1.DrainRuntimeRequest{RuntimeId: old.GetRuntimeId()}
	if _, err := l.Runtimes.DrainRuntime(t.Context(), drain); fault.ReasonOf(err) != fault.RuntimeEnding {
		t.Errorf("draining the old one: %v", err)
	}
	worked := &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}
	if _, err := l.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{
		SessionId: "busy", CallbackId: call, Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: worked}},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := wait()
	if err != nil || out.GetInterruptedSessions() != 0 ||
		out.GetRuntime().GetState() != bridgev1.RuntimeState_RUNTIME_STATE_DOWN {
		t.Errorf("recycled: %v, %v", out, err)
	}
	l.Ask("busy", "after")
	if got := in(l, readyState); got.GetRuntimeId() != next.GetRuntimeId() || got.GetLoadedSessions() != 2 {
		t.Errorf("then the runtime is %v", got)
	}
}

// After the grace time the turn is interrupted, and its tool call stays answerable.
func TestRecycleInterrupts(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts)
	l.Create("busy", bridgetest.WithTool)
	watching := l.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("busy"), Callbacks: true})
	l.Begin("busy", "tool")
	call := watching.Callback()
	out, err := recycle(l, in(l, readyState).GetRuntimeId(), durationpb.New(0))()
	if err != nil || out.GetInterruptedSessions() != 1 {
		t.Fatalf("recycled: %v, %v", out, err)
	}
	if got := watching.Restarted().GetTurnOutcome().GetStatus(); got != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the turn ended as %v", got)
	}
	pending := func() []*bridgev1.Callback {
		list, err := l.Callbacks.ListPending(t.Context(), &bridgev1.ListPendingRequest{SessionId: "busy"})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetCallbacks()
	}
	bridgetest.Eventually(t, "the session in the successor", func() bool {
		got, err := l.Sessions.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "busy"})
		return err == nil && got.GetSession().GetState() == bridgev1.SessionState_SESSION_STATE_LOADED
	})
	if list := pending(); len(list) != 1 || list[0].GetCallbackId() != call {
		t.Errorf("the pending callbacks are %v, want %s", list, call)
	}
}

// called reports whether a CLI was called.
func called(cli *fakecli.CLI, method string) bool {
	return slices.ContainsFunc(cli.Log(), func(m fakecli.Entry) bool {
		return m.Kind == fakecli.EntryReceived && m.Type == method
	})
}

// An answer that comes while the process shuts down goes to the successor, which continues the turn: the old process
// would take the answer and end.
func TestAnswerDuringTheEnd(t *testing.T) {
	t.Parallel()
	const answering = "session.tools.handlePendingToolCall"
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
		s := bridgetest.Hanging
		if life == 0 {
			delay := fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 500}
			s.Faults = []fakecli.MethodFault{{Method: "runtime.shutdown", Fault: delay}}
		}
		return s
	}))
	l.Create("busy", bridgetest.WithTool)
	l.Ask("busy", "before")
	watching := l.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("busy"), Callbacks: true})
	l.Begin("busy", "tool")
	call := watching.Callback()
	old := l.FakeCLI()
	wait := recycle(l, in(l, readyState).GetRuntimeId(), durationpb.New(0))
	bridgetest.Eventually(t, "the shutdown", func() bool { return called(old, "runtime.shutdown") })
	worked := &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}
	if _, err := l.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{
		SessionId: "busy", CallbackId: call, Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: worked}},
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := wait(); err != nil || out.GetInterruptedSessions() != 1 {
		t.Errorf("recycled: %v, %v", out, err)
	}
	if called(old, answering) || !called(l.FakeCLI(), answering) {
		t.Error("the process that ended has the answer")
	}
	watching.TurnEnded(bridgev1.TurnStatus_TURN_STATUS_COMPLETED)
}

// Owners replace the runtimes of their tenant only; the administrator replaces all.
func TestRuntimesOfOtherTenants(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, bridgetest.Tenants(quota.Limits{}))
	as := func(tenant string, role caller.Role) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: role})
	}
	_, err := l.Sessions.CreateSession(as("a", caller.Owner), &bridgev1.CreateSessionRequest{SessionId: "s"})
	if err != nil {
		t.Fatal(err)
	}
	id := in(l, readyState).GetRuntimeId()
	if got := in(l, readyState).GetTenant(); got != "a" {
		t.Errorf("the administrator sees a runtime of tenant %q", got)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"drain": func(ctx context.Context) error {
			_, err := l.Runtimes.DrainRuntime(ctx, &bridgev1.DrainRuntimeRequest{RuntimeId: id})
			return err
		},
		"recycle": func(ctx context.Context) error {
			_, err := l.Runtimes.RecycleRuntime(ctx, &bridgev1.RecycleRuntimeRequest{RuntimeId: id})
			return err
		},
	} {
		err := call(as("b", caller.Owner))
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.RuntimeNotFound || f.Field != "runtime_id" {
			t.Errorf("%s by another tenant: %v", name, err)
		}
	}
	_, err = l.Runtimes.DrainRuntime(as("a", caller.Owner), &bridgev1.DrainRuntimeRequest{RuntimeId: id})
	if err != nil {
		t.Errorf("drain by the owner: %v", err)
	}
	_, err = l.Runtimes.RecycleRuntime(as("", caller.Admin), &bridgev1.RecycleRuntimeRequest{RuntimeId: id})
	if err != nil {
		t.Errorf("recycle by the administrator: %v", err)
	}
	for _, grace := range []*durationpb.Duration{{Seconds: -1}, {Seconds: 3601}, {Nanos: -1}} {
		_, err := recycle(l, id, grace)()
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "grace_period" {
			t.Errorf("a grace period of %v: %v", grace, err)
		}
	}
}

// A runtime that the server did not start cannot be replaced.
func TestDialedRuntimeIsNotReplaced(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts, func(c *bridgetest.Options) { c.Dialed = true })
	l.Create("s")
	id := in(l, readyState).GetRuntimeId()
	_, drained := l.Runtimes.DrainRuntime(t.Context(), &bridgev1.DrainRuntimeRequest{RuntimeId: id})
	_, recycled := recycle(l, id, nil)()
	for _, err := range []error{drained, recycled} {
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.FeatureDisabled || f.Field != "runtime_id" {
			t.Errorf("%v", err)
		}
	}
}
