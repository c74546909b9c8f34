package copilot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// pipe is the client's end of an Attach stream, without a network, so that its time can
// be the test's.
type pipe struct {
	grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	ctx  context.Context
	sent chan *bridgev1.AttachRequest
	back chan *bridgev1.AttachResponse
}

func (p *pipe) Send(req *bridgev1.AttachRequest) error {
	p.sent <- req
	return p.ctx.Err()
}

func (p *pipe) Recv() (*bridgev1.AttachResponse, error) {
	select {
	case resp := <-p.back:
		return resp, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *pipe) CloseSend() error { return nil }

// pipes makes a pipe for each Attach call.
type pipes struct {
	bridgev1.CallbackServiceClient
	made chan *pipe
}

func (ps *pipes) Attach(
	ctx context.Context, _ ...grpc.CallOption,
) (grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse], error) {
	p := &pipe{
		ctx: ctx, sent: make(chan *bridgev1.AttachRequest, 100), back: make(chan *bridgev1.AttachResponse, 100),
	}
	p.back <- &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{
		Session: &bridgev1.Session{SessionId: "s1"}, ParticipantToken: "secret",
	}}}
	ps.made <- p
	return p, nil
}

func TestHeartbeatsAndSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := &pipes{made: make(chan *pipe, 10)}
		c := NewClient(nil)
		c.callbacks = ps
		s, err := c.CreateSession(t.Context(), SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := <-ps.made
		<-first.sent // start
		beat := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: &bridgev1.SubscribeResponse{
			Frame: &bridgev1.SubscribeResponse_Heartbeat{Heartbeat: &bridgev1.Heartbeat{}},
		}}}
		for range 10 { // a server that is heard keeps its stream
			time.Sleep(heartbeat)
			synctest.Wait()
			if got := (<-first.sent).GetHeartbeat(); got == nil {
				t.Error("another frame than a heartbeat")
			}
			first.back <- beat
		}
		if len(ps.made) != 0 {
			t.Error("a stream that was alive was left")
		}
		time.Sleep(silence + time.Second) // one that is not heard loses it
		second := <-ps.made
		if start := (<-second.sent).GetStart(); start.GetParticipantToken() != "secret" || first.ctx.Err() == nil {
			t.Errorf("start = %v, the old stream's end = %v", start, first.ctx.Err())
		}
		// A leave frame that the server does not read does not hold up the program for long.
		before := time.Now()
		if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != leaveTimeout {
			t.Errorf("close: %v after %v", err, time.Since(before))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSilenceFollowsTheHeartbeatAskedFor(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]time.Duration{
		0: silence, time.Second: silence, 10 * time.Minute: 30 * time.Minute,
	} {
		so := &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(interval)}
		if got := silenceFor(so); got != want {
			t.Errorf("silenceFor(%v) = %v, want %v", interval, got, want)
		}
	}
	if got := silenceFor(nil); got != silence {
		t.Errorf("silenceFor(nil) = %v", got)
	}
}

func TestBackoffGrowsAndGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := ReconnectPolicy{MinBackoff: time.Second, MaxBackoff: 4 * time.Second, GiveUpAfter: time.Minute}
		begin, tries := time.Now(), 0
		err := retry(t.Context(), policy, func() error {
			tries++
			return unavailable("away")
		})
		took := time.Since(begin)
		var e *Error
		if !errors.As(err, &e) || took > time.Minute || took < 50*time.Second || tries < 15 {
			t.Errorf("%v after %v and %d tries", err, took, tries)
		}

		begin, tries = time.Now(), 0
		err = retry(t.Context(), policy, func() error {
			if tries++; tries == 2 {
				return nil
			}
			return &Error{Code: codes.Unavailable, RetryAfter: 30 * time.Second}
		})
		if took := time.Since(begin); err != nil || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("%v after %v: the server said when", err, took)
		}

		begin = time.Now()
		err = retry(t.Context(), policy, func() error {
			return &Error{Code: codes.Unavailable, RetryAfter: time.Hour}
		})
		if err == nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v: there was no point in waiting", err, time.Since(begin))
		}
	})
}
