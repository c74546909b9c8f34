package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	completed = bridgev1.TurnStatus_TURN_STATUS_COMPLETED
	aborted   = bridgev1.TurnStatus_TURN_STATUS_ABORTED
	failed    = bridgev1.TurnStatus_TURN_STATUS_FAILED
	timedOut  = bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT
	lost      = bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
)

// played is a session whose events a test plays itself.
func played() *Session {
	return New(Config{ID: "s1", Host: &fixture{}, Epoch: 7})
}

func (s *Session) play(eventType, data string) {
	if data == "" {
		data = "{}"
	}
	s.Ingest(&journal.Record{Type: eventType, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, eventType, data)}, time.Now())
}

func user(id string) string { return fmt.Sprintf(`{"messageId":%q}`, id) }

// The end of a turn may come at any time relative to the reply to session.send: the
// reply is read in order with events, but its id is known to the sender only later.
func TestTurnOutcomes(t *testing.T) {
	t.Parallel()
	type step struct{ do, data string }
	accept, identify := step{"accept", ""}, step{"identify", "m1"}
	taken, idle := step{"user.message", user("m1")}, step{"session.idle", ""}
	for name, test := range map[string]struct {
		steps []step
		want  bridgev1.TurnStatus // 0: it waits still
		text  string
	}{
		"in order":                    {steps: []step{accept, identify, taken, {"assistant.message", `{"content":"hi"}`}, idle}, want: completed, text: "hi"},
		"taken before the reply":      {steps: []step{taken, accept, identify, idle}, want: completed},
		"taken before the id":         {steps: []step{accept, taken, identify, idle}, want: completed},
		"over before the id":          {steps: []step{accept, taken, {"assistant.message", `{"content":"hi"}`}, idle, identify}, want: completed, text: "hi"},
		"the last message counts":     {steps: []step{accept, identify, taken, {"assistant.message", `{"content":"a"}`}, {"assistant.message", `{"content":"b"}`}, idle}, want: completed, text: "b"},
		"no message at all":           {steps: []step{accept, identify, taken, idle}, want: completed},
		"an idle from before":         {steps: []step{idle, accept, idle, identify, idle}},
		"another's turn":              {steps: []step{accept, identify, {"user.message", user("m0")}, idle}},
		"another's turn, id later":    {steps: []step{accept, {"user.message", user("m0")}, idle, identify}},
		"another's turn, then ours":   {steps: []step{accept, identify, {"user.message", user("m0")}, idle, taken, idle}, want: completed},
		"a turn for both":             {steps: []step{{"user.message", user("m0")}, accept, identify, taken, idle}, want: completed},
		"CLI 1.0.81 names no message": {steps: []step{accept, identify, {"user.message", ""}, idle}, want: completed},
		"an error":                    {steps: []step{accept, identify, taken, {"session.error", `{"errorType":"query","message":"no","statusCode":400}`}}, want: failed},
		"an error before it is taken": {steps: []step{accept, identify, {"session.error", `{"errorType":"query"}`}}, want: failed},
		"an error, id later":          {steps: []step{accept, taken, {"session.error", ""}, identify, idle}, want: failed},
		"another's failure": {steps: []step{{"user.message", user("m0")}, {"assistant.message", `{"content":"old"}`}, accept, identify, {"session.error", ""}, taken,
			{"assistant.message", `{"content":"hi"}`}, idle}, want: completed, text: "hi"},
		"another's failure, id later":  {steps: []step{{"user.message", user("m0")}, accept, {"session.error", ""}, taken, idle, identify}, want: completed},
		"another's failure, then ours": {steps: []step{{"user.message", user("m0")}, accept, identify, {"session.error", ""}, taken, {"session.error", ""}}, want: failed},
		"an error from before":         {steps: []step{{"session.error", ""}, accept, identify, taken, idle}, want: completed},
		"a note that looks like one":   {steps: []step{accept, identify, taken, {"session.error", `{"errorType":"notification","message":"a line of a log"}`}, idle}, want: completed},
		"an abort":                     {steps: []step{accept, identify, taken, {"abort", ""}, idle}, want: aborted},
		"an abort told by idle":        {steps: []step{accept, identify, taken, {"session.idle", `{"aborted":true}`}}, want: aborted},
		"an abort of what is queued":   {steps: []step{{"user.message", user("m0")}, accept, identify, {"abort", ""}, idle}, want: aborted},
		"an abort of an earlier turn":  {steps: []step{{"user.message", user("m0")}, {"abort", ""}, idle, accept, identify, taken, idle}, want: completed},
		"the runtime is lost":          {steps: []step{accept, identify, taken, {"lost", ""}}, want: lost},
		"lost before the id":           {steps: []step{accept, taken, {"lost", ""}, identify}, want: lost},
		"a sub-agent's events":         {steps: []step{accept, identify, taken, {"sub", "session.error"}, {"sub", "session.idle"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := played()
			w := s.turns.expect(nil)
			for _, step := range test.steps {
				switch step.do {
				case "accept":
					w.accept()
				case "identify":
					w.identify(step.data)
				case "lost":
					s.mu.Lock()
					s.turns.lose(lost)
					s.mu.Unlock()
				case "sub":
					s.Ingest(&journal.Record{Type: step.data, Agent: "agent-1", JSON: []byte(`{"data":{}}`)}, time.Now())
				default:
					s.play(step.do, step.data)
				}
			}
			if !w.state.Over() {
				if test.want != 0 {
					t.Fatal("the turn does not end")
				}
				return
			}
			out := w.Wait(t.Context(), 0).Proto()
			if out.GetStatus() != test.want || out.GetText() != test.text {
				t.Errorf("outcome is %v", out)
			}
			if test.want == failed && out.GetError() == nil {
				t.Error("it does not say why")
			}
			if s.turns.machine.Waiting() {
				t.Error("waiters are left")
			}
		})
	}
}

func TestTurnErrorSaysWhy(t *testing.T) {
	t.Parallel()
	s := played()
	w := s.turns.expect(nil)
	w.accept()
	w.identify("m1")
	s.play("user.message", user("m1"))
	s.play("session.error", `{"errorType":"rate_limit","message":"slow down","statusCode":429}`)
	te := w.Wait(t.Context(), 0).Proto().GetError()
	if te.GetErrorType() != "rate_limit" || te.GetMessage() != "slow down" || te.GetStatusCode() != 429 || te.GetPosition().GetSeq() != 2 {
		t.Errorf("error is %v", te)
	}
}

// A turn without an assistant message must return empty text, not the text of the previous turn.
func TestOldMessageIsForgotten(t *testing.T) {
	t.Parallel()
	s := played()
	for i, text := range []string{"first", ""} {
		w := s.turns.expect(nil)
		w.accept()
		w.identify(fmt.Sprint("m", i))
		s.play("user.message", user(fmt.Sprint("m", i)))
		if text != "" {
			s.play("assistant.message", `{"content":"first"}`)
		}
		s.play("session.idle", "")
		if out := w.Wait(t.Context(), 0).Proto(); out.GetText() != text || (out.GetMessagePosition() != nil) != (text != "") {
			t.Errorf("turn %d: %v", i, out)
		}
	}
}

// Readers are told of a turn's end before they have the message that begins the next, and the usage counts each turn.
func TestTurnEndsBeforeTheNextMessage(t *testing.T) {
	t.Parallel()
	s := played()
	r, err := s.Journal().NewReader(journal.Position{}, false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	queued := turn.NewWaiter(0)
	s.mu.Lock()
	s.turns.machine.Expect(queued)
	s.turns.machine.Identify(queued, "m2")
	s.mu.Unlock()
	for i, e := range [][2]string{
		{"user.message", `{"messageId":"m1","interactionId":"i1"}`}, {"assistant.message", `{"content":"A1"}`}, {"assistant.turn_end", "{}"},
		{"user.message", `{"messageId":"m2","interactionId":"i2"}`}, {"session.error", "{}"},
	} {
		s.Ingest(&journal.Record{
			ID:   journal.ParseID([]byte(fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1))),
			Type: e[0], JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, e[0], e[1]),
		}, time.Now())
	}
	records, _ := r.Next(nil, 1<<20)
	var got []string
	for _, rec := range records {
		if over, ok := rec.Note.(TurnOver); ok {
			out := over.Outcome.Proto()
			got = append(got, fmt.Sprintf("%v %s at %d", out.GetStatus(), out.GetText(), out.GetEndPosition().GetSeq()))
			continue
		}
		got = append(got, rec.Type)
	}
	want := []string{
		"user.message", "assistant.message", "assistant.turn_end", "TURN_STATUS_COMPLETED A1 at 3", "user.message", "session.error",
		"TURN_STATUS_FAILED  at 5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("readers have %q, want %q", got, want)
	}
	if rows := s.Usage(); len(rows) != 1 || rows[0].Turns != 2 {
		t.Errorf("the usage is %v", rows)
	}
}

