package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	answered  = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED
	unhandled = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED
	expired   = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT
	withdrawn = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN
	ended     = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED
	gone      = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST
)

// calling is a CLI whose agent calls the tool "lookup" on "tool", and asks on "ask".
var calling = fakecli.Script{Prompts: []fakecli.Prompt{
	{Match: "tool", Turns: []fakecli.Turn{{Tools: []fakecli.Tool{{Name: "lookup", Arguments: json.RawMessage(`{"q":1}`)}}}, {Text: "done"}}},
	{Match: "ask", Turns: []fakecli.Turn{{Requests: []fakecli.Reverse{{Method: "userInput.request", Params: json.RawMessage(`{"question":"?"}`)}}}, {Text: "done"}}},
	{Match: "elicit", Turns: []fakecli.Turn{{Asks: []fakecli.Event{{Type: "elicitation.requested", Data: json.RawMessage(`{"message":"?"}`)}}}}},
}}

// resolve answers a callback and waits for the end of that.
func resolve(t *testing.T, s *Session, id string, by callback.Responder, reply callback.Reply) (journal.Position, error) {
	return async.Wait(t.Context(), func(done func(journal.Position, error)) {
		s.callbacks.Resolve(t.Context(), id, by, reply, done)
	})
}

func (r *fixture) abstain(id, participant string) (journal.Position, error) {
	return async.Wait(r.t.Context(), func(done func(journal.Position, error)) {
		r.s.callbacks.Abstain(r.t.Context(), id, participant, done)
	})
}

var lookup = []config.Tool{{Name: "lookup", JSON: json.RawMessage(`{"name":"lookup","skipPermission":true}`)}}

func (r *fixture) awaitAsked() *callback.Pending {
	r.t.Helper()
	return r.await("Requested", func(rec *journal.Record) bool { _, ok := rec.Note.(Requested); return ok }).Note.(Requested).Pending
}

func (r *fixture) awaitOver(want bridgev1.CallbackOutcome) Resolved {
	r.t.Helper()
	got := r.await("Resolved", func(rec *journal.Record) bool { _, ok := rec.Note.(Resolved); return ok }).Note.(Resolved)
	if got.Outcome != want {
		r.t.Errorf("callback %s of %s ended %v, want %v", got.ID, got.Kind.Method, got.Outcome, want)
	}
	return got
}

// replies lists the CLI's requests' answers.
func (r *fixture) replies() (out []string) {
	for _, e := range r.cli.Log() {
		if e.Kind == fakecli.EntryReceived && e.Type == "" {
			out = append(out, string(e.Body))
		}
	}
	return out
}

func TestToolCall(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	r.open(Opening{})
	p, err := r.join(roster.Brings{Tools: lookup})
	if err != nil {
		t.Fatal(err)
	}
	sent := r.send(message("tool"))
	call := r.awaitAsked()
	if call.Tool != "lookup" || call.Pos.Seq == 0 || len(r.s.callbacks.Registry().Offered(call)) != 1 || r.s.callbacks.Registry().Offered(call)[0] != p.ID {
		t.Errorf("asked %+v of %v", call, r.s.callbacks.Registry().Offered(call))
	}
	has(t, string(call.Params), `"q":1`)
	if _, err := resolve(t, r.s, call.ID, callback.Responder{Participant: p.ID}, answer(`{"result":"42"}`)); err != nil {
		t.Fatal(err)
	}
	if got := r.awaitOver(answered); got.Participant != p.ID || got.ID != call.ID {
		t.Errorf("resolved: %+v", got)
	}
	_, err = resolve(t, r.s, call.ID, callback.Responder{Participant: p.ID}, answer(`{"result":"43"}`))
	wantReason(t, err, fault.CallbackResolved)
	_, err = resolve(t, r.s, "other", callback.Responder{Participant: p.ID}, answer(`{}`))
	wantReason(t, err, fault.CallbackNotFound)
	sent.Waiter.Wait(t.Context(), 0)
	has(t, r.last("session.tools.handlePendingToolCall"), `"result":"42"`, `"requestId":"`+call.ID+`"`, `"sessionId":"s1"`)
	if n := len(r.received("session.tools.handlePendingToolCall")); n != 1 {
		t.Errorf("answered %d times", n)
	}
}

func TestNobodyHandles(t *testing.T) {
	t.Parallel()
	for prompt, test := range map[string]struct{ method, want string }{
		"elicit": {"session.ui.handlePendingElicitation", `"action":"cancel"`},
		"tool":   {"session.permissions.handlePendingPermissionRequest", `"kind":"user-not-available"`},
	} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, calling)
			own := tools("lookup")
			r.open(Opening{Tools: &own})
			r.send(message(prompt)).Waiter.Wait(t.Context(), 0)
			r.awaitOver(unhandled)
			has(t, r.last(test.method), test.want)
		})
	}
	t.Run("ask", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, calling)
		r.open(Opening{})
		r.send(message("ask")).Waiter.Wait(t.Context(), 0)
		r.awaitOver(unhandled)
		has(t, r.replies()[0], `"error"`, "userInput.request: no participant handles it")
	})
}

