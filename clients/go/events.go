package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// EventsOption chooses events and where to begin.
type EventsOption func(*eventsOptions)

type eventsOptions struct {
	begin  cursorStart
	filter *bridgev1.EventFilter
	stream *bridgev1.StreamOptions
	onGap  func(*GapError)
	// callbacks adds frames of callbacks.
	callbacks bool
}

// cursorStart is where a reader begins: after a position, else with the next event,
// else with the first.
type cursorStart struct {
	after *bridgev1.Position
	tail  bool
}

// After begins after a position, as taken from an event, a reply or a stream.
func After(pos *bridgev1.Position) EventsOption {
	return func(o *eventsOptions) { o.begin = cursorStart{after: pos} }
}

// FromBeginning begins with the session's first event.
func FromBeginning() EventsOption { return func(o *eventsOptions) { o.begin = cursorStart{} } }

// FromNow begins with the next event.
func FromNow() EventsOption { return func(o *eventsOptions) { o.begin = cursorStart{tail: true} } }

// OfTypes lets only these types pass ("assistant.message", or "assistant.*" for a family).
// It takes the place of an earlier [WithFilter], and the other way round.
func OfTypes(types ...string) EventsOption {
	return func(o *eventsOptions) { o.filter = &bridgev1.EventFilter{Types: types} }
}

// WithFilter lets only events pass that fit. Default: all but the large ones.
func WithFilter(f *bridgev1.EventFilter) EventsOption {
	return func(o *eventsOptions) { o.filter = f }
}

// WithStreamOptions sets how frames look: fidelity, original JSON, batch delay.
func WithStreamOptions(so *bridgev1.StreamOptions) EventsOption {
	return func(o *eventsOptions) { o.stream = so }
}

// WithCallbacks makes [Session.Frames] also yield the callbacks of the session: those that wait in the first frame, then
// each as it begins and ends. [Session.Resolve] answers them.
func WithCallbacks() EventsOption { return func(o *eventsOptions) { o.callbacks = true } }

// OnGap receives each range of missing events, also of ephemeral ones, instead of the
// sequence's [*GapError].
func OnGap(f func(*GapError)) EventsOption { return func(o *eventsOptions) { o.onGap = f } }

func (s *Session) eventsOptions(begin cursorStart, opts []EventsOption) *eventsOptions {
	o := &eventsOptions{begin: begin}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Events yields the session's events: first the past ones, then live events. By default
// it starts at the position at which this program opened the session; for a created
// session or a plain handle that is the first event.
//
// Each call opens a separate stream; leaving the loop closes it. The loop may be slow:
// this program queues nothing, and no other stream waits. A broken stream is reopened
// after the last event, without duplicates.
//
// If durable events are no longer available, the sequence yields a [*GapError] and
// continues. Any other error is its last element. It ends without an error when the
// session is disconnected, deleted or closed. Callers must not modify events.
func (s *Session) Events(ctx context.Context, opts ...EventsOption) iter.Seq2[*bridgev1.Event, error] {
	return s.eventsFrom(ctx, s.eventsOptions(s.begin, opts))
}

func (s *Session) eventsFrom(ctx context.Context, o *eventsOptions) iter.Seq2[*bridgev1.Event, error] {
	return func(yield func(*bridgev1.Event, error) bool) {
		for frame, err := range s.framesFrom(ctx, o) {
			if err != nil {
				yield(nil, err)
				return
			}
			if gap := frame.GetGap(); gap != nil && !o.tellGap(gap, yield) {
				return
			}
			for _, ev := range frame.GetEvents().GetEvents() {
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
}

// tellGap reports a gap, to OnGap or in the sequence. It returns false when the loop ends.
func (o *eventsOptions) tellGap(gap *bridgev1.Gap, yield func(*bridgev1.Event, error) bool) bool {
	switch {
	case o.onGap != nil:
		o.onGap(newGapError(gap))
		return true
	case gap.GetReason() == bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST:
		return true
	default:
		return yield(nil, newGapError(gap))
	}
}

// Frames is [Session.Events] with everything that the stream says: where replay ends, how
// far it has come, gaps, restarts of the runtime, and events in batches.
func (s *Session) Frames(
	ctx context.Context, opts ...EventsOption,
) iter.Seq2[*bridgev1.SubscribeResponse, error] {
	return s.framesFrom(ctx, s.eventsOptions(s.begin, opts))
}

// On calls f with every new event, one at a time, from a separate goroutine, until stop
// is called or the session ends. Programs that do not consist of handlers should loop
// over [Session.Events] instead. On logs gaps and an early end. stop does not wait for f.
func (s *Session) On(f func(*bridgev1.Event), opts ...EventsOption) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	o := s.eventsOptions(cursorStart{after: s.pos.Last(), tail: true}, opts)
	go func() {
		defer cancel()
		for ev, err := range s.eventsFrom(ctx, o) {
			switch {
			case err == nil:
				f(ev)
			case ctx.Err() == nil:
				s.client.log.Warn("event stream", "session_id", s.id, "error", err)
			}
		}
	}()
	return cancel
}

// History yields the events that the journal has, and ends with the last of them. It
// begins with the first event, or [After] a position; [FromNow] means nothing to it.
// Errors and gaps are as in [Session.Events].
func (s *Session) History(ctx context.Context, opts ...EventsOption) iter.Seq2[*bridgev1.Event, error] {
	o := s.eventsOptions(cursorStart{}, opts)
	return func(yield func(*bridgev1.Event, error) bool) {
		req := &bridgev1.ListEventsRequest{
			SessionId:    s.id,
			After:        o.begin.after,
			Filter:       o.filter,
			Fidelity:     o.stream.GetFidelity(),
			OriginalJson: o.stream.GetOriginalJson(),
		}
		for {
			page, err := invoke(ctx, s, s.client.sessions.ListEvents, req)
			if err != nil {
				yield(nil, err)
				return
			}
			if page.Gap != nil && !o.tellGap(page.Gap, yield) {
				return
			}
			for _, ev := range page.Events {
				if !yield(ev, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			req.PageToken = page.NextPageToken
		}
	}
}

// ReadEvent reads the whole JSON of an event, for one that came truncated.
func (s *Session) ReadEvent(ctx context.Context, pos *bridgev1.Position) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.sessions.ReadEvent(ctx, &bridgev1.ReadEventRequest{SessionId: s.id, Position: pos})
	if err != nil {
		return nil, FromError(err)
	}
	var whole json.RawMessage
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return nil, FromError(err)
		}
		whole = append(whole, piece.JsonChunk...)
	}
}

// cursor reads a session's journal over one stream after another.
type cursor struct {
	session *Session
	opts    *eventsOptions
	// after is how far it has come.
	after *bridgev1.Position
	tail  bool
}

func (s *Session) framesFrom(
	ctx context.Context, o *eventsOptions,
) iter.Seq2[*bridgev1.SubscribeResponse, error] {
	return func(yield func(*bridgev1.SubscribeResponse, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// Closing the session ends the sequence.
		defer context.AfterFunc(s.ctx, func() { cancel(ErrClosed) })()

		c := &cursor{session: s, opts: o, after: o.begin.after, tail: o.begin.tail}
		b := newBackoff(s.client.reconnect)
		for {
			err := c.read(ctx, b, yield)
			if err == nil {
				return
			}
			e := asError(err)
			again := e != nil && e.isBroken() && ctx.Err() == nil && next(ctx, b, e)
			switch {
			case errors.Is(context.Cause(ctx), ErrClosed):
				return
			case ctx.Err() != nil:
				yield(nil, context.Cause(ctx))
				return
			case !again:
				yield(nil, err)
				return
			}
			s.client.log.Warn("event stream broken", "session_id", s.id, "error", err)
		}
	}
}

// read reads one stream. It returns nil when the sequence is over: the loop ended, or the
// session's frames did.
func (c *cursor) read(
	ctx context.Context, b *pause.Backoff, yield func(*bridgev1.SubscribeResponse, error) bool,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.session.client.events.Subscribe(ctx, c.request())
	if err != nil {
		return FromError(err)
	}
	next := recvWithin(stream, silenceFor(c.opts.stream), cancel)
	for {
		frame, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return unavailable("the server ended the event stream")
		case err != nil && ctx.Err() != nil:
			return FromError(context.Cause(ctx))
		case err != nil:
			return FromError(err)
		}
		b.Reset()
		over, again := c.take(frame)
		if again != nil {
			return again
		}
		if frame.GetFrame() != nil && !yield(frame, nil) || over {
			return nil
		}
	}
}

func (c *cursor) request() *bridgev1.SubscribeRequest {
	at := &bridgev1.SessionCursor{SessionId: c.session.id, After: c.after, Filter: c.opts.filter}
	if c.tail {
		at.Start = bridgev1.StreamStart_STREAM_START_END
	}
	so := c.opts.stream
	if so == nil {
		so = &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)}
	}
	return &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{at}, Options: so, Callbacks: c.opts.callbacks,
	}
}