// The CLI writes a conversation down when it is idle, and may lose the turns before if it ends earlier. Their prompts stay
// in the outbox until then.
func TestPromptsStayUntilTheCLIRests(t *testing.T) {
	t.Parallel()
	for end, event := range map[string][2]string{
		"idle":          {"session.idle", "{}"},
		"idle, aborted": {"session.idle", `{"aborted":true}`},
	} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, fakecli.Script{}).s
			for _, id := range []string{"m1", "m2"} {
				n, _, err := s.prompts.Outbox().Add(outbox.Prompt{Params: json.RawMessage("{}")},
					func(params json.RawMessage) (json.RawMessage, []string) { return params, nil }, journal.Position{})
				if err != nil {
					t.Fatal(err)
				}
				w := turn.NewWaiter(0)
				s.mu.Lock()
				s.prompts.expect(w, n)
				s.turns.machine.Expect(w)
				s.turns.machine.Accept(w, time.Now())
				s.turns.carryOut(s.turns.machine.Identify(w, id))
				s.mu.Unlock()
				s.prompts.accepted(n, []string{id}, s.journal.Last(), func(bool, bool, error) {})
			}
			waiting := func() int { return len(s.prompts.Outbox().Entries()) }
			s.play("user.message", `{"messageId":"m1","interactionId":"i1"}`)
			s.play("assistant.turn_end", "")
			s.play("user.message", `{"messageId":"m2","interactionId":"i2"}`)
			if n := waiting(); n != 2 {
				t.Errorf("%d prompts are in the outbox while the CLI goes on", n)
			}
			s.play(event[0], event[1])
			if n := waiting(); n != 0 {
				t.Errorf("%d prompts are in the outbox of an idle session", n)
			}
		})
	}
}

func TestWaitTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := played()
		wait := func(limit, idle time.Duration) (bridgev1.TurnStatus, time.Duration) {
			w := s.turns.expect(nil)
			defer w.Close()
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			s.play("assistant.turn_start", "")
			return w.Wait(ctx, idle).Status, time.Since(begin)
		}
		if status, took := wait(time.Minute, 0); status != timedOut || took != time.Minute {
			t.Errorf("the deadline: %v after %v", status, took)
		}
		if status, took := wait(time.Hour, time.Minute); status != timedOut || took < time.Minute || took > 76*time.Second {
			t.Errorf("silence: %v after %v", status, took)
		}
		// While a tool runs, silence means nothing.
		s.play("tool.execution_start", "")
		if status, took := wait(time.Hour, time.Minute); status != timedOut || took != time.Hour {
			t.Errorf("a tool runs: %v after %v", status, took)
		}
		s.play("tool.execution_complete", "")
		go func() {
			for range 10 {
				time.Sleep(50 * time.Second)
				s.play("assistant.message_delta", "")
			}
		}()
		if status, took := wait(time.Hour, time.Minute); status != timedOut || took < 560*time.Second || took > 576*time.Second {
			t.Errorf("not silent: %v after %v", status, took)
		}
	})
}

func TestTurnsOnTheCLI(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Prompts: []fakecli.Prompt{
		{Match: "hang", Turns: []fakecli.Turn{{Text: "begin"}, {Hang: true}}},
		{Match: "fail", Turns: []fakecli.Turn{{Error: &fakecli.ModelError{Type: "query", Message: "bad", StatusCode: 400}}}},
		{Match: "die", Turns: []fakecli.Turn{{Text: "begin", Fault: &fakecli.Fault{Kind: fakecli.FaultExit, At: fakecli.AtTools}}, {Hang: true}}},
	}})
	r.open(Opening{})
	if out := r.send(message("hello")).Waiter.Wait(t.Context(), 0).Proto(); out.GetStatus() != completed || out.GetText() != "You said: hello" {
		t.Errorf("outcome is %v", out)
	}
	if out := r.send(message("fail")).Waiter.Wait(t.Context(), 0).Proto(); out.GetStatus() != failed || out.GetError().GetStatusCode() != 400 {
		t.Errorf("outcome is %v", out)
	}
	one, two := r.send(message("hang")), r.send(message("queued"))
	stopped, err := r.s.sender.Abort(t.Context(), nil)
	if err != nil || !stopped.Running {
		t.Errorf("abort: %+v, %v", stopped, err)
	}
	for _, sent := range []Sent{one, two} {
		if out := sent.Waiter.Wait(t.Context(), 0); out.Status != aborted {
			t.Errorf("outcome is %v", out)
		}
	}
	if stopped, err := r.s.sender.Abort(t.Context(), nil); err != nil || stopped.Running {
		t.Errorf("abort of nothing: %+v, %v", stopped, err)
	}
	sent := r.send(message("hang"))
	r.await("the message", func(rec *journal.Record) bool {
		return rec.Type == "user.message" && strings.Contains(string(rec.JSON), sent.MessageID)
	})
	r.crash()
	if out := sent.Waiter.Wait(t.Context(), 0); out.Status != lost {
		t.Errorf("outcome is %v", out)
	}
	note := r.await("Restarted", func(rec *journal.Record) bool { _, ok := rec.Note.(Restarted); return ok })
	if got := note.Note.(Restarted); got.Turn == nil || got.Turn.Status != lost || got.Cause != "crashed" {
		t.Errorf("note is %+v", got)
	}
	// It is loaded again, silently.
	if out := r.send(message("again")).Waiter.Wait(t.Context(), 0); out.Status != completed || r.lives != 2 {
		t.Errorf("outcome is %v in life %d", out, r.lives)
	}
	has(t, r.last("session.resume"), `"disableResume":true`, `"continuePendingWork":true`, `"requestPermission":true`)
	if _, ok := r.s.Journal().Find(func(rec *journal.Record) bool { return rec.Type == "session.resume" }); ok {
		t.Error("the bridge's own resume left an event")
	}
}

