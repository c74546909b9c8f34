package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func TestStreamFrames(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	r.Ask("s1", "hello")
	s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	attached := s.Next()
	if a := attached.GetStarted(); attached.GetSessionId() != "s1" || a.GetPosition().GetSeq() == 0 || a.GetFirstAvailable().GetSeq() != 1 || a.GetSession().GetSessionId() != "s1" {
		t.Errorf("attached: %v", attached)
	}
	replay := s.Until("<caught_up>")
	if i := slices.Index(replay, "session.idle"); i < 0 || replay[0] != "session.start" {
		t.Errorf("replay: %q", replay)
	}
	// From a position on, and only what happens.
	tail := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", Start: bridgev1.StreamStart_STREAM_START_END}}})
	after := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: attached.GetStarted().GetPosition()}}})
	for _, s := range []*bridgetest.Stream{tail, after} {
		if got := append(bridgetest.Kinds(s.Next()), bridgetest.Kinds(s.Next())...); fmt.Sprint(got) != "[<started> <caught_up>]" {
			t.Errorf("frames: %q", got)
		}
	}
	r.Ask("s1", "again")
	want := s.Events("session.idle")
	for _, s := range []*bridgetest.Stream{tail, after} {
		if got := s.Events("session.idle"); !slices.Equal(got, want) {
			t.Errorf("got %d events, want the same %d", len(got), len(want))
		}
	}
	if _, err := r.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*bridgetest.Stream{tail, after, s} {
		if got := s.Until("<closed>"); len(got) > 3 {
			t.Errorf("the end: %q", got)
		}
		if err := <-s.Err; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	}
}

func TestSeveralSessionsOnAStream(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	r.Create("s2")
	s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: append(bridgetest.Cursors("s1"), bridgetest.Cursors("s2")...)})
	r.Ask("s1", "to one")
	r.Ask("s2", "to two")
	seen := map[string]string{}
	idle := 0
	for idle < 2 {
		f := s.Next()
		for _, e := range f.GetEvents().GetEvents() {
			seen[f.GetSessionId()] += e.GetEvent().GetAssistantMessage().GetContent()
			if e.GetEvent().GetEventType() == "session.idle" {
				idle++
			}
		}
	}
	if seen["s1"] != "You said: to one" || seen["s2"] != "You said: to two" {
		t.Errorf("seen: %q", seen)
	}
	// One that ends does not end the other.
	if _, err := r.Sessions.DeleteSession(t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	s.Until("<closed>")
	r.Ask("s2", "still there")
	s.Until("session.idle")
	s.Stop()
	if err := <-s.Err; fault.ReasonOf(err) != fault.Cancelled {
		t.Errorf("the stream ended with %v", err)
	}
}

// A reader that reads nothing delays no other reader, and receives all events when it reads again.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "burst", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 5000, Size: 20}, Text: "end"}}}}})
	r.Create("s1")
	slow := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	quick := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	slow.Next()
	slow.Hold()
	r.Ask("s1", "burst")
	want := quick.Events("session.idle")
	slow.Release()
	got := slow.Events("session.idle")
	if len(want) < 5000 || !slices.Equal(got, want) {
		t.Errorf("the slow reader got %d events, the quick one %d", len(got), len(want))
	}
}

