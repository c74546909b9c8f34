package attach

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// numbered is the reply to a command.
func numbered(n int) *bridgev1.AttachResponse {
	return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: &bridgev1.AttachDone{
		Subject: &bridgev1.AttachDone_CommandId{CommandId: strconv.Itoa(n)},
	}}}
}

// recorded is a sink that records the replies, and reports two senders at a time.
type recorded struct {
	t    *testing.T
	busy sync.Mutex
	ids  []string
	fail error
}

func (r *recorded) sink(f frame.Frame) error {
	if !r.busy.TryLock() {
		r.t.Error("two goroutines send at the same time")
		return nil
	}
	defer r.busy.Unlock()
	if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
		r.ids = append(r.ids, m.GetDone().GetCommandId())
	}
	return r.fail
}

var event = frame.Frame{Wire: [][]byte{{1}}}

// A reply is sent by its own goroutine only while the stream is open, and never before an earlier reply.
func TestOutlet(t *testing.T) {
	t.Parallel()
	to := &recorded{t: t}
	o, ctx := newOutlet(8), t.Context()
	reply := func(n int) { o.reply(ctx, ctx, numbered(n)) }
	sent := func(when string, want int) {
		t.Helper()
		if len(to.ids) != want {
			t.Errorf("%s: sent are %q", when, to.ids)
		}
	}
	reply(1)
	sent("before the stream opens", 0)
	stream := o.open(to.sink)
	reply(2)
	sent("while one waits", 0)
	for range 2 {
		if err := stream(<-o.queue); err != nil {
			t.Fatal(err)
		}
	}
	reply(3)
	sent("while none waits", 3)
	o.enqueue(ctx, ctx, numbered(4))
	reply(5)
	sent("after one that was put in the queue", 3)
	for range 2 {
		_ = stream(<-o.queue)
	}
	to.fail = errors.New("the connection broke")
	reply(6)
	if err := stream(event); !errors.Is(err, to.fail) {
		t.Errorf("the stream's goroutine does not see the error: %v", err)
	}
	_ = stream(frame.Frame{Message: &bridgev1.SubscribeResponse{
		Frame: &bridgev1.SubscribeResponse_Closed{Closed: &bridgev1.SubscriptionClosed{}}}})
	reply(7)
	sent("after the last frame of the session", 6)
	o.close()
	over, cancel := context.WithCancel(ctx)
	cancel()
	for range 16 { // more than fit: they are dropped
		o.reply(over, ctx, numbered(8))
	}
	for i, id := range to.ids {
		if id != strconv.Itoa(i+1) {
			t.Errorf("the order is %q", to.ids)
		}
	}
}

// Replies of one goroutine stay in order, and no two goroutines send at a time, while events are sent.
func TestOutletAmongEvents(t *testing.T) {
	t.Parallel()
	const replies = 2000
	to := &recorded{t: t}
	o, ctx := newOutlet(8), t.Context()
	stream := o.open(to.sink)
	var work sync.WaitGroup
	work.Go(func() {
		for n := range replies {
			o.reply(ctx, ctx, numbered(n))
		}
		close(o.queue)
	})
	for open := true; open; {
		select {
		case f, more := <-o.queue:
			if open = more; more {
				_ = stream(f)
			}
		default:
			_ = stream(event)
		}
	}
	work.Wait()
	for n, id := range to.ids {
		if id != strconv.Itoa(n) {
			t.Fatalf("reply %d is that to command %s", n, id)
		}
	}
	if len(to.ids) != replies {
		t.Errorf("%d of %d replies were sent", len(to.ids), replies)
	}
}
