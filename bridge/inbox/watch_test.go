package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

type labels = map[string]string

// pendingStream is a stream of WatchPending as its caller sees it.
type pendingStream struct {
	t       *testing.T
	changes chan *bridgev1.WatchPendingResponse
	err     chan error
	stop    context.CancelFunc
	hold    sync.Mutex   // while locked, keeps send from returning
	sends   atomic.Int32 // begun
	seen    []string     // by await
}

// watchPending opens a stream as the caller of a context.
func watchPending(ctx context.Context, r *bridgetest.Bridge, q *bridgev1.WatchPendingRequest) *pendingStream {
	ctx, stop := context.WithCancel(ctx)
	changes := make(chan *bridgev1.WatchPendingResponse, 10_000)
	in := &pendingStream{t: r.T, changes: changes, err: make(chan error, 1), stop: stop}
	r.Spawn(func() {
		in.err <- r.Callbacks.WatchPending(ctx, q, func(m *bridgev1.WatchPendingResponse) error {
			in.sends.Add(1)
			in.hold.Lock()
			defer in.hold.Unlock()
			in.changes <- proto.CloneOf(m)
			return nil
		})
	})
	r.T.Cleanup(stop)
	return in
}

// next returns the next change as a word with what it is about.
func (in *pendingStream) next() (*bridgev1.WatchPendingResponse, string) {
	in.t.Helper()
	select {
	case m := <-in.changes:
		switch c := m.GetChange().(type) {
		case *bridgev1.WatchPendingResponse_Requested:
			return m, "requested " + c.Requested.GetSessionId()
		case *bridgev1.WatchPendingResponse_Resolved:
			return m, fmt.Sprint("resolved ", c.Resolved.GetSessionId(), " ",
				c.Resolved.GetResolved().GetOutcome().Number())
		case *bridgev1.WatchPendingResponse_Unmatched:
			return m, "unmatched " + c.Unmatched.GetSessionId()
		}
		d := m.ProtoReflect()
		return m, string(d.WhichOneof(d.Descriptor().Oneofs().ByName("change")).Name())
	case err := <-in.err:
		in.t.Fatalf("the stream ended: %v", err)
	case <-time.After(20 * time.Second):
		in.t.Fatal("no change comes")
	}
	return nil, ""
}

// want reads changes, which must be these.
func (in *pendingStream) want(changes ...string) (last *bridgev1.WatchPendingResponse) {
	in.t.Helper()
	for i, want := range changes {
		m, got := in.next()
		if got != want {
			in.t.Fatalf("change %d is %q, want %q", i, got, want)
		}
		last = m
	}
	return last
}

// await reads changes until one.
func (in *pendingStream) await(change string) *bridgev1.WatchPendingResponse {
	in.t.Helper()
	for {
		m, got := in.next()
		in.seen = append(in.seen, got)
		if got == change {
			return m
		}
	}
}

// end ends the stream as its caller does, and waits for its end.
func (in *pendingStream) end() {
	in.t.Helper()
	in.stop()
	<-in.err
}

// received returns how many calls of a method the CLI received whose messages have a text.
func received(r *bridgetest.Bridge, method, text string) (n int) {
	for _, m := range r.FakeCLI().Log() {
		if m.Kind == fakecli.EntryReceived && m.Type == method && strings.Contains(string(m.Body), text) {
			n++
		}
	}
	return n
}

// nothingWaits waits until a session has no pending callbacks: the end of a turn may precede that.
func nothingWaits(ctx context.Context, r *bridgetest.Bridge, id string) {
	r.T.Helper()
	pending := r.Store().Own(ctx, id).Session.Callbacks().Registry()
	bridgetest.Eventually(r.T, "the end of the callbacks", func() bool { return pending.Len() == 0 })
}

// refuse runs a command that nobody permits.
func refuse(r *bridgetest.Bridge, id string) {
	r.T.Helper()
	r.Ask(id, "a command")
	nothingWaits(r.T.Context(), r, id)
}