func TestSharedHandlers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	r.open(Opening{Handling: &config.Handling{Methods: []string{"userInput.request"}}})
	has(t, r.last("session.create"), `"requestUserInput":true`)
	sent := r.send(message("ask"))
	q := r.awaitAsked()
	// A handler that joins later receives the callback, too.
	p, err := r.join(roster.Brings{Handling: config.Handling{Methods: []string{"userInput.request"}}})
	if err != nil {
		t.Fatal(err)
	}
	if again := r.awaitAsked(); again != q || len(r.s.callbacks.Registry().Offered(q)) != 1 || r.s.callbacks.Registry().Offered(q)[0] != p.ID {
		t.Errorf("offered to %v", r.s.callbacks.Registry().Offered(q))
	}
	if _, err := r.abstain(q.ID, p.ID); err != nil {
		t.Error(err)
	}
	if _, err := resolve(t, r.s, q.ID, callback.Responder{}, answer(`{"answer":"yes"}`)); err != nil {
		t.Fatal(err)
	}
	r.awaitOver(answered)
	sent.Waiter.Wait(t.Context(), 0)
	has(t, r.replies()[0], `"result":{"answer":"yes"}`)
}

// A request that ends with its session is answered: it occupies a worker of the
// connection, and the CLI ends it no more than we do.
func TestRequestsEndWithTheSession(t *testing.T) {
	t.Parallel()
	s := played()
	s.mu.Lock()
	s.settings.State.Handling = config.Handling{Methods: []string{"userInput.request"}}
	s.mu.Unlock()
	asked := make(chan struct{}, 1)
	reader, err := s.Journal().NewReader(journal.Position{}, true, journal.Waking(asked))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if first, _ := reader.Next(nil, 1); len(first) > 0 { // from here on it is woken
		t.Fatalf("the journal has %v already", first)
	}
	result := make(chan error, 1)
	go func() {
		_, err := s.callbacks.AskMethod(t.Context(), "q1", "userInput.request", nil)
		result <- err
	}()
	<-asked // by the note of the request
	s.loader.end(Disconnected)
	err = <-result
	if rpc, ok := errors.AsType[*rpcconn.Error](err); !ok || rpc.Code != callback.DefaultErrorCode {
		t.Errorf("error is %v", err)
	}
}

func TestCallbacksTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, calling)
		own := lookup
		r.open(Opening{Tools: &own, Timeout: time.Minute})
		begin := time.Now()
		r.send(message("tool")).Waiter.Wait(t.Context(), 0)
		if took := time.Since(begin); took < time.Minute || took > 61*time.Second {
			t.Errorf("given up after %v", took)
		}
		r.awaitOver(expired)
		has(t, r.last("session.tools.handlePendingToolCall"), "no participant answered in time", `"resultType":"failure"`)
	})
}

// An answer that fails gives the callback back, and its deadline, if that passed in
// the meantime, counts.
func TestDeadlinePassesDuringAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, fakecli.Script{Prompts: calling.Prompts, Faults: []fakecli.MethodFault{
			{Method: "session.tools.handlePendingToolCall", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
		}})
		own := lookup
		r.open(Opening{Tools: &own, Timeout: 20 * time.Second})
		sent := r.send(message("tool"))
		call := r.awaitAsked()
		time.Sleep(10 * time.Second)
		_, err := resolve(t, r.s, call.ID, callback.Responder{}, answer(`{"result":"late"}`))
		wantReason(t, err, fault.Timeout)
		sent.Waiter.Wait(t.Context(), 0)
		r.awaitOver(expired)
	})
}