// A reader that missed dropped events receives a gap with the current state.
func TestGap(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "burst", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 2000, Size: 20}, Text: "end"}}}}},
		func(c *bridgetest.Options) { c.MaxEphemeralBytes = 32 << 10 })
	r.Create("s1")
	r.Ask("s1", "burst")
	s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	s.Next()
	gap := s.Next().GetGap()
	if gap.GetAfter().GetSeq() != 0 || gap.GetThrough().GetSeq() < 1000 || gap.GetReason() != bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST || gap.GetSession() == nil {
		t.Fatalf("gap: %v", gap)
	}
	got := s.Until("<caught_up>")
	for _, durable := range []string{"session.start", "user.message", "assistant.message"} {
		if !slices.Contains(got, durable) {
			t.Errorf("%s was dropped", durable)
		}
	}
	// A reader that excludes ephemeral events has missed nothing.
	s = r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", Filter: &bridgev1.EventFilter{ExcludeEphemeral: true}}}})
	if got := s.Until("<caught_up>"); slices.Contains(got, "<gap>") || slices.Contains(got, "session.idle") {
		t.Errorf("frames: %q", got)
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := bridgetest.New(t, fakecli.Script{})
		r.Create("s1")
		r.Create("s2")
		s := r.Subscribe(&bridgev1.SubscribeRequest{
			Sessions: append(bridgetest.Cursors("s1"), bridgetest.Cursors("s2")...),
			Options:  &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(10 * time.Second)},
		})
		synctest.Wait()
		for len(s.Frames) > 0 {
			<-s.Frames
		}
		time.Sleep(20*time.Second + time.Millisecond) // the first interval was not idle
		synctest.Wait()
		if got := bridgetest.Kinds(s.Next()); len(s.Frames) > 0 || got[0] != "<heartbeat>" {
			t.Errorf("when idle: %q and %d more", got, len(s.Frames))
		}
		if _, err := r.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "s1"}); err != nil {
			t.Fatal(err)
		}
		s.Until("<closed>")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if f := s.Next(); f.GetHeartbeat() == nil || f.GetSessionId() != "s2" {
			t.Errorf("when the first session is over: %v", f)
		}
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	// The CLI emits its two first events after its reply to the create: each of them can arrive after the
	// stream has caught up, and the second one also between the last two frames.
	missing := []string{"<caught_up>", "session.start", "session.managed_settings_resolved"}
	for len(missing) > 0 {
		seen := bridgetest.Kinds(s.Next())
		missing = slices.DeleteFunc(missing, func(one string) bool { return slices.Contains(seen, one) })
	}
	r.Drain(time.Millisecond)
	away := s.Next().GetGoAway()
	if away.GetReason() != bridgev1.GoAwayReason_GO_AWAY_REASON_DRAINING || len(away.GetPositions()) != 1 || away.GetPositions()[0].GetSessionId() != "s1" || away.GetPositions()[0].GetPosition().GetSeq() == 0 {
		t.Errorf("go away: %v", away)
	}
	if f := s.Next().GetClosed(); f.GetReason() != bridgev1.CloseReason_CLOSE_REASON_DRAINING {
		t.Errorf("closed: %v", f)
	}
	if err := <-s.Err; err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestSubscribeChecks(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	first, err := r.Events.ListEvents(t.Context(), &bridgev1.ListEventsRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	future := &bridgev1.Position{Epoch: first.GetEvents()[0].GetPosition().GetEpoch(), Seq: 1 << 60}
	for what, test := range map[string]struct {
		q      *bridgev1.SubscribeRequest
		reason fault.Reason
		field  string
	}{
		"no session":     {&bridgev1.SubscribeRequest{}, fault.InvalidField, "sessions"},
		"no id":          {&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("")}, fault.InvalidField, "sessions[0].session_id"},
		"unknown":        {&bridgev1.SubscribeRequest{Sessions: append(bridgetest.Cursors("s1"), bridgetest.Cursors("x")...)}, fault.SessionNotFound, "sessions[1].session_id"},
		"twice":          {&bridgev1.SubscribeRequest{Sessions: append(bridgetest.Cursors("s1"), bridgetest.Cursors("s1")...)}, fault.InvalidField, "sessions[1].session_id"},
		"the future":     {&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: future}}}, fault.InvalidField, "sessions[0].after"},
		"a filter":       {&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", Filter: &bridgev1.EventFilter{Types: []string{"a*b"}}}}}, fault.InvalidField, "sessions[0].filter.types"},
		"the heartbeat":  {&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Options: &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(time.Millisecond)}}, fault.InvalidField, "options.heartbeat_interval"},
		"the lingering":  {&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Options: &bridgev1.StreamOptions{BatchDelay: durationpb.New(time.Second)}}, fault.InvalidField, "options.batch_delay"},
		"a bad duration": {&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Options: &bridgev1.StreamOptions{BatchDelay: &durationpb.Duration{Nanos: -1, Seconds: 1}}}, fault.InvalidField, "options.batch_delay"},
	} {
		s := r.Subscribe(test.q)
		bridgetest.WantFault(t, what, <-s.Err, test.reason, test.field)
	}
}