// send sends a prompt.
func send(r *bridgetest.Bridge, id, text string) {
	r.T.Helper()
	_, err := r.Turns.Send(r.T.Context(), &bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}})
	if err != nil {
		r.T.Fatal(err)
	}
}

// approve approves a permission request as the caller of a context.
func approve(ctx context.Context, r *bridgetest.Bridge, c *bridgev1.Callback) {
	r.T.Helper()
	_, err := r.Callbacks.Resolve(ctx, &bridgev1.ResolveRequest{
		SessionId: c.GetSessionId(), CallbackId: c.GetCallbackId(),
		Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}},
	})
	if err != nil {
		r.T.Fatal(err)
	}
}

func handling(q *bridgev1.WatchPendingRequest) *bridgev1.WatchPendingRequest {
	q.Handle, q.Grace = true, durationpb.New(0)
	return q
}

// Without a handler a permission is denied at once. With a handler of many sessions it waits, in sessions that exist and
// in new ones, and two streams see who answered. No session counts the handler as a participant.
func TestWatchPendingHandles(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Asking)
	r.Create("s1")
	refuse(r, "s1") // the turn ends without an answer
	watching := watchPending(t.Context(), r, &bridgev1.WatchPendingRequest{})
	watching.want("caught_up")
	in := watchPending(t.Context(), r, handling(&bridgev1.WatchPendingRequest{Name: "console"}))
	in.want("caught_up")
	r.Create("s2", func(q *bridgev1.CreateSessionRequest) {
		q.Lifetime = bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
	})
	for _, id := range []string{"s1", "s2"} {
		send(r, id, "a command")
		asked := in.want("requested " + id).GetRequested()
		if asked.GetPermission() == nil || len(asked.GetParticipantIds()) > 0 {
			t.Errorf("the callback is %v", asked)
		}
		watching.want("requested " + id)
		approve(caller.With(t.Context(), caller.Caller{Name: "ada", Role: caller.Owner}), r, asked)
		for _, stream := range []*pendingStream{in, watching} {
			got := stream.want("resolved " + id + " 1").GetResolved().GetResolved()
			if got.GetAnsweredBy() != "ada" || got.GetCallbackId() != asked.GetCallbackId() {
				t.Errorf("the end is %v, want ada's answer", got)
			}
		}
	}
	out, err := r.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "s2"})
	if err != nil || !out.GetDisconnected() {
		t.Errorf("disconnecting a session with a handler: %v, %v", out, err)
	}
	in.end()
	refuse(r, "s1")
	if n := r.Callbacks.Handlers(); n != 0 {
		t.Errorf("%d handlers are left", n)
	}
}

// A handler of questions turns on the switch by which the CLI asks them, in loaded sessions and in new ones, and off
// when the last one has left; its pending questions then get their default answer.
func TestWatchPendingSwitches(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Asking)
	r.Create("s1")
	on := func(method string) int { return received(r, method, `"requestUserInput":true`) }
	resumed := func() int { return received(r, "session.resume", "") }
	input := &bridgev1.PendingFilter{Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}
	first := watchPending(t.Context(), r, handling(&bridgev1.WatchPendingRequest{Filter: input}))
	first.want("caught_up")
	bridgetest.Eventually(t, "the switch of the loaded session", func() bool { return on("session.resume") == 1 })
	r.Create("s2")
	if n := on("session.create"); n != 1 {
		t.Errorf("%d sessions were created with the switch, want the second", n)
	}
	second := watchPending(t.Context(), r, handling(&bridgev1.WatchPendingRequest{Filter: input}))
	second.want("caught_up")
	send(r, "s1", "a question")
	first.want("requested s1")
	second.want("requested s1")
	before := resumed()
	first.end() // the other one still handles it
	second.end()
	bridgetest.Eventually(t, "the switches' end", func() bool { return resumed() == before+2 })
	if n := on("session.resume"); n != 1 {
		t.Errorf("the switch was turned on %d times, want once", n)
	}
	nothingWaits(t.Context(), r, "s1") // it has got the default answer
}

