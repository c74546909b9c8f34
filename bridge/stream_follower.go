package bridge

import (
	"errors"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
	"github.com/copilot-grpc/copilot-grpc/internal/reason"
)

// batchBytes is how much JSON at most goes into one frame of events.
const batchBytes = 256 << 10

// The field numbers that events writes by hand; a test compares them with the descriptor.
const (
	fieldFrameSession protowire.Number = 1
	fieldFrameEvents  protowire.Number = 3
	fieldFrameResume  protowire.Number = 12
)

// follower makes the frames of one session on one stream.
type follower struct {
	b      *Bridge
	s      *session.Session
	tenant string // the caller's
	name   string // what the caller calls the session
	r      *journal.Reader
	filter *filter
	form   journal.Form
	// callbacks: the stream carries callbacks. participant is who it belongs to, if anybody.
	callbacks   bool
	participant string
	// exact: the caller knows the past already, and wants what there is to the last member.
	exact bool

	until  journal.Position // replay ends here
	caught bool
	at     journal.Position // the stream has come to here: what is before was sent or left out
	told   journal.Position // of the last frame that told one
	closed bool
	// unshared says that the caller may no longer follow the session; leave, which may be nil,
	// that it does not any more.
	unshared atomic.Bool
	leave    func()
	records  []*journal.Record
	passed   []*journal.Record
	wires    [][]byte
	ready    bool // guarded by the stream's waker
}

// cursor is where to begin.
type cursor struct {
	after *bridgev1.Position
	tail  bool
}

// follow returns a follower; the caller must close its reader.
func (b *Bridge) follow(s *session.Session, tenant string, c cursor, f *bridgev1.EventFilter, at string, o options, wake func(*follower)) (*follower, error) {
	flt, err := newFilter(f, at+"filter")
	if err != nil {
		return nil, err
	}
	fl := &follower{b: b, s: s, tenant: tenant, name: tenancy.NameFor(s, tenant), filter: flt, form: o.form}
	begin := journal.Position{Epoch: c.after.GetEpoch(), Seq: c.after.GetSeq()}
	if c.after == nil && c.tail {
		begin = s.Journal().Last()
	}
	fl.r, err = s.Journal().NewReader(begin, flt.ephemeral(), func() { wake(fl) })
	if errors.Is(err, journal.ErrFuture) {
		return nil, fault.New(fault.InvalidField, "the journal has not come to position %d/%d", begin.Epoch, begin.Seq).WithField(at + "after")
	}
	if err != nil {
		return nil, err
	}
	fl.at = fl.r.Position()
	return fl, nil
}

// attached opens the session's frames.
func (f *follower) attached() *bridgev1.SubscribeResponse {
	f.until = f.s.Journal().Last()
	return f.frame(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Attached{Attached: &bridgev1.Attached{
		Position: session.Proto(f.until), FirstAvailable: session.Proto(f.s.Journal().First()),
		Session: snapshotAs(f.s, f.tenant), PendingCallbacks: f.pending(),
	}}})
}

func (f *follower) frame(r *bridgev1.SubscribeResponse) *bridgev1.SubscribeResponse {
	r.SessionId, r.ResumeAfter = f.name, session.Proto(f.at)
	return r
}

// pending is the callbacks that wait, if the stream carries callbacks.
func (f *follower) pending() []*bridgev1.Callback {
	if !f.callbacks {
		return nil
	}
	return f.b.pending(f.s, f.tenant, f.fidelity())
}

// fidelity is how closely callbacks follow the CLI's JSON.
func (f *follower) fidelity() translate.Fidelity {
	if f.exact {
		return translate.Exact
	}
	return translate.Tidy
}

