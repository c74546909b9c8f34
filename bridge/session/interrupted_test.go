package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

const goOn = bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE

// continuation is a part of the text that tells the agent to continue.
const continuation = "The process that ran you ended"

// hangs answers the first prompts with a match by a turn that never ends, and every other one with a short text.
func hangs(match string, times int) fakecli.Script {
	return fakecli.Script{Prompts: []fakecli.Prompt{{Match: match, Times: times, Turns: []fakecli.Turn{{Hang: true}}}}}
}

// reload has the session loaded, as the fleet does after the end of a runtime with a turn.
func (r *fixture) reload() {
	r.t.Helper()
	if _, err := r.s.loader.Load(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// awaitContinued reads the journal up to the next note that the agent was told to continue.
func (r *fixture) awaitContinued() Continued {
	r.t.Helper()
	return r.await("the continuation", func(rec *journal.Record) bool {
		_, ok := rec.Note.(Continued)
		return ok
	}).Note.(Continued)
}

// The agent is told before it receives the prompts that waited behind the interrupted turn.
func TestInterruptedTurnContinues(t *testing.T) {
	t.Parallel()
	r := newFixture(t, hangs("long", 1))
	r.open(Opening{OnInterruption: goOn})
	r.send(message("long"))
	r.awaitEvent("assistant.turn_start")
	r.send(message("queued"))
	r.crash()
	if out := r.send(message("next")).Waiter.Wait(t.Context(), 0); out.Status != completed {
		t.Errorf("the next turn ended as %v", out)
	}
	got := r.received("session.send")
	if len(got) != 3 {
		t.Fatalf("the second CLI process received %q", got)
	}
	has(t, got[0], continuation)
	has(t, got[1], "queued")
	has(t, got[2], "next")
	if note := r.awaitContinued(); note.Attempt != 1 || note.MessageID == "" {
		t.Errorf("readers receive %+v", note)
	}
	r.crash()
	r.reload()
	if got := r.received("session.send"); len(got) != 0 {
		t.Errorf("after a turn that ended, the agent was told %q", got)
	}
}

// Without the option the turn only ends.
func TestInterruptedTurnIsReported(t *testing.T) {
	t.Parallel()
	r := newFixture(t, hangs("long", 1))
	r.open(Opening{})
	r.send(message("long"))
	r.awaitEvent("assistant.turn_start")
	r.crash()
	r.reload()
	// An option that comes later is about later turns.
	if _, err := r.s.loader.Resume(t.Context(), Opening{OnInterruption: goOn}); err != nil {
		t.Fatal(err)
	}
	r.send(message("next")).Waiter.Wait(t.Context(), 0)
	if got := r.received("session.send"); len(got) != 1 {
		t.Errorf("the second CLI process received %q", got)
	}
}

// A task that ends each process is continued three times.
func TestInterruptedTurnsAreBounded(t *testing.T) {
	t.Parallel()
	r := newFixture(t, hangs("", 5))
	r.open(Opening{OnInterruption: goOn})
	r.send(message("long"))
	for attempt := range MaxContinuations {
		r.awaitEvent("assistant.turn_start")
		r.crash()
		r.reload()
		if note := r.awaitContinued(); note.Attempt != attempt+1 {
			t.Errorf("attempt %d is said to be %d", attempt+1, note.Attempt)
		}
	}
	r.awaitEvent("assistant.turn_start")
	r.crash()
	r.reload()
	if err := r.s.prompts.awaitRedelivery(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.received("session.send"); len(got) != 0 {
		t.Errorf("the last CLI process received %q", got)
	}
	// A turn that ends begins the count anew.
	r.send(message("hang once more"))
	r.awaitEvent("assistant.turn_start")
	if _, err := r.s.sender.Abort(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.awaitEvent("session.idle")
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if told := r.s.ingester.Known.Interruption.Told; told != 0 {
		t.Errorf("after the end of a turn, %d continuations are counted", told)
	}
}

// A caller who aborts, or leaves the session, does not want it to continue.
func TestInterruptedTurnIsLeft(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(r *fixture) error{
		"aborted": func(r *fixture) error {
			_, err := r.s.sender.Abort(r.t.Context(), nil)
			return err
		},
		"disconnected": func(r *fixture) error {
			if _, err := r.s.loader.Disconnect(r.t.Context(), true); err != nil {
				return err
			}
			_, err := r.s.loader.Resume(r.t.Context(), Opening{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, hangs("long", 1))
			r.open(Opening{OnInterruption: goOn})
			r.send(message("long"))
			r.awaitEvent("assistant.turn_start")
			r.crash()
			if err := leave(r); err != nil {
				t.Fatal(err)
			}
			r.send(message("next")).Waiter.Wait(t.Context(), 0)
			if got := r.received("session.send"); len(got) != 1 {
				t.Errorf("the CLI received %q", got)
			}
		})
	}
}

// The CLI continues a turn by itself whose callback waits for its answer.
func TestInterruptedTurnWithACallback(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "work", Turns: []fakecli.Turn{
		{Tools: []fakecli.Tool{{Name: "lookup", Arguments: []byte(`{}`)}}}, {Text: "done"},
	}}}})
	r.open(Opening{OnInterruption: goOn, Tools: &lookup})
	r.send(message("work"))
	r.await("the call", func(rec *journal.Record) bool { _, ok := rec.Note.(Requested); return ok })
	stored := func(line string) bool { return strings.Contains(line, `"external_tool.requested"`) }
	for range 5000 {
		if _, lines := r.record(); slices.ContainsFunc(lines, stored) {
			break
		}
		time.Sleep(time.Millisecond) // the CLI shows a call before it stores it
	}
	r.crash()
	r.reload()
	if err := r.s.prompts.awaitRedelivery(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.received("session.send"); len(got) != 0 {
		t.Errorf("the CLI received %q", got)
	}
}

// Another process of the bridge continues the turn too, and only once.
func TestInterruptedTurnAfterARestart(t *testing.T) {
	t.Parallel()
	r := newFixture(t, hangs("long", 1))
	r.open(Opening{OnInterruption: goOn})
	r.send(message("long"))
	r.awaitEvent("assistant.turn_start")
	r.crash()
	text := savedText(r.s, nil, nil)
	next := New(Config{ID: "s1", Host: r, Epoch: 8})
	if err := next.Restore(text, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !next.Awaited() {
		t.Error("the session is not loaded before a caller needs it")
	}
	r.s = next
	r.reload()
	if err := next.prompts.awaitRedelivery(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := r.received("session.send")
	if len(got) != 1 {
		t.Fatalf("the CLI received %q", got)
	}
	has(t, got[0], continuation)
	again := New(Config{ID: "s1", Host: r, Epoch: 9})
	if err := again.Restore(savedText(next, nil, nil), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if again.Awaited() {
		t.Error("the session is to be continued twice")
	}
}

// acknowledged adds a prompt to the outbox that the CLI has answered as m1.
func acknowledged(t *testing.T, s *Session, text string) (n uint64) {
	t.Helper()
	n, _, err := s.prompts.add(outbox.Prompt{Params: json.RawMessage(`{"prompt":"` + text + `"}`)}, s.journal.Last())
	if err != nil {
		t.Fatal(err)
	}
	s.prompts.outbox.Accepted(n, []string{"m1"}, s.journal.Last(), func(_, _ bool, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	return n
}

// A prompt that an abort has removed is not sent again if the process of the bridge ended before it knew that.
func TestRemovedPromptIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, aborted := range []bool{false, true} {
		p := &puppet{}
		s := onStock(t, &stock{rt: p})
		acknowledged(t, s, "p")
		if aborted {
			s.play("abort", "")
		}
		s.update(s.prompts.restore)
		if _, err := s.loader.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.prompts.awaitRedelivery(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sent := p.called("session.send"); sent == aborted {
			t.Errorf("aborted: %v, sent again: %v", aborted, sent)
		}
		w := s.prompts.Restored("m1")
		if over := w.Over(); over != aborted || over && w.Outcome().Status != bridgev1.TurnStatus_TURN_STATUS_ABORTED {
			t.Errorf("aborted: %v, the outcome is %v", aborted, w.Outcome())
		}
	}
}

// A runtime that ends right behind a load leaves the prompts to the next load.
func TestGiveUpBehindALoad(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{nil, errors.New("the session cannot be loaded")} {
		s := onStock(t, &stock{rt: &puppet{}})
		acknowledged(t, s, "p")
		s.watchdog.GiveUp(t.Context(), cause)
		if lost := s.prompts.outbox.Empty(); lost != (cause != nil) {
			t.Errorf("the load fails with %v: the prompt is lost: %v", cause, lost)
		}
	}
}

// recorder is a puppet that keeps the prompts which it gets.
type recorder struct {
	*puppet
	prompts []string // guarded by the puppet's lock
}

func (r *recorder) Start(
	ctx context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error), opts ...rpcconn.CallOption,
) error {
	if method == methodSend {
		r.mu.Lock()
		r.prompts = append(r.prompts, string(params))
		r.mu.Unlock()
	}
	return r.puppet.Start(ctx, method, params, limit, done, opts...)
}

const (
	firstMessage = `{"type":"user.message","id":"00000000-0000-4000-8000-000000000001","data":{"messageId":"m0"}}`
	callersAbort = `{"type":"abort","id":"00000000-0000-4000-8000-000000000003","data":{}}`
)

// interrupted is a session whose interrupted turns are continued, and whose CLI has a history of some events. reading is called
// when the bridge reads that.
func interrupted(t *testing.T, reading func(s *Session), history ...string) (*Session, *recorder) {
	t.Helper()
	var s *Session
	r := &recorder{puppet: &puppet{answer: func(method string) (string, error) {
		if method == "session.abort" {
			time.Sleep(time.Second) // of the test's clock: all else goes on meanwhile
		}
		if method != "session.getMessages" {
			return `{}`, nil
		}
		if reading != nil {
			reading(s)
		}
		return `{"events":[` + strings.Join(history, ",") + `]}`, nil
	}}}
	s = onStock(t, &stock{rt: r})
	s.settings.State.Continues = true
	return s, r
}

// had gives the journal an event that the bridge has read of an earlier runtime.
func (s *Session) had(text string, bridge bool) {
	rec, err := event.Parse([]byte(text))
	if err != nil {
		panic(err) // of a test
	}
	s.update(func() {
		s.ingester.Internal = bridge
		s.ingester.take(rec, time.Now())
		s.ingester.Internal = false
	})
}

// told reports whether the agent is told to continue, and nothing else, when the session is loaded.
func (r *recorder) told(t *testing.T, s *Session) bool {
	t.Helper()
	if _, err := s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	for _, prompt := range r.prompts {
		has(t, prompt, continuation)
	}
	return len(r.prompts) == 1
}

// The bridge may end after it has sent a message and before it sees its turn: the agent is told to continue that turn. Of a
// session that was not in use it is not known who has interrupted the turn.
func TestUnseenTurnContinues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known, failed, resumed, elsewhere, aborted, want bool
	}{
		"unseen": {want: true}, "known, and its end was told": {known: true}, "failed": {failed: true},
		"not in use": {resumed: true}, "the journal has another conversation": {elsewhere: true, want: true},
		"a caller has aborted since": {aborted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				events := []string{firstMessage}
				if test.failed {
					events = append(events, `{"type":"session.error","id":"00000000-0000-4000-8000-000000000002","data":{}}`)
				}
				s, r := interrupted(t, nil, events...)
				if test.known {
					s.had(firstMessage, false)
					s.update(func() {
						s.turns.lose(lost)
						s.ingester.Known.Interruption.Last = false
					})
				}
				if test.elsewhere {
					s.had(strings.Replace(firstMessage, "0001", "0009", 1), false)
					s.update(func() {
						s.turns.lose(lost)
						s.ingester.Known.Interruption.Last = false
					})
				}
				if test.aborted {
					if _, err := s.sender.Abort(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				if test.resumed {
					s.loader.state = Disconnected
					if _, err := s.loader.Resume(t.Context(), Opening{}); err != nil {
						t.Fatal(err)
					}
				}
				if told := r.told(t, s); told != test.want {
					t.Errorf("the agent gets %q", r.prompts)
				}
			})
		})
	}
}

// How often the agent was told to continue is not saved at once: the history knows it, too.
func TestHistoryCountsContinuations(t *testing.T) {
	t.Parallel()
	event := func(n int, content string) string {
		return fmt.Sprintf(`{"type":"user.message","id":"00000000-0000-4000-8000-00000000000%d","data":{"messageId":"m%[1]d","content":%q}}`, n, content)
	}
	for name, test := range map[string]struct {
		events []string
		want   bool
	}{
		"as often as it may be": {events: []string{continuationText, continuationText, continuationText}},
		"once less":             {events: []string{"p", continuationText, continuationText}, want: true},
		"not in a row":          {events: []string{continuationText, continuationText, "p", continuationText}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var history []string
				for i, content := range test.events {
					history = append(history, event(i+1, content))
				}
				s, r := interrupted(t, nil, history...)
				if told := r.told(t, s); told != test.want {
					t.Errorf("the agent gets %q", r.prompts)
				}
			})
		})
	}
}

