package stream

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// BatchBytes is how much JSON at most goes into one frame of events.
const BatchBytes = 256 << 10

// The field numbers that events writes by hand; a test compares them with the descriptor.
const (
	fieldFrameSession protowire.Number = 1
	fieldFrameEvents  protowire.Number = 3
	fieldFrameResume  protowire.Number = 12
)

// sessionStream makes the frames of one session on one stream.
type sessionStream struct {
	st     *Stream
	s      *session.Session
	name   string // the caller's name of the session
	r      *journal.Reader
	filter *Filter
	// The following are as in Following.
	participant string
	callbacks   bool
	exact       bool

	caught bool // replay has ended
	closed bool
	ready  bool // guarded by the readyQueue
	// unshared is set when the caller loses the right to the session; release, which may be nil,
	// ends the watch of that right.
	unshared atomic.Bool
	release  func()
	until    journal.Position // replay ends here
	at       journal.Position // everything up to here was sent or left out
	told     journal.Position // of the last frame that had one
}

// batch is the memory for the records that a stream reads and sends at a time.
type batch struct {
	records []*journal.Record
	passed  []*journal.Record // the filter lets them pass
	wires   [][]byte          // the pieces of a frame
}

// batches lets streams share the memory: a stream that waits keeps none.
var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() {
	clear(b.records)
	clear(b.passed)
	b.records, b.passed = b.records[:0], b.passed[:0]
	batches.Put(b)
}

// newSessionStream returns the stream of a session; the caller must close its reader.
func newSessionStream(st *Stream, s *session.Session, f Following) (*sessionStream, error) {
	flt, err := NewFilter(f.Filter, f.At+"filter")
	if err != nil {
		return nil, err
	}
	ss := &sessionStream{
		st: st, s: s, name: tenancy.NameFor(s, st.tenant), filter: flt,
		callbacks: f.Callbacks, participant: f.Participant, exact: f.Exact,
	}
	begin := journal.Position{Epoch: f.Start.After.GetEpoch(), Seq: f.Start.After.GetSeq()}
	if f.Start.After == nil && f.Start.Tail {
		begin = s.Journal().Last()
	}
	ss.r, err = s.Journal().NewReader(begin, flt.Ephemeral(), ss.wake)
	if errors.Is(err, journal.ErrFuture) {
		return nil, fault.New(fault.InvalidField, "the journal has not reached position %d/%d", begin.Epoch, begin.Seq).WithField(f.At + "after")
	}
	if err != nil {
		return nil, err
	}
	ss.at = ss.r.Position()
	return ss, nil
}

func (f *sessionStream) wake() { f.st.ready.add(f) }

// attached opens the session's frames.
func (f *sessionStream) attached() *bridgev1.SubscribeResponse {
	f.until = f.s.Journal().Last()
	return f.frame(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Started{Started: &bridgev1.SubscriptionStarted{
		Position: session.Proto(f.until), FirstAvailable: session.Proto(f.s.Journal().First()),
		Session: f.st.service.sessions.Snapshot(f.s, f.st.tenant), PendingCallbacks: f.pending(),
	}}})
}

func (f *sessionStream) frame(r *bridgev1.SubscribeResponse) *bridgev1.SubscribeResponse {
	r.SessionId, r.ResumeAfter = f.name, session.Proto(f.at)
	return r
}

// pending is the callbacks that wait, oldest first, if the stream carries callbacks.
func (f *sessionStream) pending() []*bridgev1.Callback {
	if !f.callbacks {
		return nil
	}
	list := f.s.Callbacks().Registry().List()
	out := make([]*bridgev1.Callback, 0, len(list))
	room := wire.InlineBytes
	for _, p := range list {
		if !tenancy.Sees(f.s, f.st.tenant, p.Kind) {
			continue
		}
		var c *bridgev1.Callback
		c, room = f.st.service.codec.CallbackWithin(room, p, f.name, f.s.Callbacks().Registry().Offered(p), f.fidelity())
		out = append(out, c)
	}
	return out
}

