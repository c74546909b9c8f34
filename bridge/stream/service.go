// Package stream serves EventService: streams of events, notes and callbacks of sessions, pages of their journals, and the
// watch of all sessions. Participants' streams and runs use its Stream.
//
// A Stream runs on its caller's goroutine and ends with the call. Its only lock is the readyQueue's, which guards the
// queue and the ready members of its elements.
package stream

import (
	"context"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxSubscriptions bounds the sessions on one stream.
const maxSubscriptions = 10_000

// Service streams and lists events. It is safe for concurrent use.
type Service struct {
	sessions *sessions.Store
	codec    *wire.Codec
	shutdown *shutdown.Coordinator
}

// New returns a service. Its streams end when s stops.
func New(sessions *sessions.Store, codec *wire.Codec, s *shutdown.Coordinator) *Service {
	return &Service{sessions: sessions, codec: codec, shutdown: s}
}

// Subscribe streams the events of sessions.
func (svc *Service) Subscribe(ctx context.Context, r *bridgev1.SubscribeRequest, sink frame.Sink) error {
	st, err := svc.subscription(ctx, r)
	if err != nil {
		return err
	}
	defer st.Close()
	st.To(sink)
	return st.Run(ctx)
}

// subscription prepares the stream of a subscription. The caller must close the stream.
func (svc *Service) subscription(ctx context.Context, r *bridgev1.SubscribeRequest) (*Stream, error) {
	if err := svc.shutdown.Accepting(); err != nil {
		return nil, err
	}
	o, err := ParseOptions(r.GetOptions())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetSessions()); n == 0 || n > maxSubscriptions {
		return nil, fault.New(fault.InvalidField, "%d sessions, not between 1 and %d", n, maxSubscriptions).
			WithField("sessions")
	}
	st := svc.Open(ctx, o)
	seen := make(map[string]bool, len(r.GetSessions()))
	for i, c := range r.GetSessions() {
		if err := st.subscribe(ctx, c, fmt.Sprintf("sessions[%d].", i), r.GetCallbacks(), seen); err != nil {
			st.Close()
			return nil, err
		}
	}
	return st, nil
}

// subscribe adds a session to a subscription. seen has the sessions that the subscription has already.
func (st *Stream) subscribe(
	ctx context.Context, c *bridgev1.SessionCursor, at string, callbacks bool, seen map[string]bool,
) error {
	id := c.GetSessionId()
	if seen[id] {
		return fault.New(fault.InvalidField, "session %q is named twice", id).WithField(at + "session_id")
	}
	seen[id] = true
	if err := fields.Known(c.GetStart(), at+"start"); err != nil {
		return err
	}
	s, err := st.service.sessions.Following(ctx, id)
	if err != nil {
		return fields.Within(err, at)
	}
	f, err := st.follow(s, Following{
		Start:  Start{c.GetAfter(), c.GetStart() == bridgev1.StreamStart_STREAM_START_END},
		Filter: c.GetFilter(), At: at, Callbacks: callbacks,
	})
	if err != nil {
		return err
	}
	f.release = st.service.sessions.AcquireShared(ctx, s, func() {
		f.unshared.Store(true)
		st.ready.add(f)
	})
	return nil
}
