package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// maxSubscriptions bounds the sessions on one stream.
const maxSubscriptions = 10_000

// waker collects the followers that have something to send. Journals call it from any
// goroutine; the stream sleeps on signal.
type waker struct {
	mu     sync.Mutex
	ready  []*follower
	signal chan struct{} // capacity 1
}

func newWaker() *waker { return &waker{signal: make(chan struct{}, 1)} }

func (w *waker) wake(f *follower) {
	w.mu.Lock()
	if !f.ready {
		f.ready = true
		w.ready = append(w.ready, f)
	}
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// take moves the ready followers to dst.
func (w *waker) take(dst []*follower) []*follower {
	w.mu.Lock()
	defer w.mu.Unlock()
	dst = append(dst, w.ready...)
	for _, f := range w.ready {
		f.ready = false
	}
	clear(w.ready)
	w.ready = w.ready[:0]
	return dst
}

// stream sends the frames of some sessions to one caller. It runs on the caller's
// goroutine; journals only wake it.
type stream struct {
	b         *Bridge
	tenant    string // the caller's
	options   options
	waker     *waker
	followers []*follower
	sink      frame.Sink
	// extra are frames from elsewhere, to be sent between the others; may be nil.
	extra <-chan frame.Frame
	// done ends the stream when it closes and the followers have come to end; may be nil.
	done <-chan struct{}
	end  func() journal.Position
	// stay, while it holds, puts off asking the caller to go away; may be nil.
	stay func() bool

	open int
	sent bool // since the last heartbeat
}

func (b *Bridge) newStream(ctx context.Context, o options) *stream {
	return &stream{b: b, tenant: caller.From(ctx).Tenant, options: o, waker: newWaker()}
}

// to sets where the frames go.
func (st *stream) to(sink frame.Sink) {
	st.sink = func(f frame.Frame) error {
		st.sent = true
		return sink(f)
	}
}

// follow adds a session.
func (st *stream) follow(s *session.Session, c cursor, f *bridgev1.EventFilter, at string) (*follower, error) {
	fl, err := st.b.follow(s, st.tenant, c, f, at, st.options, st.waker.wake)
	if err != nil {
		return nil, err
	}
	st.followers = append(st.followers, fl)
	return fl, nil
}

func (st *stream) close() {
	for _, f := range st.followers {
		if f.leave != nil {
			f.leave()
		}
		f.r.Close()
	}
}

// run sends until every session's frames have ended (nil), the caller has gone, or the
// server stops.
func (st *stream) run(ctx context.Context) error {
	for _, f := range st.followers {
		if f.unshared.Load() {
			continue // what it sends first is its end
		}
		if err := st.sink(frame.Frame{Message: f.attached()}); err != nil {
			return err
		}
		st.waker.wake(f)
	}
	st.open = len(st.followers)
	beat := time.NewTicker(st.options.heartbeat)
	defer beat.Stop()
	var ready []*follower
	conn := leaving.From(ctx)
	draining, away, done := st.b.shutdown.Draining(), conn.Away, st.done
	var leave *bridgev1.GoAway // to be said
	for st.open > 0 {
		var err error
		if leave != nil && (st.stay == nil || !st.stay()) {
			if leave, err = nil, st.goAway(leave); err != nil {
				return err
			}
		}
		select {
		case <-st.waker.signal:
			if err = st.linger(ctx); err == nil {
				ready = st.waker.take(ready[:0])
				err = st.drain(ready)
			}
		case f := <-st.extra:
			err = st.sink(f)
		case <-beat.C:
			err = st.beat()
		case <-done:
			done = nil
			if err = st.finish(ctx); err == nil {
				return nil
			}
		case <-draining:
			draining, leave = nil, &bridgev1.GoAway{
				Reason: bridgev1.GoAwayReason_GO_AWAY_REASON_DRAINING, After: durationpb.New(st.b.shutdown.Grace()),
			}
		case <-away:
			away, leave = nil, &bridgev1.GoAway{
				Reason: bridgev1.GoAwayReason_GO_AWAY_REASON_CONNECTION_AGE, After: durationpb.New(conn.Grace()),
			}
		case <-conn.Ended:
			return st.closeAll(bridgev1.CloseReason_CLOSE_REASON_DRAINING)
		case <-st.b.shutdown.Stopping():
			return st.closeAll(bridgev1.CloseReason_CLOSE_REASON_DRAINING)
		case <-ctx.Done():
			return session.Classify(context.Cause(ctx), "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linger waits a little for company, if the caller wants that.
func (st *stream) linger(ctx context.Context) error {
	if st.options.linger <= 0 {
		return nil
	}
	select {
	case <-time.After(st.options.linger):
		return nil
	case <-ctx.Done():
		return session.Classify(context.Cause(ctx), "")
	}
}

// drain sends what the ready followers have, in turns, so that one that is far behind
// does not hold up the others.
func (st *stream) drain(ready []*follower) error {
	for _, f := range ready {
		if f.closed {
			continue
		}
		more, err := f.drain(st.sink)
		if err != nil {
			return err
		}
		if f.closed {
			st.open--
			f.r.Close()
		} else if more {
			st.waker.wake(f)
		}
	}
	return nil
}

// finish sends everything up to the end that done has announced.
func (st *stream) finish(ctx context.Context) error {
	end := st.end()
	for _, f := range st.followers {
		if err := f.s.Journal().Await(ctx, end); err != nil {
			return session.Classify(context.Cause(ctx), "")
		}
		for more := true; more && !f.closed && less(f.at, end); {
			var err error
			if more, err = f.drain(st.sink); err != nil {
				return err
			}
		}
	}
	return nil
}

// rest sends what the journals have by now.
func (st *stream) rest() error {
	for _, f := range st.followers {
		for more := true; more && !f.closed; {
			var err error
			if more, err = f.drain(st.sink); err != nil {
				return err
			}
		}
	}
	return nil
}

// beat is the heartbeat: for every session whose position the caller does not know, or
// for one when nothing else was sent.
func (st *stream) beat() error {
	for _, f := range st.followers {
		if f.closed || !less(f.told, f.at) && st.sent {
			continue
		}
		if err := f.beat(st.sink); err != nil {
			return err
		}
	}
	st.sent = false
	return nil
}

// goAway asks the caller to resume elsewhere, from where each session is now.
func (st *stream) goAway(g *bridgev1.GoAway) error {
	for _, f := range st.followers {
		if !f.closed {
			g.Positions = append(g.Positions, &bridgev1.SessionPosition{SessionId: f.name, Position: session.Proto(f.at)})
		}
	}
	return st.sink(frame.Frame{Message: &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_GoAway{GoAway: g}}})
}

func (st *stream) closeAll(reason bridgev1.CloseReason) error {
	for _, f := range st.followers {
		if !f.closed {
			if err := f.close(reason, st.sink); err != nil {
				return err
			}
		}
	}
	return nil
}

// Subscribe streams the events of sessions.
func (b *Bridge) Subscribe(ctx context.Context, r *bridgev1.SubscribeRequest, sink frame.Sink) error {
	st, err := b.subscription(ctx, r)
	if err != nil {
		return err
	}
	defer st.close()
	st.to(sink)
	return st.run(ctx)
}

// subscription prepares the stream of a subscription. It is apart from Subscribe so that
// what it needs of the stack is not held for as long as the stream lasts.
func (b *Bridge) subscription(ctx context.Context, r *bridgev1.SubscribeRequest) (*stream, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, err
	}
	o, err := newOptions(r.GetOptions())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetSessions()); n == 0 || n > maxSubscriptions {
		return nil, fault.New(fault.InvalidField, "%d sessions, not between 1 and %d", n, maxSubscriptions).WithField("sessions")
	}
	st := b.newStream(ctx, o)
	seen := make(map[string]bool, len(r.GetSessions()))
	for i, c := range r.GetSessions() {
		if err := st.subscribe(ctx, c, fmt.Sprintf("sessions[%d].", i), r.GetCallbacks(), seen); err != nil {
			st.close()
			return nil, err
		}
	}
	return st, nil
}

// subscribe adds a session of a subscription. seen are those that it has already.
func (st *stream) subscribe(ctx context.Context, c *bridgev1.SessionCursor, at string, callbacks bool, seen map[string]bool) error {
	id := c.GetSessionId()
	if seen[id] {
		return fault.New(fault.InvalidField, "session %q is named twice", id).WithField(at + "session_id")
	}
	seen[id] = true
	if err := fields.Known(c.GetStart(), at+"start"); err != nil {
		return err
	}
	s, err := st.b.asking(ctx, id)
	if err != nil {
		return fields.Within(err, at)
	}
	f, err := st.follow(s, cursor{c.GetAfter(), c.GetStart() == bridgev1.Start_START_TAIL}, c.GetFilter(), at)
	if err != nil {
		return err
	}
	f.callbacks = callbacks
	f.leave = st.b.visit(ctx, s, func() {
		f.unshared.Store(true)
		st.waker.wake(f)
	})
	return nil
}