func TestAbortWithdraws(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	own := lookup
	r.open(Opening{Tools: &own})
	r.send(message("tool"))
	call := r.awaitAsked()
	if _, err := r.s.sender.Abort(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := r.awaitOver(withdrawn); got.ID != call.ID {
		t.Errorf("withdrawn: %+v", got)
	}
}

func TestRuntimeLostKeepsToolCalls(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	own := lookup
	r.open(Opening{Tools: &own, Handling: &config.Handling{Methods: []string{"userInput.request"}}})
	r.send(message("tool"))
	call := r.awaitAsked()
	r.crash()
	if _, err := resolve(t, r.s, call.ID, callback.Responder{}, answer(`{"result":"42"}`)); err != nil {
		t.Fatal(err)
	}
	r.awaitOver(answered)
	has(t, r.last("session.tools.handlePendingToolCall"), `"result":"42"`, call.ID)
	if r.lives != 2 {
		t.Errorf("life %d", r.lives)
	}
}

func TestRuntimeLostEndsRequests(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	r.open(Opening{Handling: &config.Handling{Methods: []string{"userInput.request"}}})
	r.send(message("ask"))
	q := r.awaitAsked()
	r.crash()
	r.awaitOver(gone)
	_, err := resolve(t, r.s, q.ID, callback.Responder{}, answer(`{}`))
	wantReason(t, err, fault.CallbackResolved)
}

func TestDisconnectEndsCallbacks(t *testing.T) {
	t.Parallel()
	r := newFixture(t, calling)
	own := lookup
	r.open(Opening{Tools: &own})
	sent := r.send(message("tool"))
	r.awaitAsked()
	if done, err := r.s.loader.Disconnect(t.Context(), false); err != nil || !done {
		t.Fatalf("disconnect: %v, %v", done, err)
	}
	if got := r.await("Resolved", func(rec *journal.Record) bool { _, ok := rec.Note.(Resolved); return ok }).Note.(Resolved); got.Outcome != ended && got.Outcome != withdrawn {
		t.Errorf("ended %v", got.Outcome)
	}
	if out := sent.Waiter.Wait(t.Context(), 0); out.Status != aborted {
		t.Errorf("outcome is %v", out)
	}
	r.await("Ended", func(rec *journal.Record) bool { _, ok := rec.Note.(Ended); return ok })
}

func TestGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, calling)
		r.open(Opening{})
		join := func(token string, grace time.Duration) (*roster.Participant, bool, error) {
			joined, err := r.s.participants.Join(t.Context(), Joining{Token: token, Brings: roster.Brings{Tools: lookup, Grace: grace}})
			return joined.Participant, joined.Returned, err
		}
		p, _, err := join("", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		r.s.participants.Lost(p, errors.New("broken"))
		time.Sleep(59 * time.Second)
		again, returned, err := join(p.Token, time.Minute)
		if err != nil || !returned || again != p {
			t.Fatalf("back: %v, %v", returned, err)
		}
		time.Sleep(time.Hour)
		if n := len(r.s.Snapshot().GetParticipants()); n != 1 {
			t.Fatalf("%d participants", n)
		}
		r.s.participants.Lost(p, errors.New("broken"))
		time.Sleep(61 * time.Second)
		_, _, err = join(p.Token, time.Minute)
		wantReason(t, err, fault.ParticipantNotFound)
		r.tasks.Wait()
		has(t, r.last("session.tools.set"), `"tools":[]`)
		if p, _, err = join("", 0); err != nil {
			t.Fatal(err)
		}
		r.s.participants.Lost(p, errors.New("broken"))
		if n := len(r.s.Snapshot().GetParticipants()); n != 0 {
			t.Errorf("%d participants without grace", n)
		}
	})
}

// TestAnsweredElsewhere: an answer by way of an event ends the request that asks the same, and no other.
func TestAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	const method = "userInput.request"
	for name, tc := range map[string]struct {
		id, method, question string
		over                 bool
	}{
		"the same":         {"e1", method, "why", true},
		"another question": {"e1", method, "how", false},
		"another event":    {"e2", method, "why", false},
		"another method":   {"e1", "elicitation.request", "why", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := onPuppet(t, &puppet{})
			s.settings.State.Handling.Methods = []string{method}
			s.play("user_input.requested", `{"requestId":"e1","question":"why"}`)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _ = s.callbacks.AskMethod(ctx, "q1", method, fmt.Appendf(nil, `{"question":%q}`, tc.question))
			}()
			synctest.Wait()
			if s.callbacks.Registry().Len() != 1 {
				t.Fatal("nothing is asked")
			}
			s.callbacks.AnsweredElsewhere(tc.id, tc.method)
			if over := s.callbacks.Registry().Len() == 0; over != tc.over {
				t.Errorf("%s: the request is over: %v", name, over)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// TestOverBeforeItIsTold: when the last participant has abstained and is told so, the callback is over.
func TestOverBeforeItIsTold(t *testing.T) {
	t.Parallel()
	f := newCrowded()
	p := f.join(t, roster.Brings{Handling: config.Handling{Methods: []string{callback.PermissionRequested}}})
	f.of.Ingest(&journal.Record{Type: callback.PermissionRequested, JSON: []byte(`{"data":` + permissionAsked + `}`)}, time.Now())
	if f.of.callbacks.Registry().Len() != 1 {
		t.Fatal("no callback is pending")
	}
	told := make(chan int, 1)
	f.of.callbacks.Abstain(t.Context(), "p1", p.ID, func(journal.Position, error) { told <- f.of.callbacks.Registry().Len() })
	if left := <-told; left != 0 {
		t.Errorf("%d callbacks are pending", left)
	}
}
