package stream

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Stream sends the frames of some sessions to one caller. It runs on the caller's goroutine;
// journals only add to its ready queue. Only that goroutine uses it.
type Stream struct {
	service  *Service
	tenant   string // the caller's
	options  Options
	ready    readyQueue
	sessions []*sessionStream
	sink     frame.Sink

	// Extra has frames of other origin, which are sent between the others; may be nil. Set it
	// and the following before Run.
	Extra <-chan frame.Frame
	// Done ends the stream when it closes and the sessions have reached the position that End
	// returns; may be nil.
	Done <-chan struct{}
	End  func() journal.Position
	// Stay delays GoAway while it returns true; may be nil.
	Stay func() bool

	open int
	sent bool // since the last heartbeat
}

// Start is where the frames of a session begin.
type Start struct {
	After *bridgev1.Position // nil: at the beginning
	Tail  bool               // without After: at the end
}

// Following is how a stream follows a session.
type Following struct {
	Start  Start
	Filter *bridgev1.EventFilter
	// At is the prefix of request fields in errors.
	At string
	// Callbacks: the stream carries callbacks. Participant is whose stream it is, if any.
	Callbacks   bool
	Participant string
	// Exact: the caller has the past already, and wants events and callbacks unabridged.
	Exact bool
}

// Open returns a stream of the caller in ctx. The caller must Close it.
func (svc *Service) Open(ctx context.Context, o Options) *Stream {
	return &Stream{service: svc, tenant: caller.From(ctx).Tenant, options: o, ready: newReadyQueue()}
}

// To sets where the frames go.
func (st *Stream) To(sink frame.Sink) { st.sink = sink }

func (st *Stream) send(f frame.Frame) error {
	st.sent = true
	return st.sink(f)
}

// Follow adds a session.
func (st *Stream) Follow(s *session.Session, f Following) error {
	_, err := st.follow(s, f)
	return err
}

func (st *Stream) follow(s *session.Session, f Following) (*sessionStream, error) {
	ss, err := newSessionStream(st, s, f)
	if err == nil {
		st.sessions = append(st.sessions, ss)
	}
	return ss, err
}

// Close releases the sessions.
func (st *Stream) Close() {
	for _, f := range st.sessions {
		if f.release != nil {
			f.release()
		}
		f.r.Close()
	}
}

// delay waits up to the batch delay that the caller asked for, so that more events fit into a frame.
func (st *Stream) delay(ctx context.Context) error {
	if st.options.batchDelay <= 0 || st.ready.empty() {
		return nil
	}
	select {
	case <-time.After(st.options.batchDelay):
		return nil
	case <-ctx.Done():
		return session.Classify(context.Cause(ctx), "")
	}
}

// drain sends what the ready sessions have, in turns, so that one that is far behind
// does not hold up the others.
func (st *Stream) drain(ready []*sessionStream) error {
	for _, f := range ready {
		if f.closed {
			continue
		}
		more, err := f.drain()
		if err != nil {
			return err
		}
		if f.closed {
			st.open--
			f.r.Close()
		} else if more {
			st.ready.add(f)
		}
	}
	return nil
}

// within omits events after the end of a stream that is done: a stream of one turn has no event of the next.
func (st *Stream) within(records []*journal.Record) []*journal.Record {
	select {
	case <-st.Done: // it closes before the journal has what comes after
	default:
		return records
	}
	end := st.End()
	i := slices.IndexFunc(records, func(r *journal.Record) bool { return r.Note == nil && end.Before(r.Pos) })
	if i < 0 {
		return records
	}
	clear(records[i:])
	return records[:i]
}

// finish sends everything up to the end that done has announced.
func (st *Stream) finish(ctx context.Context) error {
	end := st.End()
	for _, f := range st.sessions {
		if err := f.s.Journal().Await(ctx, end); err != nil {
			return session.Classify(context.Cause(ctx), "")
		}
		for more := true; more && !f.closed && f.at.Before(end); {
			var err error
			if more, err = f.drain(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Rest sends what the journals have by now.
func (st *Stream) Rest() error {
	for _, f := range st.sessions {
		for more := true; more && !f.closed; {
			var err error
			if more, err = f.drain(); err != nil {
				return err
			}
		}
	}
	return nil
}

// beat is the heartbeat: for every session whose position the caller does not know, or
// for one when nothing else was sent.
func (st *Stream) beat() error {
	for _, f := range st.sessions {
		if f.closed || !f.told.Before(f.at) && st.sent {
			continue
		}
		if err := f.beat(); err != nil {
			return err
		}
	}
	st.sent = false
	return nil
}

// goAway asks the caller to resume elsewhere, from where each session is now.
func (st *Stream) goAway(g *bridgev1.GoAway) error {
	for _, f := range st.sessions {
		if !f.closed {
			g.Positions = append(g.Positions, &bridgev1.SessionPosition{SessionId: f.name, Position: session.Proto(f.at)})
		}
	}
	return st.send(frame.Frame{Message: &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_GoAway{GoAway: g}}})
}

// CloseAll ends the frames of every session.
func (st *Stream) CloseAll(reason bridgev1.CloseReason) error {
	for _, f := range st.sessions {
		if !f.closed {
			if err := f.close(reason); err != nil {
				return err
			}
		}
	}
	return nil
}
