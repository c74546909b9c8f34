package copilot_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

type subscribed = stream[bridgev1.SubscribeRequest, bridgev1.SubscribeResponse]

// seen is an element of a sequence of events.
type seen struct {
	seq uint64
	err error
}

// collect reads a sequence in the background. The channel is closed at its end.
func collect(events iter.Seq2[*bridgev1.Event, error]) <-chan seen {
	ch := make(chan seen, 64)
	go func() {
		defer close(ch)
		for ev, err := range events {
			ch <- seen{ev.GetPosition().GetSeq(), err}
		}
	}()
	return ch
}

func event(seq uint64) *bridgev1.Event {
	return &bridgev1.Event{Position: pos(1, seq), Event: &cliv1.SessionEvent{EventType: "assistant.message"}}
}

func events(seqs ...uint64) *bridgev1.SubscribeResponse {
	batch := &bridgev1.EventBatch{}
	for _, seq := range seqs {
		batch.Events = append(batch.Events, event(seq))
	}
	return &bridgev1.SubscribeResponse{
		SessionId: "s1", ResumeAfter: pos(1, seqs[len(seqs)-1]),
		Frame: &bridgev1.SubscribeResponse_Events{Events: batch},
	}
}

func closedFrame(reason bridgev1.CloseReason) *bridgev1.SubscribeResponse {
	return &bridgev1.SubscribeResponse{SessionId: "s1", Frame: &bridgev1.SubscribeResponse_Closed{
		Closed: &bridgev1.SubscriptionClosed{Reason: reason},
	}}
}

func attachedFrame(seq uint64) *bridgev1.SubscribeResponse {
	return &bridgev1.SubscribeResponse{SessionId: "s1", Frame: &bridgev1.SubscribeResponse_Started{
		Started: &bridgev1.SubscriptionStarted{Position: pos(1, seq)},
	}}
}

func heartbeatFrame(seq uint64) *bridgev1.SubscribeResponse {
	return &bridgev1.SubscribeResponse{SessionId: "s1", ResumeAfter: pos(1, seq),
		Frame: &bridgev1.SubscribeResponse_Heartbeat{
			Heartbeat: &bridgev1.Heartbeat{Position: pos(1, seq)},
		}}
}

func gapFrame(from, to uint64, reason bridgev1.GapReason) *bridgev1.SubscribeResponse {
	return &bridgev1.SubscribeResponse{SessionId: "s1", ResumeAfter: pos(1, from),
		Frame: &bridgev1.SubscribeResponse_Gap{
			Gap: &bridgev1.Gap{After: pos(1, from), Through: pos(1, to), Reason: reason},
		}}
}

// after tells where a stream was asked to begin.
func after(s *subscribed) uint64 { return s.req.GetSessions()[0].GetAfter().GetSeq() }

// wantSeqs checks the next elements of a sequence.
func wantSeqs(t *testing.T, ch <-chan seen, want ...uint64) {
	t.Helper()
	for _, seq := range want {
		if got := receive(t, ch, "event"); got.err != nil || got.seq != seq {
			t.Errorf("got %d, %v; want %d", got.seq, got.err, seq)
		}
	}
}

// wantEnd checks that a sequence is over.
func wantEnd(t *testing.T, ch <-chan seen) {
	t.Helper()
	select {
	case got, more := <-ch:
		if more {
			t.Errorf("got %d, %v; want the end", got.seq, got.err)
		}
	case <-time.After(patience):
		t.Fatal("the sequence does not end")
	}
}

func TestEventsGoOnWhereTheStreamBroke(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*subscribed){
		"unavailable": func(s *subscribed) { s.end <- failure(codes.Unavailable, "", "cut") },
		"draining": func(s *subscribed) {
			s.send(closedFrame(bridgev1.CloseReason_CLOSE_REASON_DRAINING))
			s.end <- nil
		},
		"go away": func(s *subscribed) {
			s.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_GoAway{GoAway: &bridgev1.GoAway{}}})
			s.end <- nil
		},
		"cut by a proxy": func(s *subscribed) { s.end <- failure(codes.Internal, "", "RST_STREAM") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFake(t)
			ch := collect(c.Session("s1").Events(testContext(t)))
			s := next(t, f.subs)
			if s.req.GetSessions()[0].GetAfter() != nil || s.req.GetSessions()[0].GetStart() != 0 {
				t.Errorf("request = %v", s.req)
			}
			s.send(attachedFrame(4), events(1, 2), events(4))
			wantSeqs(t, ch, 1, 2, 4)
			breakIt(s)
			s = next(t, f.subs)
			if after(s) != 4 {
				t.Errorf("after = %d", after(s))
			}
			s.send(events(3, 4, 5), events(5), heartbeatFrame(9)) // the first are known
			wantSeqs(t, ch, 5)
			s.end <- failure(codes.Unavailable, "", "cut")
			s = next(t, f.subs)
			if after(s) != 9 { // the filter passed nothing between
				t.Errorf("after = %d", after(s))
			}
			s.send(closedFrame(bridgev1.CloseReason_CLOSE_REASON_DELETED))
			wantEnd(t, ch)
		})
	}
}

