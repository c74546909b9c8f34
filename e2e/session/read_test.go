package session

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// everything lets all events pass.
var everything = &bridgev1.EventFilter{IncludeLarge: true}

// subscribe opens a stream over one session and returns what gives its frames.
func subscribeTo(
	s *harness.TestSession, cursor *bridgev1.SessionCursor,
) (next func() *bridgev1.SubscribeResponse, stop func()) {
	s.Fixture.T.Helper()
	ctx, cancel := context.WithCancel(s.Fixture.Ctx)
	s.Fixture.T.Cleanup(cancel)
	cursor.SessionId = s.ID()
	stream, err := s.Fixture.Client.EventStreams().Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{cursor},
		Options:  &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(time.Second)},
	})
	if err != nil {
		s.Fixture.T.Fatal(err)
	}
	return func() *bridgev1.SubscribeResponse {
		s.Fixture.T.Helper()
		frame, err := stream.Recv()
		if err != nil {
			s.Fixture.T.Fatalf("subscription: %v", err)
		}
		return frame
	}, cancel
}

func TestSessionSubscribeResumesByPosition(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("one")
	s.WaitFor("session.idle")
	all := s.Recorded()

	next, stop := subscribeTo(s, &bridgev1.SessionCursor{Filter: everything})
	first := next()
	if first.GetStarted() == nil || first.GetSessionId() != s.ID() ||
		copilot.ComparePositions(first.GetStarted().GetPosition(), all[len(all)-1].GetPosition()) < 0 ||
		first.GetStarted().GetFirstAvailable().GetSeq() != 1 {
		t.Fatalf("first frame is %v", first)
	}
	var got []*bridgev1.Event
	for len(got) < len(all)/2 {
		got = append(got, next().GetEvents().GetEvents()...)
	}
	stop()
	got = got[:len(all)/2]

	// Elsewhere, later, after the last event that was used.
	next, _ = subscribeTo(s, &bridgev1.SessionCursor{After: got[len(got)-1].GetPosition(), Filter: everything})
	for caughtUp := false; !caughtUp; {
		frame := next()
		got = append(got, frame.GetEvents().GetEvents()...)
		caughtUp = frame.GetCaughtUp() != nil
	}
	for i, ev := range got {
		if ev.GetPosition().GetSeq() != uint64(i+1) {
			t.Fatalf("event %d has position %v", i, ev.GetPosition())
		}
		if i < len(all) && ev.GetEvent().GetId() != all[i].GetEvent().GetId() {
			t.Errorf("event %d is %v, in the history %v", i, ev, all[i])
		}
	}
	if len(got) < len(all) {
		t.Errorf("%d events, the history has %d", len(got), len(all))
	}
	// And what happens now follows without a gap.
	s.Submit("two")
	last := got[len(got)-1].GetPosition().GetSeq()
	for {
		for _, ev := range next().GetEvents().GetEvents() {
			if last++; ev.GetPosition().GetSeq() != last {
				t.Fatalf("event %v follows %d", ev.GetPosition(), last-1)
			}
			if ev.GetEvent().GetEventType() == "session.idle" {
				return
			}
		}
	}
}

func TestSessionSubscribeHeartbeat(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello")
	end := s.WaitFor("session.idle").GetPosition()
	next, _ := subscribeTo(s, &bridgev1.SessionCursor{Filter: &bridgev1.EventFilter{Types: []string{"abort"}}})
	for {
		frame := next()
		if len(frame.GetEvents().GetEvents()) > 0 {
			t.Errorf("the filter let %v pass", frame)
		}
		if beat := frame.GetHeartbeat(); beat != nil {
			if copilot.ComparePositions(beat.GetPosition(), end) < 0 {
				t.Errorf("heartbeat is at %v, not past what was left out, %v", beat.GetPosition(), end)
			}
			return
		}
	}
}

func TestSessionSubscribeSeveral(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	a, b := r.Session(r.Options()), r.Session(r.Options())
	stream, err := r.Client.EventStreams().Subscribe(r.Ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{
			{SessionId: a.ID(), Start: bridgev1.StreamStart_STREAM_START_END},
			{SessionId: b.ID(), Start: bridgev1.StreamStart_STREAM_START_END},
		}})
	if err != nil {
		t.Fatal(err)
	}
	caughtUp := 0
	said := map[string]string{}
	for len(said) < 2 {
		frame, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if frame.GetCaughtUp() != nil {
			if caughtUp++; caughtUp == 2 {
				a.Submit("I am a")
				b.Submit("I am b")
			}
		}
		for _, ev := range frame.GetEvents().GetEvents() {
			if m := ev.GetEvent().GetAssistantMessage(); m != nil {
				said[frame.GetSessionId()] += m.GetContent()
			}
		}
	}
	if said[a.ID()] != "You said: I am a" || said[b.ID()] != "You said: I am b" {
		t.Errorf("the sessions say %q", said)
	}
	_, err = recvError(r.Client.EventStreams().Subscribe(r.Ctx, &bridgev1.SubscribeRequest{}))
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, err = recvError(r.Client.EventStreams().Subscribe(r.Ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: "no-such-session"}},
	}))
	harness.WantError(t, err, codes.NotFound, notFound)
}