// The agent is told to continue before it gets the prompts that are owed, also if a load that their delivery waits for finds
// the interrupted turn.
func TestContinuationComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testContinuationComesFirst)
}

func testContinuationComesFirst(t *testing.T) {
	r := &recorder{puppet: &puppet{answer: func(method string) (string, error) {
		switch method {
		case "session.getMessages":
			return `{"events":[{"type":"user.message","id":"00000000-0000-4000-8000-000000000001","data":{"messageId":"m0"}}]}`, nil
		case methodSend:
			return `{"messageId":"m2"}`, nil
		}
		return `{}`, nil
	}}}
	s := onStock(t, &stock{rt: r})
	n := acknowledged(t, s, "owed")
	s.prompts.outbox.Owe(n, 0)
	s.update(func() {
		s.settings.State.Continues, s.ingester.Known.Interruption.Last = true, true
		s.prompts.redeliver() // loads the session
	})
	for range 2 {
		synctest.Wait()
		s.play("assistant.turn_start", "")
	}
	synctest.Wait()
	if len(r.prompts) != 2 {
		t.Fatalf("the CLI gets %q", r.prompts)
	}
	has(t, r.prompts[0], continuation)
	has(t, r.prompts[1], "owed")
}

// stalling is a host whose journal has a disk, which writes nothing from the beginning of an epoch until release.
type stalling struct {
	*stock
	disk    faultfs.FS
	release func()
}