func TestEventsBegin(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s := c.Session("s1")
	for name, tc := range map[string]struct {
		opt   copilot.EventsOption
		check func(*bridgev1.SessionCursor) bool
	}{
		"from now": {copilot.FromNow(), func(at *bridgev1.SessionCursor) bool {
			return at.GetStart() == bridgev1.StreamStart_STREAM_START_END && at.GetAfter() == nil
		}},
		"from beginning": {copilot.FromBeginning(), func(at *bridgev1.SessionCursor) bool {
			return at.GetStart() == bridgev1.StreamStart_STREAM_START_UNSPECIFIED && at.GetAfter() == nil
		}},
		"after": {copilot.After(pos(1, 5)),
			func(at *bridgev1.SessionCursor) bool { return at.GetAfter().GetSeq() == 5 }},
		"of types": {copilot.OfTypes("a", "b.*"), func(at *bridgev1.SessionCursor) bool {
			return slices.Equal(at.GetFilter().GetTypes(), []string{"a", "b.*"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(testContext(t))
			ch := collect(s.Events(ctx, tc.opt))
			sub := next(t, f.subs)
			if at := sub.req.GetSessions()[0]; !tc.check(at) {
				t.Errorf("cursor = %v", at)
			}
			cancel()
			if got := receive(t, ch, "error"); !errors.Is(got.err, context.Canceled) {
				t.Errorf("err = %v", got.err)
			}
			wantEnd(t, ch)
		})
	}
}

func TestTailKeepsItsPlaceBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ch := collect(c.Session("s1").Events(testContext(t), copilot.FromNow()))
	s := next(t, f.subs)
	s.send(attachedFrame(7), heartbeatFrame(7))
	s.end <- failure(codes.Unavailable, "", "cut")
	s = next(t, f.subs)
	if after(s) != 7 {
		t.Errorf("after = %d", after(s))
	}
	s.send(closedFrame(bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED))
	wantEnd(t, ch)
}

func TestGaps(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s := c.Session("s1")
	ch := collect(s.Events(testContext(t)))
	sub := next(t, f.subs)
	sub.send(gapFrame(0, 2, bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST), events(3),
		gapFrame(3, 8, bridgev1.GapReason_GAP_REASON_TRIMMED), events(9),
		closedFrame(bridgev1.CloseReason_CLOSE_REASON_DELETED))
	wantSeqs(t, ch, 3)
	var gap *copilot.GapError
	if got := receive(t, ch, "gap"); !errors.As(got.err, &gap) || gap.Through.GetSeq() != 8 {
		t.Errorf("err = %v", got.err)
	}
	wantSeqs(t, ch, 9)
	wantEnd(t, ch)

	told := make(chan *copilot.GapError, 2)
	ch = collect(s.Events(testContext(t), copilot.OnGap(func(g *copilot.GapError) { told <- g })))
	sub = next(t, f.subs)
	sub.send(gapFrame(0, 2, bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST),
		gapFrame(2, 8, bridgev1.GapReason_GAP_REASON_TRIMMED), events(9),
		closedFrame(bridgev1.CloseReason_CLOSE_REASON_DELETED))
	wantSeqs(t, ch, 9)
	wantEnd(t, ch)
	if len(told) != 2 {
		t.Errorf("told of %d gaps", len(told))
	}
}

func TestEventsEndWithAnErrorOfTheServer(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ch := collect(c.Session("s1").Events(testContext(t)))
	next(t, f.subs).end <- failure(codes.NotFound, "SESSION_NOT_FOUND", "no such session")
	got := receive(t, ch, "error")
	if !copilot.IsReason(got.err, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND) {
		t.Errorf("err = %v", got.err)
	}
	wantEnd(t, ch)
}

func TestBreakingOffTheLoopClosesTheStream(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	broken := make(chan struct{})
	all := c.Session("s1").Events(testContext(t))
	go func() {
		defer close(broken)
		for range all {
			break
		}
	}()
	s := next(t, f.subs)
	s.send(events(1, 2))
	<-broken
	<-s.out.Context().Done()
}

func TestSlowLoopHoldsUpNoCallback(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{Tools: testTools()})
	at, on := make(chan struct{}), make(chan struct{})
	all := s.Events(testContext(t))
	stuck := make(chan error, 1)
	go func() {
		for _, err := range all {
			if err != nil {
				stuck <- err
				return
			}
			close(at)
			<-on
			break
		}
		stuck <- nil
	}()
	sub := next(t, f.subs)
	big := events(1)
	big.GetEvents().GetEvents()[0].OriginalJson = new(string(make([]byte, 64<<10)))
	sent := make(chan struct{})
	go func() { // until flow control, or the end of the loop, stops it
		defer close(sent)
		for sub.out.Send(big) == nil {
		}
	}()
	<-at
	a.ask(toolCall("1", "text", `{"city":"Oslo"}`))
	if got := a.answer().GetAnswer().GetTool().GetText(); got != "in Oslo" {
		t.Errorf("answer = %q", got)
	}
	close(on)
	if err := receive(t, stuck, "end of the loop"); err != nil {
		t.Error(err)
	}
	<-sent
}

