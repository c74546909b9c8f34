package bridgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// patience is how long a fixture waits for what it was told to expect.
const patience = 20 * time.Second

// Stream is a stream of Subscribe as its caller sees it. It ends by Stop, or with the test.
type Stream struct {
	// Frames are the frames that no method has read yet.
	Frames chan *bridgev1.SubscribeResponse
	// Err has the stream's result when the stream has ended.
	Err chan error
	// Stop cancels the call.
	Stop context.CancelFunc

	t *testing.T
	// held, while locked, keeps the stream's sink from returning.
	held sync.Mutex
	// callbacks are the ids that Callback has returned.
	callbacks []string
}

// Subscribe opens a stream.
func (b *Bridge) Subscribe(q *bridgev1.SubscribeRequest) *Stream {
	ctx, stop := context.WithCancel(b.ctx)
	s := &Stream{t: b.T, Frames: make(chan *bridgev1.SubscribeResponse, 100_000), Err: make(chan error, 1), Stop: stop}
	b.readers.Go(func() { s.Err <- b.Events.Subscribe(ctx, q, s.sink) })
	return s
}

// Cursors begin a stream at the beginning of sessions.
func Cursors(sessions ...string) (out []*bridgev1.SessionCursor) {
	for _, id := range sessions {
		out = append(out, &bridgev1.SessionCursor{SessionId: id})
	}
	return out
}

func (s *Stream) sink(f frame.Frame) error {
	s.held.Lock()
	defer s.held.Unlock()
	m, ok := f.Message.(*bridgev1.SubscribeResponse)
	if !ok {
		m = &bridgev1.SubscribeResponse{}
		if err := proto.Unmarshal(slices.Concat(f.Wire...), m); err != nil {
			return err
		}
	}
	if f.Own != nil { // gRPC reuses the bytes too: a reader that still has them sees garbage
		for i := range f.Own.Bytes {
			f.Own.Bytes[i] = 0xff
		}
		f.Own.Give()
	}
	s.Frames <- proto.Clone(m).(*bridgev1.SubscribeResponse)
	return nil
}

// Hold has the caller read nothing until Release.
func (s *Stream) Hold() { s.held.Lock() }

// Release ends Hold.
func (s *Stream) Release() { s.held.Unlock() }

// Next returns the next frame.
func (s *Stream) Next() *bridgev1.SubscribeResponse {
	s.t.Helper()
	select {
	case f := <-s.Frames:
		return f
	case <-time.After(patience):
		s.t.Fatal("no frame comes")
		return nil
	}
}

// Until reads to a frame of a kind, and returns the kinds of the frames that it has read.
func (s *Stream) Until(kind string) (got []string) {
	s.t.Helper()
	for {
		kinds := Kinds(s.Next())
		got = append(got, kinds...)
		if slices.Contains(kinds, kind) {
			return got
		}
	}
}

// Events reads to an event of a type, and returns the events that it has read, as text.
func (s *Stream) Events(eventType string) (got []string) {
	s.t.Helper()
	for {
		for _, e := range s.Next().GetEvents().GetEvents() {
			got = append(got, fmt.Sprint(e))
			if e.GetEvent().GetEventType() == eventType {
				return got
			}
		}
	}
}

// Kinds are the types of the events of a frame, or the name of another frame, such as "<caught_up>".
func Kinds(f *bridgev1.SubscribeResponse) (out []string) {
	if f.GetEvents() == nil {
		d := f.ProtoReflect()
		fd := d.WhichOneof(d.Descriptor().Oneofs().ByName("frame"))
		return []string{"<" + string(fd.Name()) + ">"}
	}
	for _, e := range f.GetEvents().GetEvents() {
		out = append(out, e.GetEvent().GetEventType())
	}
	return out
}

// Frame reads to the first frame that found accepts. It fails the test, with what it waits for, if the stream ends
// before.
func (s *Stream) Frame(what string, found func(*bridgev1.SubscribeResponse) bool) *bridgev1.SubscribeResponse {
	s.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f := <-s.Frames:
			if found(f) {
				return f
			}
		case err := <-s.Err:
			for len(s.Frames) > 0 { // sent before the stream ended
				if f := <-s.Frames; found(f) {
					return f
				}
			}
			s.t.Fatalf("the stream ended before %s: %v", what, err)
		case <-timeout:
			s.t.Fatalf("%s never came", what)
		}
	}
}

// Restarted waits for the end of the session's runtime.
func (s *Stream) Restarted() *bridgev1.RuntimeRestarted {
	s.t.Helper()
	return s.Frame("the runtime's end", func(f *bridgev1.SubscribeResponse) bool {
		return f.GetRuntimeRestarted() != nil
	}).GetRuntimeRestarted()
}

// TurnEnded waits for the end of a turn with a status.
func (s *Stream) TurnEnded(want bridgev1.TurnStatus) {
	s.t.Helper()
	s.Frame("the end of a turn as "+want.String(), func(f *bridgev1.SubscribeResponse) bool {
		return f.GetTurnEnded().GetOutcome().GetStatus() == want
	})
}

// Callback waits for a callback that it has not returned before, and returns its id. A stream that begins after the
// request of a callback and before its answer has the callback twice: among the pending ones of its first frame, and
// as the request in the journal.
func (s *Stream) Callback() (id string) {
	s.t.Helper()
	s.Frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		id = f.GetCallbackRequested().GetCallback().GetCallbackId()
		if list := f.GetStarted().GetPendingCallbacks(); len(list) > 0 {
			id = list[0].GetCallbackId()
		}
		return id != "" && !slices.Contains(s.callbacks, id)
	})
	s.callbacks = append(s.callbacks, id)
	return id
}
