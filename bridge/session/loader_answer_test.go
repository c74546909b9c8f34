package session

import (
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const handleToolCall = "session.tools.handlePendingToolCall"

// resolving is the end of an answer that no goroutine waits for.
type resolving struct {
	at  journal.Position
	err error
}

func (r *fixture) startAnswer(id, result string) <-chan resolving {
	done := make(chan resolving, 2) // one too many is seen
	r.s.callbacks.Resolve(r.t.Context(), id, callback.Responder{}, answer(result),
		func(at journal.Position, err error) { done <- resolving{at, err} })
	return done
}

// asking returns a session whose tool call waits.
func asking(t *testing.T, faults ...fakecli.MethodFault) (*fixture, *callback.Pending) {
	t.Helper()
	r := newFixture(t, fakecli.Script{Prompts: calling.Prompts, Faults: faults})
	own := lookup
	r.open(Opening{Tools: &own, Handling: &config.Handling{Methods: []string{"userInput.request"}}})
	r.send(message("tool"))
	return r, r.awaitAsked()
}

func failing(kind string) fakecli.MethodFault {
	return fakecli.MethodFault{Method: handleToolCall, Times: 1, Fault: fakecli.Fault{Kind: kind, Message: "broken"}}
}

// An answer that no goroutine waits for ends as one for which one waits.
func TestAnswerThatNoGoroutineAwaits(t *testing.T) {
	t.Parallel()
	t.Run("the CLI takes it", func(t *testing.T) {
		t.Parallel()
		r, call := asking(t)
		if got := <-r.startAnswer(call.ID, `{"result":"42"}`); got.err != nil || got.at.Seq < call.Pos.Seq {
			t.Errorf("it ends with %+v", got)
		}
		r.awaitOver(answered)
		has(t, r.last(handleToolCall), `"result":"42"`, `"requestId":"`+call.ID+`"`, `"sessionId":"s1"`)
		wantReason(t, (<-r.startAnswer(call.ID, `{"result":"43"}`)).err, fault.CallbackResolved)
		wantReason(t, (<-r.startAnswer("other", `{}`)).err, fault.CallbackNotFound)
		if n := r.started.Load(); n != 2 || r.s.loader.uses != 0 { // of the prompt and of the answer
			t.Errorf("%d calls were started, %d are held", n, r.s.loader.uses)
		}
	})
	t.Run("the CLI rejects it", func(t *testing.T) {
		t.Parallel()
		r, call := asking(t, failing(fakecli.FaultError))
		if got := <-r.startAnswer(call.ID, `{"result":"42"}`); got.err == nil {
			t.Error("it is taken")
		}
		if got := <-r.startAnswer(call.ID, `{"result":"43"}`); got.err != nil {
			t.Errorf("another answer ends with %v", got.err)
		}
		r.awaitOver(answered)
	})
	t.Run("the CLI has withdrawn the callback", func(t *testing.T) {
		t.Parallel()
		r, call := asking(t)
		if _, err := r.s.sender.Abort(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		r.awaitOver(withdrawn) // the CLI's reply may come before its event
		wantReason(t, (<-r.startAnswer(call.ID, `{"result":"42"}`)).err, fault.CallbackResolved)
	})
	t.Run("the runtime has ended", func(t *testing.T) {
		t.Parallel()
		r, call := asking(t)
		r.crash()
		if got := <-r.startAnswer(call.ID, `{"result":"42"}`); got.err != nil {
			t.Errorf("it ends with %v", got.err)
		}
		has(t, r.last(handleToolCall), `"result":"42"`, call.ID)
	})
	t.Run("the runtime ends meanwhile", func(t *testing.T) {
		t.Parallel()
		r, call := asking(t, failing(fakecli.FaultHang))
		done := r.startAnswer(call.ID, `{"result":"42"}`)
		r.script.Faults = nil // of the next life
		r.crash()
		if got := <-done; got.err != nil {
			t.Errorf("it ends with %v", got.err)
		}
		r.awaitOver(answered)
		has(t, r.last(handleToolCall), `"result":"42"`, call.ID)
		if len(done) > 0 || r.lives != 2 {
			t.Errorf("it ended twice: %v; lives: %d", len(done) > 0, r.lives)
		}
	})
	t.Run("the CLI does not reply", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r, call := asking(t, failing(fakecli.FaultHang))
			wantReason(t, (<-r.startAnswer(call.ID, `{"result":"42"}`)).err, fault.Timeout)
			if _, err := r.s.callbacks.Registry().Get(call.ID); err != nil {
				t.Errorf("the callback cannot be answered again: %v", err)
			}
		})
	})
}

// A callback is over when the CLI says so while an answer is being delivered, also if the answer's end remains unknown: the
// next answer must not be taken for the one that the CLI has.
func TestOverDuringAnAnswer(t *testing.T) {
	t.Parallel()
	var s *Session
	rt := &puppet{answer: func(method string) (string, error) {
		if callback.Answers(method) {
			s.play("permission.completed", `{"requestId":"p1"}`)
			return "", fault.New(fault.Timeout, "no reply")
		}
		return `{}`, nil
	}}
	s = onStock(t, &stock{rt: rt})
	s.loader.runtime, s.loader.state = rt, Loaded
	s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
	s.play(callback.PermissionRequested, permissionAsked)
	for _, want := range []fault.Reason{fault.Timeout, fault.CallbackResolved} {
		_, err := resolve(t, s, "p1", callback.Responder{}, answer(`{"result":{"kind":"approve-once"}}`))
		wantReason(t, err, want)
	}
	if n := s.callbacks.Registry().Len(); n != 0 {
		t.Errorf("%d callbacks are pending", n)
	}
}

// A default answer ends its callback also if it does not reach the CLI, which then may wait still.
func TestDefaultAnswerFails(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := &puppet{answer: func(string) (string, error) {
				if fails {
					return "", fault.New(fault.Timeout, "no reply")
				}
				return `{}`, nil
			}}
			s := onStock(t, &stock{rt: rt})
			s.loader.runtime, s.loader.state = rt, Loaded
			s.play(callback.PermissionRequested, permissionAsked)
			synctest.Wait()
			if got := s.callbacks.Registry().EndedSince("p1", 0); got == fails || s.callbacks.Registry().Len() > 0 {
				t.Errorf("the answer fails: %v, it has ended since: %v", fails, got)
			}
		})
	}
}