func TestCloseEndsSequences(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{})
	got := make(chan uint64, 4)
	s.On(func(ev *bridgev1.Event) { got <- ev.GetPosition().GetSeq() })
	sub := next(t, f.subs)
	if after(sub) != 3 { // the position at which the session was opened
		t.Errorf("after = %d", after(sub))
	}
	sub.send(events(4))
	if seq := receive(t, got, "event"); seq != 4 {
		t.Errorf("event %d", seq)
	}
	ch := collect(s.Events(testContext(t)))
	next(t, f.subs)
	closing := make(chan error, 1)
	go func() { closing <- s.Close() }()
	a.goodbye()
	if err := receive(t, closing, "close"); err != nil {
		t.Error(err)
	}
	wantEnd(t, ch)
}

func TestOnStops(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	stop := c.Session("s1").On(func(*bridgev1.Event) {})
	sub := next(t, f.subs)
	stop()
	<-sub.out.Context().Done()
}

func TestResumedSessionBeginsWhereItWasOpened(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ctx := testContext(t)
	ch := make(chan opened, 1)
	go func() {
		s, err := c.ResumeSession(ctx, "s1", copilot.SessionOptions{ContinuePendingWork: true})
		ch <- opened{s, err}
	}()
	a := f.attached(t)
	if r := a.start.GetResume(); r.GetSessionId() != "s1" || !r.GetContinuePendingWork() || !r.GetConfig().GetStreaming() {
		t.Errorf("resume = %v", r)
	}
	o := receive(t, ch, "session")
	seq := collect(o.s.Events(ctx))
	sub := next(t, f.subs)
	if after(sub) != 3 {
		t.Errorf("after = %d", after(sub))
	}
	sub.send(closedFrame(bridgev1.CloseReason_CLOSE_REASON_DELETED))
	wantEnd(t, seq)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	f.listEvents = func(req *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error) {
		if req.GetPageToken() == "" {
			return &bridgev1.ListEventsResponse{
				Events: events(3, 4).GetEvents().GetEvents(), NextPageToken: "two",
				Gap: gapFrame(0, 2, bridgev1.GapReason_GAP_REASON_TRIMMED).GetGap(),
			}, nil
		}
		return &bridgev1.ListEventsResponse{Events: events(5).GetEvents().GetEvents()}, nil
	}
	s := c.Session("s1")
	ch := collect(s.History(testContext(t)))
	var gap *copilot.GapError
	if got := receive(t, ch, "gap"); !errors.As(got.err, &gap) {
		t.Errorf("err = %v", got.err)
	}
	wantSeqs(t, ch, 3, 4, 5)
	wantEnd(t, ch)

	text, err := s.ReadEvent(testContext(t), pos(1, 3))
	if err != nil || string(text) != `{"type":"x"}` {
		t.Errorf("event = %s, %v", text, err)
	}
}

func TestFramesSayWhereReplayEnds(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	frames := c.Session("s1").Frames(testContext(t))
	caughtUp := make(chan uint64, 1)
	go func() {
		defer close(caughtUp)
		for frame, err := range frames {
			if err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if cu := frame.GetCaughtUp(); cu != nil {
				caughtUp <- cu.GetPosition().GetSeq()
				return
			}
		}
	}()
	next(t, f.subs).send(attachedFrame(2), events(1, 2), &bridgev1.SubscribeResponse{
		SessionId: "s1", Frame: &bridgev1.SubscribeResponse_CaughtUp{CaughtUp: &bridgev1.CaughtUp{Position: pos(1, 2)}},
	})
	if seq := receive(t, caughtUp, "end of replay"); seq != 2 {
		t.Errorf("caught up at %d", seq)
	}
}

// A stream of callbacks has them again after it broke, and hands their frames over.
func TestFramesWithCallbacks(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	asked := make(chan string, 1)
	go func() {
		for frame, err := range c.Session("s1").Frames(testContext(t), copilot.WithCallbacks()) {
			if err != nil {
				t.Error(err)
			}
			if cb := frame.GetCallbackRequested().GetCallback(); cb != nil {
				asked <- cb.GetCallbackId()
				return
			}
		}
	}()
	first := next(t, f.subs)
	first.end <- failure(codes.Unavailable, "", "cut")
	again := next(t, f.subs)
	if !first.req.GetCallbacks() || !again.req.GetCallbacks() {
		t.Errorf("callbacks are requested: first %v, again %v", first.req.GetCallbacks(), again.req.GetCallbacks())
	}
	again.send(&bridgev1.SubscribeResponse{SessionId: "s1", Frame: &bridgev1.SubscribeResponse_CallbackRequested{
		CallbackRequested: &bridgev1.CallbackRequested{Callback: &bridgev1.Callback{CallbackId: "cb1"}},
	}})
	if id := receive(t, asked, "callback"); id != "cb1" {
		t.Errorf("callback %q", id)
	}
}