// A handler that comes while the CLI creates a session is known to the session afterwards.
func TestWatchPendingDuringCreate(t *testing.T) {
	t.Parallel()
	script := bridgetest.Asking
	slowly := fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 300}
	script.Faults = []fakecli.MethodFault{{Method: "session.create", Fault: slowly}}
	r := bridgetest.New(t, script)
	created := make(chan struct{})
	r.Spawn(func() {
		defer close(created)
		r.Create("s1")
	})
	bridgetest.Eventually(t, "the creation", func() bool { return received(r, "session.create", "") == 1 })
	watchPending(t.Context(), r, handling(&bridgev1.WatchPendingRequest{})).want("caught_up")
	<-created
	bridgetest.Eventually(t, "the switches", func() bool { return received(r, "session.resume", `"requestUserInput":true`) == 1 })
}

// A callback waits for a handler in its grace time. A stream with the same filter takes its place; when the grace time
// of that one has passed, the callback gets the default answer.
func TestWatchPendingGrace(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Asking)
	r.Create("s1")
	q := &bridgev1.WatchPendingRequest{Handle: true, Grace: durationpb.New(time.Hour)}
	first := watchPending(t.Context(), r, q)
	first.want("caught_up")
	first.end()
	send(r, "s1", "a question")
	briefly := &bridgev1.WatchPendingRequest{Handle: true, Grace: durationpb.New(time.Millisecond)}
	again := watchPending(t.Context(), r, briefly)
	again.await("requested s1") // before or after caught_up
	if n := r.Callbacks.Handlers(); n != 1 {
		t.Errorf("%d handlers, want the new one in the place of the old one", n)
	}
	watching := watchPending(t.Context(), r, &bridgev1.WatchPendingRequest{})
	watching.want("requested s1", "caught_up")
	again.end()
	watching.want("resolved s1 3")
	// A caller that loses its rights loses them at once, whatever its grace time is.
	ctx, withdraw := context.WithCancelCause(t.Context())
	last := watchPending(ctx, r, q)
	last.want("caught_up")
	withdraw(caller.ErrWithdrawn)
	<-last.err
	if n := r.Callbacks.Handlers(); n != 0 {
		t.Errorf("%d handlers after the rights were withdrawn", n)
	}
}