// take moves the cursor past a frame and strips events it has passed before, leaving
// the frame empty when no others are in it. It reports whether the session's frames end
// here, or else, by an error, that the stream is to be opened again.
func (c *cursor) take(frame *bridgev1.SubscribeResponse) (over bool, again error) {
	defer c.move(frame.GetResumeAfter())
	switch f := frame.GetFrame().(type) {
	case *bridgev1.SubscribeResponse_Started:
		c.session.pos.Note(f.Started.GetPosition())
	case *bridgev1.SubscribeResponse_Events:
		f.Events.Events = c.fresh(f.Events.GetEvents())
		if len(f.Events.Events) == 0 {
			frame.Frame = nil
		}
	case *bridgev1.SubscribeResponse_Closed:
		if f.Closed.GetReason() == bridgev1.CloseReason_CLOSE_REASON_DRAINING {
			return false, unavailable("the server is draining")
		}
		return true, nil
	}
	// GoAway needs nothing: what the stream still says is read to its end, and the next
	// one goes on after it.
	return false, nil
}

// fresh gives the events that the cursor has not passed yet, and passes them.
func (c *cursor) fresh(events []*bridgev1.Event) []*bridgev1.Event {
	fresh := events[:0]
	for _, ev := range events {
		if c.after == nil || ComparePositions(ev.GetPosition(), c.after) > 0 {
			fresh = append(fresh, ev)
			c.move(ev.GetPosition())
		}
	}
	return fresh
}

func (c *cursor) move(to *bridgev1.Position) {
	if ComparePositions(to, c.after) > 0 {
		c.after = to
		c.session.pos.Note(to)
	}
}

// silenceFor is how long a stream may be mute: three of the heartbeats it asks for.
func silenceFor(so *bridgev1.StreamOptions) time.Duration {
	return max(silence, 3*so.GetHeartbeatInterval().AsDuration())
}

// recvWithin receives from a stream, and ends it when it is mute for too long. The time
// between two calls does not count: it is the reader's own.
func recvWithin[T any](
	stream grpc.ServerStreamingClient[T], limit time.Duration, cancel context.CancelCauseFunc,
) func() (*T, error) {
	return func() (*T, error) {
		timer := time.AfterFunc(limit, func() { cancel(unavailable("the server is silent")) })
		defer timer.Stop()
		return stream.Recv()
	}
}