// drain sends what there is, and reports whether there may be more.
func (f *follower) drain(sink frame.Sink) (more bool, err error) {
	if f.unshared.Load() {
		return false, f.close(bridgev1.CloseReason_CLOSE_REASON_UNSHARED, sink)
	}
	var gap *journal.Gap
	f.records, gap = f.r.Next(f.records[:0], batchBytes)
	var past journal.Position
	if f.exact {
		past = f.s.Past()
	}
	if gap != nil {
		f.at = f.r.Position()
		return true, f.sendGap(gap, sink)
	}
	for i, r := range f.records {
		switch {
		case r.Note == nil:
			f.at = r.Pos
			if f.filter.passes(r) && (!f.exact || less(past, r.Pos)) {
				f.passed = append(f.passed, r)
			}
			continue
		case len(f.passed) > 0:
			if err := f.sendEvents(sink); err != nil {
				return false, err
			}
		}
		if r.Posted && less(f.at, r.Pos) {
			f.at = r.Pos
		}
		if err := f.sendNote(r, sink); err != nil || f.closed {
			clear(f.records[i:])
			return false, err
		}
	}
	if len(f.passed) > 0 {
		if err := f.sendEvents(sink); err != nil {
			return false, err
		}
	}
	more = len(f.records) > 0
	if !more {
		f.at = f.r.Position() // the last numbers may be of events that are lost
	}
	clear(f.records)
	if !f.caught && !less(f.at, f.until) {
		f.caught = true
		return more, f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CaughtUp{
			CaughtUp: &bridgev1.CaughtUp{Position: session.Proto(f.at)},
		}})
	}
	return more, nil
}

func less(a, b journal.Position) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Seq < b.Seq
}

func (f *follower) send(sink frame.Sink, r *bridgev1.SubscribeResponse) error {
	f.told = f.at
	return sink(frame.Frame{Message: f.frame(r)})
}

// minOwn is the JSON from which on a frame of its own is worth its memory.
const minOwn = 512

// encode adds the events that passed to the frame: as the bytes that every stream shares or,
// if there is no other, in memory that is used again when they were sent.
func (f *follower) encode() (own *frame.Buffer) {
	j, size := f.s.Journal(), 0
	for _, r := range f.passed {
		size += len(r.JSON) + wire.EventHead
	}
	if size < minOwn || !j.Alone() {
		f.wires = j.Wire(f.wires, f.passed, f.form)
		return nil
	}
	own = frame.Take(size)
	for _, r := range f.passed {
		own.Bytes = f.b.codec.AppendEvent(own.Bytes, r, f.form)
	}
	f.wires = append(f.wires, own.Bytes)
	return own
}

// sendEvents sends the events that passed.
func (f *follower) sendEvents(sink frame.Sink) error {
	f.wires = append(f.wires[:0], nil)
	own := f.encode()
	clear(f.passed)
	f.passed = f.passed[:0]
	size := 0
	for _, w := range f.wires {
		size += len(w)
	}
	id := f.name
	head := make([]byte, 0, len(id)+48)
	head = protowire.AppendString(protowire.AppendTag(head, fieldFrameSession, protowire.BytesType), id)
	head = protowire.AppendTag(head, fieldFrameResume, protowire.BytesType)
	head = protowire.AppendBytes(head, wire.AppendPosition(make([]byte, 0, 24), f.at))
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldFrameEvents, protowire.BytesType), uint64(size))
	f.wires[0] = head
	f.told = f.at
	err := sink(frame.Frame{Wire: f.wires, Own: own})
	clear(f.wires)
	return err
}

// gapReasons are the journal's reasons in the form of the API.
var gapReasons = map[journal.GapReason]bridgev1.GapReason{
	journal.EphemeralLost: bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST,
	journal.EpochEnded:    bridgev1.GapReason_GAP_REASON_EPOCH_ENDED,
	journal.Trimmed:       bridgev1.GapReason_GAP_REASON_TRIMMED,
}

func (f *follower) sendGap(gap *journal.Gap, sink frame.Sink) error {
	return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{
		After: session.Proto(gap.From), Through: session.Proto(gap.To), Reason: gapReasons[gap.Reason],
		Session: snapshotAs(f.s, f.tenant), PendingCallbacks: f.pending(),
	}}})
}