// Streams show sessions that are shared with the caller's tenant from then until the end of the share, and nothing else
// of other tenants. Guests handle callbacks only if they may participate.
func TestWatchPendingOfTenants(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Asking, bridgetest.Tenants(quota.Limits{}))
	as := func(tenant, name string) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Name: name, Role: caller.Owner, Class: caller.Own})
	}
	share := func(access bridgev1.ShareAccess) {
		t.Helper()
		q := &bridgev1.ShareSessionRequest{SessionId: "given", Tenant: "b", Access: access}
		if _, err := r.Shares.ShareSession(as("a", ""), q); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Shares.AcceptShare(as("b", ""), &bridgev1.AcceptShareRequest{SessionId: "a/given"}); err != nil {
			t.Fatal(err)
		}
	}
	send := func(id string) {
		t.Helper()
		q := &bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "a command"}}
		if _, err := r.Turns.Send(as("a", ""), q); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(id string) {
		t.Helper()
		q := &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "a command"}}
		if _, err := r.Turns.SendAndWait(as("a", ""), q); err != nil {
			t.Fatal(err)
		}
		nothingWaits(as("a", ""), r, id)
	}
	for _, id := range []string{"given", "own"} {
		if _, err := r.Sessions.CreateSession(as("a", ""), &bridgev1.CreateSessionRequest{SessionId: id}); err != nil {
			t.Fatal(err)
		}
	}
	guest := watchPending(as("b", ""), r, handling(&bridgev1.WatchPendingRequest{}))
	guest.want("caught_up")
	refused("own")
	share(bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE)
	refused("given") // an observer does not make it wait
	share(bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE)
	owner := watchPending(as("a", ""), r, &bridgev1.WatchPendingRequest{})
	owner.want("caught_up")
	send("given")
	asked := owner.want("requested given").GetRequested()
	for guest.await("requested a/given").GetRequested().GetCallbackId() != asked.GetCallbackId() {
	}
	late := watchPending(as("b", ""), r, &bridgev1.WatchPendingRequest{Filter: &bridgev1.PendingFilter{Owner: "a"}})
	late.want("requested a/given", "caught_up")
	none := watchPending(as("b", ""), r, &bridgev1.WatchPendingRequest{Filter: &bridgev1.PendingFilter{Owner: "b"}})
	none.want("caught_up")
	approve(as("a", "ada"), r, asked)
	if by := owner.want("resolved given 1").GetResolved().GetResolved().GetAnsweredBy(); by != "ada" {
		t.Errorf("answered by %q", by)
	}
	for _, stream := range []*pendingStream{guest, late} {
		if by := stream.await("resolved a/given 1").GetResolved().GetResolved().GetAnsweredBy(); by != "" {
			t.Errorf("a guest sees the name %q", by)
		}
	}
	send("given")
	guest.await("requested a/given")
	q := &bridgev1.UnshareSessionRequest{SessionId: "given", Tenant: "b"}
	if _, err := r.Shares.UnshareSession(as("a", ""), q); err != nil {
		t.Fatal(err)
	}
	guest.await("unmatched a/given")
	refused("own")
	for name, stream := range map[string]*pendingStream{"guest": guest, "filter": none, "late": late} {
		stream.end()
		close(stream.changes)
		for m := range stream.changes {
			stream.seen = append(stream.seen, m.String())
		}
		for _, what := range stream.seen {
			if !strings.Contains(what, "a/given") {
				t.Errorf("the stream %q of another tenant has %q", name, what)
			}
		}
	}
	if len(none.seen) > 0 {
		t.Errorf("the stream of the tenant's own sessions has %q", none.seen)
	}
}

