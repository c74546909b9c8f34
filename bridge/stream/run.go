package stream

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// Run sends until every session's frames have ended (nil), the caller has gone, or the
// server stops.
func (st *Stream) Run(ctx context.Context) error {
	if err := st.begin(); err != nil {
		return err
	}
	return st.loop(ctx)
}

// begin sends the first frame of each session.
func (st *Stream) begin() error {
	for _, f := range st.sessions {
		if f.unshared.Load() {
			continue // what it sends first is its end
		}
		if err := st.send(frame.Frame{Message: f.attached()}); err != nil {
			return err
		}
		st.ready.add(f)
	}
	st.open = len(st.sessions)
	return nil
}

// loop sends until the stream ends.
func (st *Stream) loop(ctx context.Context) error {
	heartbeat := time.NewTicker(st.options.heartbeat)
	defer heartbeat.Stop()
	server, conn := st.service.shutdown, leaving.From(ctx)
	// A channel is nil after its case, and ended is nil before that of away, so that the caller gets GoAway first.
	draining, away, done := server.Draining(), conn.Away, st.Done
	var ended <-chan struct{}
	var goAway *bridgev1.GoAway // to be sent; nil if none is
	var ready []*sessionStream
	for st.open > 0 {
		if goAway != nil && (st.Stay == nil || !st.Stay()) {
			if err := st.goAway(goAway); err != nil {
				return err
			}
			goAway = nil
		}
		var err error
		select {
		case <-st.ready.signal:
			ready, err = st.serve(ctx, ready)
		case f := <-st.Extra:
			err = st.send(f)
		case <-heartbeat.C:
			err = st.beat()
		case <-done:
			done = nil
			if err = st.finish(ctx); err == nil {
				return nil
			}
		case <-draining:
			draining = nil
			goAway = goAwayFor(bridgev1.GoAwayReason_GO_AWAY_REASON_DRAINING, server.Grace())
		case <-away:
			away, ended = nil, conn.Ended
			goAway = goAwayFor(bridgev1.GoAwayReason_GO_AWAY_REASON_CONNECTION_AGE, conn.Grace())
		case <-server.Stopped().Done():
			return st.CloseAll(bridgev1.CloseReason_CLOSE_REASON_DRAINING)
		case <-ended:
			return st.CloseAll(bridgev1.CloseReason_CLOSE_REASON_DRAINING)
		case <-ctx.Done():
			return session.Classify(context.Cause(ctx), "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func goAwayFor(reason bridgev1.GoAwayReason, grace time.Duration) *bridgev1.GoAway {
	return &bridgev1.GoAway{Reason: reason, GracePeriod: durationpb.New(grace)}
}

// serve sends the frames of the ready sessions. It returns ready for the next call.
func (st *Stream) serve(ctx context.Context, ready []*sessionStream) ([]*sessionStream, error) {
	if err := st.delay(ctx); err != nil {
		return ready, err
	}
	ready = st.ready.take(ready[:0])
	return ready, st.drain(ready)
}