// Epoch implements Host.
func (h *stalling) Epoch() uint64 {
	h.release = h.disk.Stall()
	return h.stock.Epoch()
}

// A continuation is not an earlier one, which has the same text, although the journal has just begun a new epoch and has not
// reserved its numbers. No CLI process has answered the continuation, and the history lacks it: it is given again.
func TestContinuationIsNotAnEarlierOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testContinuationIsNotAnEarlierOne)
}

func testContinuationIsNotAnEarlierOne(t *testing.T) {
	earlier := fmt.Sprintf(`{"type":"user.message","id":"00000000-0000-4000-8000-000000000002","data":{"messageId":"m1","content":%q}}`,
		continuationText)
	r := &recorder{puppet: &puppet{answer: func(method string) (string, error) {
		switch method {
		case "session.getMessages":
			return `{"events":[` + firstMessage + `,` + earlier + `]}`, nil
		case methodSend:
			return "", fault.New(fault.RuntimeLost, "the runtime ended")
		}
		return `{}`, nil
	}}}
	h := &stalling{stock: &stock{fixture: &fixture{ctx: t.Context()}, rt: r}, release: func() {}}
	w := journal.NewWriter(journal.WriterConfig{FS: &h.disk})
	defer w.Close()
	log, _, err := journal.OpenDisk("s1", 7, w)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{ID: "s1", Host: h, Epoch: 7, Log: log, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	s.loader.state, s.ingester.Known.HasHistory, s.settings.State.Continues = Unloaded, true, true
	s.had(strings.Replace(firstMessage, "0001", "0009", 1), false) // so that the load begins an epoch
	s.update(func() { s.turns.lose(lost) })
	for range 2 {
		if _, err := s.loader.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.release()
		s.update(func() { s.loader.state = Unloaded })
	}
	if left := s.prompts.outbox.Entries(); len(r.prompts) != 2 || len(left) != 1 || left[0].Deliveries != 2 {
		t.Errorf("the agent is told %d times, and the outbox has %+v", len(r.prompts), left)
	}
}