// Sessions enter and leave a stream, and the care of its handler, by their labels.
func TestWatchPendingByLabels(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Asking)
	r.Create("s1", bridgetest.WithLabels(labels{"team": "red"}))
	r.Create("s2", bridgetest.WithLabels(labels{"team": "blue"}))
	q := &bridgev1.WatchPendingRequest{Filter: &bridgev1.PendingFilter{Labels: labels{"team": "red"}}}
	in, all := watchPending(t.Context(), r, handling(q)), watchPending(t.Context(), r, &bridgev1.WatchPendingRequest{})
	in.want("caught_up")
	all.want("caught_up")
	label := func(id, team string) {
		t.Helper()
		q := &bridgev1.UpdateLabelsRequest{SessionId: id, Set: labels{"team": team}}
		if _, err := r.Sessions.UpdateLabels(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	refuse(r, "s2")
	send(r, "s1", "a command")
	in.want("requested s1")
	all.await("requested s1")
	label("s1", "blue")
	in.want("unmatched s1")
	label("s1", "red")
	in.want("requested s1")
	label("s2", "red")
	send(r, "s2", "a command")
	in.want("requested s2")
	all.await("requested s2")
}

// A reader that is too slow receives a reset and then what waits; the session's CLI is not held up.
func TestWatchPendingSlowReader(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	e := r.Store().Own(t.Context(), "s1")
	in := watchPending(t.Context(), r, &bridgev1.WatchPendingRequest{})
	in.want("caught_up")
	in.hold.Lock()
	kind := callback.ForEvent(callback.PermissionRequested)
	const count = 400
	for i := range count {
		p := &callback.Pending{ID: fmt.Sprint("c", i), Kind: kind, Params: []byte(`{}`), Created: time.Unix(int64(i), 0)}
		if !e.Session.Callbacks().Registry().Add(p, func(string) {}) {
			t.Fatal("not pending")
		}
		r.Callbacks.CallbackRequested(e, p)
		if i == 0 {
			bridgetest.Eventually(t, "the first callback's frame", func() bool { return in.sends.Load() == 2 })
		}
	}
	in.hold.Unlock()
	var ids []string
	resets := 0
	for {
		m, what := in.next()
		switch what {
		case "reset":
			ids, resets = nil, resets+1
			continue
		case "requested s1":
			ids = append(ids, m.GetRequested().GetCallbackId())
			continue
		case "caught_up":
		default:
			t.Fatalf("change %q", what)
		}
		break
	}
	if resets != 1 || len(ids) != count || ids[0] != "c0" || !slices.IsSortedFunc(ids, byNumber) {
		t.Errorf("%d resets, then %d callbacks: %v", resets, len(ids), ids)
	}
	e.Session.Callbacks().Withdraw(func(p *callback.Pending) bool { return p.ID == "c7" },
		bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
	in.want("resolved s1 4")
}

func byNumber(a, b string) int {
	var n, m int
	_, _ = fmt.Sscanf(a, "c%d", &n)
	_, _ = fmt.Sscanf(b, "c%d", &m)
	return n - m
}

// Invalid requests name the field; an observer may watch and not handle. A draining server ends the streams with OK.
func TestWatchPendingRequests(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	as := func(role caller.Role) context.Context {
		return caller.With(t.Context(), caller.Caller{Role: role, Class: caller.Read})
	}
	type request = bridgev1.WatchPendingRequest
	hasty := &request{HeartbeatInterval: durationpb.New(1)}
	badLabel, badOwner := &bridgev1.PendingFilter{Labels: labels{"": ""}}, &bridgev1.PendingFilter{Owner: "A/b"}
	filter := func(f *bridgev1.PendingFilter) *request { return &request{Filter: f} }
	kinds := func(k ...bridgev1.CallbackKind) *request { return filter(&bridgev1.PendingFilter{Kinds: k}) }
	for name, test := range map[string]struct {
		role   caller.Role
		q      *bridgev1.WatchPendingRequest
		reason fault.Reason
		field  string
	}{
		"an observer handles": {caller.Observer, handling(&request{}), fault.Forbidden, ""},
		"an unknown kind":     {caller.Owner, kinds(99), fault.InvalidField, "filter.kinds[0]"},
		"no kind":             {caller.Owner, kinds(2, 0), fault.InvalidField, "filter.kinds[1]"},
		"handling tools":      {caller.Owner, handling(kinds(1)), fault.InvalidField, "filter.kinds[0]"},
		"a label":             {caller.Owner, filter(badLabel), fault.InvalidField, "filter.labels"},
		"an owner":            {caller.Owner, filter(badOwner), fault.InvalidField, "filter.owner"},
		"a long name":         {caller.Owner, &request{Name: strings.Repeat("n", 129)}, fault.InvalidField, "name"},
		"a long grace":        {caller.Owner, &request{Grace: durationpb.New(time.Hour + 1)}, fault.InvalidField, "grace"},
		"a short heartbeat":   {caller.Owner, hasty, fault.InvalidField, "heartbeat_interval"},
	} {
		err := r.Callbacks.WatchPending(as(test.role), test.q, func(*bridgev1.WatchPendingResponse) error { return nil })
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Reason != test.reason || f.Field != test.field {
			t.Errorf("%s: %v, want %v at %q", name, err, test.reason, test.field)
		}
	}
	in := watchPending(as(caller.Observer), r, &request{HeartbeatInterval: durationpb.New(time.Second)})
	in.want("caught_up", "heartbeat")
	r.Drain(time.Minute)
	if err := <-in.err; err != nil {
		t.Errorf("the stream of a server that drains ends with %v", err)
	}
}
