package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// rig is a bridge on a fake CLI.
type rig struct {
	*Bridge
	t   *testing.T
	cli *fakecli.CLI

	mu sync.Mutex
	rt *runtime.Runtime
	// streams are joined before the bridge closes.
	streams sync.WaitGroup
	end     context.CancelFunc
	ctx     context.Context
}

// keeper starts one runtime.
type keeper struct {
	r     *rig
	start Start
}

// Get implements Runtimes.
func (k keeper) Get(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	if k.r.rt != nil {
		return k.r.rt, nil
	}
	rt, err := k.start(ctx, runtime.Config{Profile: p, Runner: runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
		return k.r.cli.Connect(), nil
	})})
	k.r.rt = rt
	return rt, err
}

// Down implements Runtimes.
func (keeper) Down(runtime.Profile) (time.Time, bool) { return time.Time{}, false }

// Retire implements Runtimes.
func (k keeper) Retire(ctx context.Context, _ runtime.Profile) error {
	k.r.mu.Lock()
	rt := k.r.rt
	k.r.rt = nil
	k.r.mu.Unlock()
	if rt == nil {
		return nil
	}
	return rt.Stop(ctx)
}

func newRig(t *testing.T, script fakecli.Script, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, cli: fakecli.New(fakecli.Options{Script: script})}
	r.ctx, r.end = context.WithCancel(context.Background())
	config := Config{Runtimes: func(start Start) Runtimes { return keeper{r, start} }, Version: "test"}
	for _, c := range change {
		c(&config)
	}
	var err error
	if r.Bridge, err = New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.end()
		r.streams.Wait()
		if r.rt != nil {
			r.rt.Kill(errors.New("the test is over"))
			<-r.rt.Done()
		}
		r.Close()
		r.cli.Close()
	})
	return r
}

// create makes a session with the given id.
func (r *rig) create(id string, change ...func(*bridgev1.CreateSessionRequest)) {
	r.t.Helper()
	q := &bridgev1.CreateSessionRequest{SessionId: id, Config: &cliv1.SessionConfig{Streaming: proto.Bool(true)}}
	for _, c := range change {
		c(q)
	}
	if _, err := r.Sessions.CreateSession(r.t.Context(), q); err != nil {
		r.t.Fatal(err)
	}
}

// ask says something and waits for the turn's end.
func (r *rig) ask(id, text string) *bridgev1.TurnOutcome {
	r.t.Helper()
	out, err := r.Turns.SendAndWait(r.t.Context(), &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.GetOutcome()
}

// reading is a stream as its caller sees it.
type reading struct {
	t      *testing.T
	frames chan *bridgev1.SubscribeResponse
	err    chan error
	stop   context.CancelFunc
	// hold, while locked, keeps the stream's sink from returning.
	hold sync.Mutex
	// callbacks are the ids that asked has returned.
	callbacks []string
}

// subscribe reads a stream.
func (r *rig) subscribe(q *bridgev1.SubscribeRequest) *reading {
	ctx, stop := context.WithCancel(r.ctx)
	s := &reading{t: r.t, frames: make(chan *bridgev1.SubscribeResponse, 100_000), err: make(chan error, 1), stop: stop}
	r.streams.Go(func() { s.err <- r.Events.Subscribe(ctx, q, s.sink) })
	return s
}

func (s *reading) sink(f frame.Frame) error {
	s.hold.Lock()
	defer s.hold.Unlock()
	m, ok := f.Message.(*bridgev1.SubscribeResponse)
	if !ok {
		m = &bridgev1.SubscribeResponse{}
		if err := proto.Unmarshal(slices.Concat(f.Wire...), m); err != nil {
			return err
		}
	}
	if f.Own != nil { // as gRPC does; who looks at it all the same sees what never was
		for i := range f.Own.Bytes {
			f.Own.Bytes[i] = 0xff
		}
		f.Own.Give()
	}
	s.frames <- proto.Clone(m).(*bridgev1.SubscribeResponse)
	return nil
}

// next is the next frame.
func (s *reading) next() *bridgev1.SubscribeResponse {
	s.t.Helper()
	select {
	case f := <-s.frames:
		return f
	case <-time.After(20 * time.Second):
		s.t.Fatal("no frame comes")
		return nil
	}
}

// until reads until an event of the type, and returns the frames' kinds, with the types
// of the events.
func (s *reading) until(eventType string) (got []string) {
	s.t.Helper()
	for {
		f := s.next()
		got = append(got, words(f)...)
		if slices.Contains(words(f), eventType) {
			return got
		}
	}
}

// words tells what a frame is.
func words(f *bridgev1.SubscribeResponse) (out []string) {
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

// all is every event that was read, up to one of the type, as text.
func (s *reading) all(eventType string) (got []string) {
	s.t.Helper()
	for {
		for _, e := range s.next().GetEvents().GetEvents() {
			got = append(got, fmt.Sprint(e))
			if e.GetEvent().GetEventType() == eventType {
				return got
			}
		}
	}
}

func one(id string) []*bridgev1.SessionCursor { return []*bridgev1.SessionCursor{{SessionId: id}} }

func wantField(t *testing.T, what string, err error, reason fault.Reason, field string) {
	t.Helper()
	f, ok := fields.AsFault(err)
	if !ok || f.Reason != reason || f.Field != field {
		t.Errorf("%s: error is %v (field %q), want %s about %q", what, err, fieldOf(err), reason, field)
	}
}

func fieldOf(err error) string {
	if f, ok := fields.AsFault(err); ok {
		return f.Field
	}
	return ""
}