// sendNote sends what a note says to those it is for.
func (f *follower) sendNote(r *journal.Record, sink frame.Sink) error {
	switch n := r.Note.(type) {
	case session.Requested:
		if f.callbacks && f.concerns(n.Pending.Kind, f.s.Offered(n.Pending)) {
			return f.sendRequested(n.Pending, sink)
		}
	case session.Resolved:
		if f.callbacks && f.concerns(n.Kind, n.Offered) {
			return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackResolved{
				CallbackResolved: &bridgev1.CallbackResolved{
					CallbackId: n.ID, Kind: n.Kind.Type, Outcome: n.Outcome, ParticipantId: n.Participant,
				},
			}})
		}
	case session.Restarted:
		rr := &bridgev1.RuntimeRestarted{Cause: n.Cause}
		if n.Turn != nil {
			rr.TurnOutcome = n.Turn.Proto()
		}
		return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_RuntimeRestarted{RuntimeRestarted: rr}})
	case session.TurnOver:
		return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_TurnEnded{
			TurnEnded: turnEnded(n),
		}})
	case session.Resent:
		return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_MessageResent{
			MessageResent: &bridgev1.MessageResent{MessageIds: n.IDs, NewMessageIds: n.As},
		}})
	case session.Ended:
		return f.close(n.Reason, sink)
	}
	return nil
}

// turnEnded is the frame of a turn's end.
func turnEnded(n session.TurnOver) *bridgev1.TurnEnded {
	out := &bridgev1.TurnEnded{Outcome: n.Outcome.Proto(), MessageIds: n.IDs}
	if n.Err != nil {
		out.Failure, _ = reason.Failure(n.Err)
	}
	return out
}

// concerns reports whether the stream tells of a callback. What is asked of programs comes
// often and with contents: that goes to those participants only who are to answer it, and to
// streams that are nobody's, on which those listen who answer for the session.
func (f *follower) concerns(k *callback.Kind, offered []string) bool {
	return tenancy.Sees(f.s, f.tenant, k) && (k.Limit == 0 || f.participant == "" || slices.Contains(offered, f.participant))
}

func (f *follower) sendRequested(p *callback.Pending, sink frame.Sink) error {
	c, _ := f.b.codec.CallbackWithin(wire.InlineBytes, p, f.name, f.s.Offered(p), f.fidelity())
	offered := false
	for _, id := range c.ParticipantIds {
		offered = offered || id == f.participant
	}
	return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackRequested{
		CallbackRequested: &bridgev1.CallbackRequested{Callback: c, Offered: offered},
	}})
}

// close ends the session's frames.
func (f *follower) close(reason bridgev1.CloseReason, sink frame.Sink) error {
	f.closed = true
	return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Closed{
		Closed: &bridgev1.Closed{Reason: reason, Position: session.Proto(f.at)},
	}})
}

func (f *follower) beat(sink frame.Sink) error {
	return f.send(sink, &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Heartbeat{
		Heartbeat: &bridgev1.Heartbeat{Position: session.Proto(f.at)},
	}})
}

// pending is the session's callbacks that wait, oldest first, as callers of a tenant are told of
// them.
func (b *Bridge) pending(s *session.Session, tenant string, fidelity translate.Fidelity) []*bridgev1.Callback {
	list := s.Pending().List()
	out := make([]*bridgev1.Callback, 0, len(list))
	room, name := wire.InlineBytes, tenancy.NameFor(s, tenant)
	for _, p := range list {
		if !tenancy.Sees(s, tenant, p.Kind) {
			continue
		}
		var c *bridgev1.Callback
		c, room = b.codec.CallbackWithin(room, p, name, s.Offered(p), fidelity)
		out = append(out, c)
	}
	return out
}
