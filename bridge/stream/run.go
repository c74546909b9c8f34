package stream

import (
	"context"

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

// begin sends the first frame of each session and starts the heartbeat.
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
	st.service.heartbeats.add(st)
	return nil
}

// signals are the channels that a stream waits for, besides its own. Each costs a waiting goroutine 96 bytes, so those
// that close after another one are nil before.
type signals struct {
	changing, draining, stopping <-chan struct{} // of the server
	away, ended                  <-chan struct{} // of the connection
	done                         <-chan struct{}
	// goAway is the frame that is to be sent; nil if none is.
	goAway *bridgev1.GoAway
}

// cause is why a wait ended.
type cause int

const (
	isReady cause = iota
	hasExtra
	isDone
	isChanging
	isDraining
	isStopping
	isAway
	isEnded
	isCancelled
)

// wait waits for the next thing to do, and sets f if it is a frame of other origin.
func (st *Stream) wait(ctx context.Context, s *signals, f *frame.Frame) cause {
	select {
	case <-st.ready.signal:
		return isReady
	case *f = <-st.Extra:
		return hasExtra
	case <-s.done:
		return isDone
	case <-s.changing:
		return isChanging
	case <-s.draining:
		return isDraining
	case <-s.stopping:
		return isStopping
	case <-s.away:
		return isAway
	case <-s.ended:
		return isEnded
	case <-ctx.Done():
		return isCancelled
	}
}

// loop does what the stream waits for, until it ends.
func (st *Stream) loop(ctx context.Context) error {
	s := signals{changing: st.service.shutdown.Changing(), away: leaving.From(ctx).Away, done: st.Done}
	var ready []*sessionStream
	var f frame.Frame
	for st.open > 0 {
		if s.goAway != nil && (st.Stay == nil || !st.Stay()) {
			if err := st.goAway(s.goAway); err != nil {
				return err
			}
			s.goAway = nil
		}
		var err error
		switch why := st.wait(ctx, &s, &f); why {
		case isReady:
			ready, err = st.serve(ctx, ready)
		case hasExtra:
			err = st.send(f)
			f = frame.Frame{}
		case isDone:
			s.done = nil
			if err = st.finish(ctx); err == nil {
				return nil
			}
		case isStopping, isEnded:
			return st.CloseAll(bridgev1.CloseReason_CLOSE_REASON_DRAINING)
		case isCancelled:
			return session.Classify(context.Cause(ctx), "")
		default:
			st.notice(ctx, &s, why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// notice prepares for the end of the server or of the connection.
func (st *Stream) notice(ctx context.Context, s *signals, why cause) {
	switch shutdown := st.service.shutdown; why {
	case isChanging:
		s.changing, s.draining, s.stopping = nil, shutdown.Draining(), shutdown.Stopping()
	case isDraining:
		s.draining, s.goAway = nil, &bridgev1.GoAway{
			Reason: bridgev1.GoAwayReason_GO_AWAY_REASON_DRAINING, GracePeriod: durationpb.New(shutdown.Grace()),
		}
	case isAway:
		conn := leaving.From(ctx)
		s.away, s.ended, s.goAway = nil, conn.Ended, &bridgev1.GoAway{
			Reason: bridgev1.GoAwayReason_GO_AWAY_REASON_CONNECTION_AGE, GracePeriod: durationpb.New(conn.Grace()),
		}
	}
}

// serve sends what the ready sessions have, and the heartbeat if it is due. It returns ready for the next call.
func (st *Stream) serve(ctx context.Context, ready []*sessionStream) ([]*sessionStream, error) {
	if err := st.delay(ctx); err != nil {
		return ready, err
	}
	ready, due := st.ready.take(ready[:0])
	if err := st.drain(ready); err != nil || !due {
		return ready, err
	}
	st.service.heartbeats.add(st)
	return ready, st.beat()
}