func TestListEvents(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	r.Ask("s1", strings.Repeat("x", 3000))
	list := func(q *bridgev1.ListEventsRequest) *bridgev1.ListEventsResponse {
		t.Helper()
		q.SessionId = "s1"
		out, err := r.Events.ListEvents(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := list(&bridgev1.ListEventsRequest{}).GetEvents()
	var paged []*bridgev1.Event
	pages := 0
	for token := ""; ; pages++ {
		out := list(&bridgev1.ListEventsRequest{PageBytes: stream.MinPageBytes, PageToken: token})
		paged = append(paged, out.GetEvents()...)
		if token = out.GetNextPageToken(); token == "" {
			break
		}
	}
	if fmt.Sprint(paged) != fmt.Sprint(whole) || pages < 3 {
		t.Errorf("%d events on %d pages, %d at once", len(paged), pages, len(whole))
	}
	after := list(&bridgev1.ListEventsRequest{After: whole[2].GetPosition()}).GetEvents()
	if len(after) != len(whole)-3 || after[0].GetPosition().GetSeq() != 4 {
		t.Errorf("%d events after the third of %d", len(after), len(whole))
	}
	if got := list(&bridgev1.ListEventsRequest{Filter: &bridgev1.EventFilter{Types: []string{"user.message"}}}).GetEvents(); len(got) != 1 {
		t.Errorf("%d user messages", len(got))
	}
	for what, test := range map[string]struct {
		q     *bridgev1.ListEventsRequest
		field string
	}{
		"token":  {&bridgev1.ListEventsRequest{SessionId: "s1", PageToken: "what"}, "page_token"},
		"bytes":  {&bridgev1.ListEventsRequest{SessionId: "s1", PageBytes: 3}, "page_bytes"},
		"future": {&bridgev1.ListEventsRequest{SessionId: "s1", After: &bridgev1.Position{Epoch: whole[0].GetPosition().GetEpoch(), Seq: 1e6}}, "after"},
	} {
		_, err := r.Events.ListEvents(t.Context(), test.q)
		bridgetest.WantFault(t, what, err, fault.InvalidField, test.field)
	}
	var text []byte
	var total int64
	err := r.Events.ReadEvent(t.Context(), &bridgev1.ReadEventRequest{SessionId: "s1", Position: whole[0].GetPosition()}, func(p *bridgev1.ReadEventResponse) error {
		text = append(text, p.GetJsonChunk()...)
		total += p.GetTotalBytes()
		return nil
	})
	if err != nil || int64(len(text)) != total || !strings.Contains(string(text), `"type":"session.start"`) {
		t.Errorf("read: %v, %d of %d", err, len(text), total)
	}
	err = r.Events.ReadEvent(t.Context(), &bridgev1.ReadEventRequest{SessionId: "s1", Position: &bridgev1.Position{}}, nil)
	bridgetest.WantFault(t, "no event", err, fault.EventNotFound, "position")
}

// The frames of a single reader are built in reused memory; several readers share frames. Both forms have the
// same content.
func TestOwnFrames(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	r.Ask("s1", strings.Repeat("hello ", 1000))
	caught := errors.New("caught up")
	read := func() (own int, frames string) {
		t.Helper()
		err := r.Events.Subscribe(t.Context(), &bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")}, func(sent frame.Frame) error {
			if m, ok := sent.Message.(*bridgev1.SubscribeResponse); ok {
				if m.GetCaughtUp() != nil {
					return caught
				}
				return nil
			}
			if sent.Own != nil {
				own++
				if &sent.Own.Bytes[0] != &sent.Wire[len(sent.Wire)-1][0] {
					t.Error("the last piece is not the frame's own")
				}
			}
			frames += fmt.Sprintf("%q\n", bytes.Join(sent.Wire, nil))
			return nil
		})
		if !errors.Is(err, caught) {
			t.Fatal(err)
		}
		return own, frames
	}
	own, alone := read()
	other := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	other.Until("<caught_up>")
	shared, together := read()
	if own == 0 || shared != 0 {
		t.Errorf("%d frames of its own for one reader, %d for two", own, shared)
	}
	if alone != together {
		t.Error("the frames differ")
	}
}
