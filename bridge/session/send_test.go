package session

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A message that the CLI does not answer, although it answers all else, does not keep the next
// ones of its session waiting for good.
func TestUnansweredMessage(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}})
	r.open(Opening{})
	r.s.turns.machine.Bounds.Send = 300 * time.Millisecond // enough for the CLI to receive the message, however busy the machine is
	_, err := sendAndAwaitReply(t.Context(), r.s, message("nobody hears it"))
	wantReason(t, err, fault.SendUnconfirmed)
	if !errors.Is(err, ErrUnsettled) {
		t.Errorf("it is not told that it may have been taken up: %v", err)
	}
	r.s.turns.machine.Bounds.Send = time.Minute
	if out := r.send(message("hello")).Waiter.Wait(t.Context(), 0); out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next one's turn is %v", out.Status)
	}
}

// startEnd is what a message of Start ended with.
type startEnd struct {
	sent Sent
	err  error
}

func (r *fixture) start(m Message) <-chan startEnd {
	done := make(chan startEnd, 2) // one too many is seen
	r.s.sender.Start(r.t.Context(), m, func(sent Sent, err error) { done <- startEnd{sent, err} })
	return done
}

// over waits for the end of a message's turn.
func (r *fixture) over(sent Sent) {
	r.t.Helper()
	if out := sent.Waiter.Wait(r.t.Context(), 0); out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		r.t.Errorf("its turn is %v", out.Status)
	}
}

func hangingSend() fakecli.Script {
	return fakecli.Script{Faults: []fakecli.MethodFault{{
		Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang},
	}}}
}

// A message that no goroutine waits for ends as one for which one waits.
func TestStartedMessage(t *testing.T) {
	t.Parallel()
	t.Run("the CLI takes it", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, fakecli.Script{})
		r.open(Opening{})
		done := r.start(message("hello"))
		got := <-done
		if got.err != nil || got.sent.MessageID == "" || got.sent.At.Seq == 0 {
			t.Fatalf("it ends with %+v", got)
		}
		r.over(got.sent)
		if r.started.Load() != 1 || r.s.loader.uses != 0 || len(done) > 0 {
			t.Errorf("%d calls were started, %d are held, ended again: %v", r.started.Load(), r.s.loader.uses, len(done) > 0)
		}
		r.over(r.send(message("the next one does not wait")))
	})
	t.Run("the CLI rejects it", func(t *testing.T) {
		t.Parallel()
		script := hangingSend()
		script.Faults[0].Kind, script.Faults[0].Message = fakecli.FaultError, "broken"
		r := newFixture(t, script)
		r.open(Opening{})
		if got := <-r.start(message("hello")); got.err == nil {
			t.Error("it ends without an error")
		}
		if !r.s.prompts.Outbox().Empty() {
			t.Error("the outbox has it still")
		}
		r.over(r.send(message("the next one does not wait")))
	})
	t.Run("the CLI does not reply", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, hangingSend())
			r.open(Opening{})
			done, behind := r.start(message("hello")), r.start(message("behind"))
			synctest.Wait()
			if n := len(r.received("session.send")); n != 1 {
				t.Fatalf("the CLI has %d messages before it has replied to the first", n)
			}
			got := <-done
			wantReason(t, got.err, fault.SendUnconfirmed)
			if !errors.Is(got.err, ErrUnsettled) {
				t.Errorf("it does not say that the CLI may have accepted it: %v", got.err)
			}
			if got := <-behind; got.err != nil {
				t.Errorf("the next one ends with %v", got.err)
			}
		})
	})
}

// So it does if its runtime or its caller goes.
func TestStartedMessageIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("the runtime ends meanwhile", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, hangingSend())
		r.open(Opening{})
		done := r.start(message("hello"))
		for len(r.received("session.send")) == 0 {
			time.Sleep(time.Millisecond)
		}
		r.script.Faults = nil // of the next life
		r.crash()
		wantReason(t, (<-done).err, fault.SendUnconfirmed)
		r.over(r.send(message("the next one does not wait")))
	})
	t.Run("its caller leaves", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, fakecli.Script{})
		r.open(Opening{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan startEnd, 1)
		r.s.sender.Start(ctx, message("hello"), func(sent Sent, err error) { done <- startEnd{sent, err} })
		cancel()
		got := <-done
		if got.err != nil {
			t.Fatalf("it ends with %v", got.err)
		}
		r.over(got.sent)
	})
	t.Run("no runtime has the session", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, fakecli.Script{})
		r.open(Opening{})
		r.crash()
		got := <-r.start(message("hello"))
		if got.err != nil || r.s.loader.uses != 0 {
			t.Fatalf("it ends with %v, %d calls are held", got.err, r.s.loader.uses)
		}
		r.over(got.sent)
	})
	t.Run("its caller leaves before the CLI has it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, hangingSend())
			r.open(Opening{})
			first := r.start(message("hello"))
			ctx, cancel := context.WithCancel(t.Context())
			behind := make(chan startEnd, 2)
			r.s.sender.Start(ctx, message("behind"), func(sent Sent, err error) { behind <- startEnd{sent, err} })
			synctest.Wait()
			cancel()
			wantReason(t, (<-behind).err, fault.Cancelled)
			<-first
			r.over(r.send(message("the next one")))
			if n := len(r.received("session.send")); n != 2 {
				t.Errorf("the CLI has %d messages", n)
			}
		})
	})
}

// TestStoppingWhileAMessageWaits: a message that waits when the bridge stops fails because of that.
func TestStoppingWhileAMessageWaits(t *testing.T) {
	t.Parallel()
	p := &puppet{}
	h := &stock{rt: p}
	s := onStock(t, h)
	ctx, stop := context.WithCancel(t.Context())
	h.ctx = ctx
	s.loader.runtime, s.loader.state = p, Loaded
	if err := s.prompts.sending.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	s.sender.Start(t.Context(), message("hi"), func(_ Sent, err error) { failed <- err })
	stop()
	if err := <-failed; !errors.Is(err, async.ErrStopping) {
		t.Errorf("the error is %v", err)
	}
}

// stale is a disk of another owner of the session.
type stale struct{ logDisk }

func (*stale) Save([]byte) error { return backend.ErrStale }

// TestRefusedMessageHasItsTurn: a message whose answer another owner has refused has a turn in this process, which ends with it.
func TestRefusedMessageHasItsTurn(t *testing.T) {
	t.Parallel()
	box, err := outbox.Open(&stale{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
	a := &attempt{sd: s.sender, ctx: t.Context(), w: s.turns.expect(nil)}
	a.sent.Result = json.RawMessage(`{"messageId":"m1"}`)
	if a.n, _, err = box.AddLater(outbox.Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, withoutSecrets, s.journal.Last()); err != nil {
		t.Fatal(err)
	}
	s.prompts.sending <- struct{}{}
	a.w.accept()
	a.done = func(_ Sent, err error) { wantReason(t, err, fault.SessionUnavailable) }
	a.accepted()
	s.play("user.message", `{"content":"p","messageId":"m1","interactionId":"i1"}`)
	s.play("session.idle", "")
	if s.turns.Running() {
		t.Error("its turn does not end")
	}
}