// recvError reads the first frame of a stream that should have none.
func recvError[T any](stream interface{ Recv() (*T, error) }, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

func TestSessionListEventsPaged(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	for range 3 {
		s.Ask("hello")
	}
	all := s.Recorded()
	const pageBytes = 1 << 10
	req := &bridgev1.ListEventsRequest{SessionId: s.ID(), Filter: everything, PageBytes: pageBytes}
	var got []*bridgev1.Event
	pages := 0
	for {
		page, err := r.Client.Sessions().ListEvents(r.Ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if n := len(page.GetEvents()); n == 0 || n > 1 && proto.Size(page) > 2*pageBytes {
			t.Errorf("page %d has %d events and %d bytes", pages, n, proto.Size(page))
		}
		got = append(got, page.GetEvents()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	ids := func(events []*bridgev1.Event) []string {
		var all []string
		for _, ev := range events {
			all = append(all, ev.GetEvent().GetId())
		}
		return all
	}
	if got, want := ids(got), ids(all); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("%d pages have %d events, in one page there are %d, or others", pages, len(got), len(want))
	}
	if pages < 10 {
		t.Errorf("%d events came on %d pages", len(got), pages)
	}
}

func TestSessionListEventsFiltered(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("one")
	s.Ask("two")
	tests := []struct {
		name   string
		filter *bridgev1.EventFilter
		holds  func(eventType string, ephemeral bool) bool
	}{
		{"types", &bridgev1.EventFilter{Types: []string{"user.message"}},
			func(typ string, _ bool) bool { return typ == "user.message" }},
		{"family", &bridgev1.EventFilter{Types: []string{"assistant.*"}},
			func(typ string, _ bool) bool { return strings.HasPrefix(typ, "assistant.") }},
		{"excluded", &bridgev1.EventFilter{ExcludeTypes: []string{"model.*", "session.*"}},
			func(typ string, _ bool) bool {
				return !strings.HasPrefix(typ, "model.") && !strings.HasPrefix(typ, "session.")
			}},
		{"durable", &bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true},
			func(_ string, ephemeral bool) bool { return !ephemeral }},
		{"large by name", &bridgev1.EventFilter{Types: []string{"system.message"}},
			func(typ string, _ bool) bool { return typ == "system.message" }},
		{"default", nil,
			func(typ string, _ bool) bool { return typ != "system.message" && typ != "model.messages_snapshot" }},
	}
	for _, tt := range tests {
		var opts []copilot.EventsOption
		if tt.filter != nil {
			opts = append(opts, copilot.WithFilter(tt.filter))
		}
		n := 0
		for ev, err := range s.History(r.Ctx, opts...) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !tt.holds(ev.GetEvent().GetEventType(), ev.GetEvent().GetEphemeral()) {
				t.Errorf("%s: %s came", tt.name, ev.GetEvent().GetEventType())
			}
		}
		if n < 2 {
			t.Errorf("%s: %d events came", tt.name, n)
		}
	}
}

func TestSessionReadLargeEvent(t *testing.T) {
	t.Parallel()
	const piece, times = "0123456789abcdef", 100_000
	r := harness.NewFixture(t, `
rules:
  - when: {user: "much"}
    reply: [{text: "`+piece+`", repeat: 100000}]
default: {reply: [{text: "ok"}]}`)
	s := r.Session(r.Options())
	if got := s.Ask("Say much"); got != strings.Repeat(piece, times) {
		t.Errorf("the outcome has %d bytes, want %d", len(got), times*len(piece))
	}
	ev := s.WaitFor("assistant.message")
	if !ev.GetTruncated() || proto.Size(ev) >= 1<<20 {
		t.Errorf("an event of more than a MiB came with %d bytes, truncated: %t", proto.Size(ev), ev.GetTruncated())
	}
	whole, err := s.ReadEvent(r.Ctx, ev.GetPosition())
	if err != nil {
		t.Fatal(err)
	}
	var event struct {
		ID   string
		Data struct{ Content string }
	}
	if err := json.Unmarshal(whole, &event); err != nil {
		t.Fatal(err)
	}
	if event.ID != ev.GetEvent().GetId() || event.Data.Content != strings.Repeat(piece, times) {
		t.Errorf("the whole event is %q with %d bytes of content, want %q with %d",
			event.ID, len(event.Data.Content), ev.GetEvent().GetId(), times*len(piece))
	}
	small := s.WaitFor("user.message")
	if small.GetTruncated() {
		t.Error("a small event is truncated")
	}
	_, err = s.ReadEvent(r.Ctx, &bridgev1.Position{Epoch: ev.GetPosition().GetEpoch(), Seq: 1 << 40})
	harness.WantError(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_EVENT_NOT_FOUND)
}

func TestSessionOriginalJSON(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello")
	record := map[string]harness.Recorded{}
	for _, one := range s.Record() {
		record[one.ID] = one
	}
	n := 0
	opts := []copilot.EventsOption{
		// Without system.message: CLI 1.0.102 records that one in a shorter form.
		copilot.WithFilter(&bridgev1.EventFilter{ExcludeEphemeral: true}),
		copilot.WithStreamOptions(&bridgev1.StreamOptions{OriginalJson: true,
			Fidelity: bridgev1.Fidelity_FIDELITY_EXACT}),
	}
	for ev, err := range s.History(r.Ctx, opts...) {
		if err != nil {
			t.Fatal(err)
		}
		var original harness.Recorded
		if err := json.Unmarshal([]byte(ev.GetOriginalJson()), &original); err != nil {
			t.Fatal(err)
		}
		want, found := record[original.ID]
		if !found || original.Type != want.Type || !sameJSON(t, original.Data, want.Data) {
			t.Errorf("original JSON is %s, the CLI recorded %s", ev.GetOriginalJson(), want.Data)
		}
		n++
	}
	if n < 5 {
		t.Errorf("there are %d events", n)
	}
}

// sameJSON reports whether two texts are the same value.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