// fidelity is how closely callbacks follow the CLI's JSON.
func (f *sessionStream) fidelity() translate.Fidelity {
	if f.exact {
		return translate.Exact
	}
	return translate.Tidy
}

// drain sends what there is, and reports whether there may be more.
func (f *sessionStream) drain() (more bool, err error) {
	if f.unshared.Load() {
		return false, f.close(bridgev1.CloseReason_CLOSE_REASON_UNSHARED)
	}
	var gap *journal.Gap
	b := batches.Get().(*batch) //nolint:forcetypeassert // it has nothing else
	defer b.release()
	b.records, gap = f.r.Next(b.records[:0], BatchBytes)
	b.records = f.st.within(b.records)
	var past journal.Position
	if f.exact {
		past = f.s.Loader().HistoryEnd()
	}
	if gap != nil {
		f.at = f.r.Position()
		return true, f.sendGap(gap)
	}
	for _, r := range b.records {
		switch {
		case r.Note == nil:
			f.at = r.Pos
			if f.filter.Passes(r) && (!f.exact || past.Before(r.Pos)) {
				b.passed = append(b.passed, r)
			}
			continue
		case len(b.passed) > 0:
			if err := f.sendEvents(b); err != nil {
				return false, err
			}
		}
		if r.Posted && f.at.Before(r.Pos) {
			f.at = r.Pos
		}
		if err := f.sendNote(r); err != nil || f.closed {
			return false, err
		}
	}
	if len(b.passed) > 0 {
		if err := f.sendEvents(b); err != nil {
			return false, err
		}
	}
	more = len(b.records) > 0
	if !more {
		f.at = f.r.Position() // the last numbers may be of events that are lost
	}
	if !f.caught && !f.at.Before(f.until) {
		f.caught = true
		return more, f.send(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CaughtUp{
			CaughtUp: &bridgev1.CaughtUp{Position: session.Proto(f.at)},
		}})
	}
	return more, nil
}

func (f *sessionStream) send(r *bridgev1.SubscribeResponse) error {
	f.told = f.at
	return f.st.send(frame.Frame{Message: f.frame(r)})
}

// minOwn is the size in bytes from which a frame is built in its own memory.
const minOwn = 512

// encode adds the events that passed to the frame: as the bytes that every stream shares or,
// if there is no other, in memory that is used again when they were sent.
func (f *sessionStream) encode(b *batch) (own *frame.Buffer) {
	j, size := f.s.Journal(), 0
	for _, r := range b.passed {
		size += len(r.JSON) + wire.EventHead
	}
	if size < minOwn || !j.Alone() {
		b.wires = j.Wire(b.wires, b.passed, f.st.options.form)
		return nil
	}
	own = frame.Take(size)
	for _, r := range b.passed {
		own.Bytes = f.st.service.codec.AppendEvent(own.Bytes, r, f.st.options.form)
	}
	b.wires = append(b.wires, own.Bytes)
	return own
}

// sendEvents sends the events that passed.
func (f *sessionStream) sendEvents(b *batch) error {
	b.wires = append(b.wires[:0], nil)
	own := f.encode(b)
	clear(b.passed)
	b.passed = b.passed[:0]
	size := 0
	for _, w := range b.wires {
		size += len(w)
	}
	id := f.name
	head := make([]byte, 0, len(id)+48)
	head = protowire.AppendString(protowire.AppendTag(head, fieldFrameSession, protowire.BytesType), id)
	head = protowire.AppendTag(head, fieldFrameResume, protowire.BytesType)
	head = protowire.AppendBytes(head, wire.AppendPosition(make([]byte, 0, 24), f.at))
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldFrameEvents, protowire.BytesType), uint64(size))
	b.wires[0] = head
	f.told = f.at
	err := f.st.send(frame.Frame{Wire: b.wires, Own: own})
	clear(b.wires)
	return err
}