func TestSendWithoutSession(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	_, err := sendAndAwaitReply(t.Context(), r.s, message("x"))
	wantReason(t, err, fault.SessionNotFound)
	r.open(Opening{})
	if done, err := r.s.loader.Disconnect(t.Context(), false); err != nil || !done {
		t.Errorf("disconnect: %v, %v", done, err)
	}
	_, err = sendAndAwaitReply(t.Context(), r.s, message("x"))
	wantReason(t, err, fault.SessionNotFound)
}

// TestWatchersSeeTurns: each time a turn begins or ends, watchers of sessions are told, and the session shows it.
func TestWatchersSeeTurns(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	for i, step := range []struct {
		kind, data string
		runs       bool
	}{
		{"user.message", `{"messageId":"m1","interactionId":"i1"}`, true},
		{"session.idle", `{}`, false},
		{"user.message", `{"messageId":"m2","interactionId":"i2"}`, true},
		{"session.error", `{"message":"broken"}`, true}, // until the CLI is idle
		{"session.idle", `{}`, false},
	} {
		f.takes(t, textOf(i+1, step.kind, step.data))
		if got := f.s.Snapshot().GetTurnRunning(); len(f.done) != i+1 || got != step.runs {
			t.Errorf("after %s: told %d times of %d, a turn runs: %v", step.kind, len(f.done), i+1, got)
		}
	}
}
