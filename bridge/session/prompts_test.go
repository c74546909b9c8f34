package session

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for result, want := range map[string][]string{
		`{"messageId":"a"}`:        {"a"},
		`{"messageIds":["a","b"]}`: {"a", "b"},
		`{}`:                       nil,
		`[]`:                       nil,
	} {
		if got := messageIDs(json.RawMessage(result)); !slices.Equal(got, want) {
			t.Errorf("IDs(%s) = %v, want %v", result, got, want)
		}
	}
}

// The user's text is stored under any member name; secrets beside it are not.
func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	const params = `{"prompt":"my apiKey","attachments":[{"apiKey":"kept"}],"requestHeaders":{"Authorization":"hidden"}}`
	got, lacks := withoutSecrets(json.RawMessage(params))
	if text := string(got); !strings.Contains(text, `"apiKey":"kept"`) || strings.Contains(text, "hidden") || len(lacks) == 0 {
		t.Errorf("on disk is %s, which lacks %v", text, lacks)
	}
}

func TestLostBecause(t *testing.T) {
	t.Parallel()
	unread := errors.New("no history")
	for name, test := range map[string]struct {
		verdict  outbox.Verdict
		unread   error
		obstacle string
		want     string
	}{
		"sent again":     {verdict: outbox.Untaken},
		"the rest of it": {verdict: outbox.Partly},
		"forgotten":      {verdict: outbox.Forgotten, obstacle: "x", want: "before it stored it"},
		"overtaken":      {verdict: outbox.Overtaken, want: "later accepted another"},
		"not read":       {verdict: outbox.Untaken, unread: unread, obstacle: "x", want: "no history"},
		"an obstacle":    {verdict: outbox.Partly, obstacle: "its secrets are gone", want: "its secrets are gone"},
	} {
		if got := lostBecause(test.verdict, test.unread, test.obstacle); got == "" != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// logDisk is a disk of an outbox whose writes wait while it hangs.
type logDisk struct {
	hang chan struct{}
	text []byte
}

func (*logDisk) List() ([]string, error)     { return nil, nil }
func (*logDisk) Read(string) ([]byte, error) { return nil, fs.ErrNotExist }
func (*logDisk) Write(string, []byte) error  { return nil }
func (*logDisk) Remove(string) error         { return nil }
func (d *logDisk) Load() ([]byte, error)     { return d.text, nil }
func (d *logDisk) Save(text []byte) error {
	if d.hang != nil {
		<-d.hang
	}
	d.text = text
	return nil
}

// The next process would send a prompt that an abort has removed, so its caller learns of that when the disk lacks it.
func TestRemovedPromptIsToldOnceStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &logDisk{}
		box, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
		acknowledged(t, s, "p")
		s.update(s.prompts.restore)
		w := s.prompts.Restored("m1")
		disk.hang = make(chan struct{})
		s.update(func() {
			s.turns.carryOut(s.turns.machine.Finish(w, turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_ABORTED}))
		})
		synctest.Wait()
		if w.Over() {
			t.Error("the caller knows what the disk does not")
		}
		close(disk.hang)
		synctest.Wait()
		next, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		if !w.Over() || !next.Empty() {
			t.Errorf("then the caller knows: %v, the disk has %v", w.Over(), next.Entries())
		}
	})
}

// TestForgottenOnASlowDisk: a prompt whose sender has an error leaves the disk, which may hang or fail, and nothing else waits for
// that.
func TestForgottenOnASlowDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &logDisk{}
		box, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := New(Config{ID: "s1", Host: &fixture{ctx: ctx}, Epoch: 7, Outbox: box})
		acknowledged(t, s, "p")
		s.update(s.prompts.restore)
		w := s.prompts.Restored("m1")
		disk.hang = make(chan struct{})
		go s.prompts.forget(w)
		synctest.Wait()
		if !s.mu.TryLock() {
			t.Fatal("the session waits for the disk")
		}
		s.mu.Unlock()
		time.Sleep(time.Minute) // the write has failed by now
		close(disk.hang)
		time.Sleep(time.Minute)
		synctest.Wait()
		if next, err := outbox.Open(disk); err != nil || !next.Empty() {
			t.Errorf("%v; the disk has %v", err, next.Entries())
		}
	})
}

// TestDroppedPromptLeavesTheDisk: a prompt that nobody waits for is gone from the disk at once: the next process would send it.
func TestDroppedPromptLeavesTheDisk(t *testing.T) {
	t.Parallel()
	disk := &logDisk{}
	box, err := outbox.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
	n := acknowledged(t, s, "p")
	if kept, err := outbox.Open(disk); err != nil || kept.Empty() {
		t.Errorf("before the disk has %v, %v", kept.Entries(), err)
	}
	s.prompts.drop(n)
	if next, err := outbox.Open(disk); err != nil || !next.Empty() {
		t.Errorf("then the disk has %v, %v", next.Entries(), err)
	}
}

// TestNothingIsAborted: an abort of prompts whose turns have ended ends nothing.
func TestNothingIsAborted(t *testing.T) {
	t.Parallel()
	s := onStock(t, &stock{rt: &puppet{}})
	n := acknowledged(t, s, "p")
	given := s.prompts.acknowledged()
	s.prompts.drop(n)
	if aborted, err := s.prompts.abort(t.Context(), given, s.prompts.awaitStored); aborted || err != nil {
		t.Errorf("it has ended something: %v, %v", aborted, err)
	}
}

// TestToldLossIsStored: if readers know that a turn was lost, the next process does not wait for its end, and looks for its
// prompt in the history.
func TestToldLossIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &logDisk{}
		box, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
		acknowledged(t, s, "p")
		s.update(s.prompts.restore)
		w := s.prompts.Restored("m1")
		s.update(func() {
			s.turns.machine.AwaitTurn(w)
			s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
		})
		synctest.Wait()
		if !w.Over() {
			t.Error("its caller does not know")
		}
		if box, err = outbox.Open(disk); err != nil || box.Empty() {
			t.Fatalf("the disk has %v, %v", box.Entries(), err)
		}
		next := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
		next.update(next.prompts.restore)
		if next.prompts.Restored("m1") != nil || next.turns.machine.Waiting() {
			t.Error("the next process waits for the end of a turn that was lost")
		}
	})
}

// The bridge's end takes prompts from the disk whose turns have ended and are stored: the next process need not look for them.
func TestCloseForgetsWhatIsOver(t *testing.T) {
	t.Parallel()
	disk := &logDisk{}
	box, err := outbox.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Outbox: box})
	n := acknowledged(t, s, "p")
	box.Retire(n, s.journal.Appended())
	if kept, err := outbox.Open(disk); err != nil || kept.Empty() {
		t.Errorf("before the end the disk has %v, %v", kept.Entries(), err)
	}
	s.prompts.Close()
	if next, err := outbox.Open(disk); err != nil || !next.Empty() {
		t.Errorf("behind the end the disk has %v, %v", next.Entries(), err)
	}
}

// What becomes of a prompt that was owed and whose call has failed: the next load goes on with it, it is owed again, or it is
// lost.
func TestDeliveryFails(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.RuntimeLost, "the runtime ended")
	unsent := fault.Wrap(rpcconn.ErrNotSent, fault.RuntimeLost, "the runtime ended")
	for name, test := range map[string]struct {
		err        error
		deliveries int
		stays      bool // the outbox keeps it
		owed       bool
	}{
		"the CLI may have it":                         {err: lost, deliveries: 1, stays: true},
		"it was not sent":                             {err: unsent, deliveries: 1, stays: true, owed: true},
		"it was not sent for the last time":           {err: unsent, deliveries: outbox.MaxDeliveries},
		"the CLI refuses it":                          {err: fault.New(fault.InvalidField, "no"), deliveries: 1},
		"the session leaves, and the CLI may have it": {err: fault.New(fault.Draining, "soon"), deliveries: 1, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onStock(t, &stock{rt: &puppet{}})
			acknowledged(t, s, "p")
			e := s.prompts.outbox.Entries()[0]
			e.Deliveries = test.deliveries
			err := s.prompts.deliveryFailed(t.Context(), e, test.err)
			if stops := fault.ReasonOf(test.err) == fault.Draining; stops != (err != nil) {
				t.Errorf("the delivery ends with %v", err)
			}
			left := s.prompts.outbox.Entries()
			if stays := len(left) == 1; stays != test.stays || stays && left[0].Owed != test.owed {
				t.Errorf("the outbox has %+v", left)
			}
		})
	}
}

// TestNotesOfPrompts: what readers are told of prompts.
func TestNotesOfPrompts(t *testing.T) {
	t.Parallel()
	s := New(Config{ID: "s1", Host: &fixture{}})
	if n, ok := s.prompts.note(outbox.Note{IDs: []string{"a"}, As: []string{"b"}}).(Resent); !ok || n.IDs[0] != "a" || n.As[0] != "b" {
		t.Errorf("a message that was sent again: %v", n)
	}
	if n, ok := s.prompts.note(outbox.Note{As: []string{"c"}, Continues: 2}).(Continued); !ok || n.MessageID != "c" || n.Attempt != 2 {
		t.Errorf("a continuation: %v", n)
	}
	n, ok := s.prompts.note(outbox.Note{IDs: []string{"a"}, Text: "why"}).(TurnOver)
	if !ok || n.IDs[0] != "a" || fault.ReasonOf(n.Err) != fault.SendUnconfirmed {
		t.Errorf("a lost message: %v", n)
	}
}

// TestFlushedOnce: the outbox is written once for a change, and no goroutine is left that writes it again.
func TestFlushedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		box, err := outbox.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		var running, flushes int
		f := &flusher{
			outbox: box, journal: New(Config{ID: "s1", Host: &fixture{}}).journal, flush: func() { flushes++ },
			start: func(f func(context.Context)) bool {
				running++
				go func() {
					f(t.Context())
					running--
				}()
				return true
			},
		}
		for want := range 2 {
			f.soon()
			f.soon()
			time.Sleep(10 * flushDelay)
			synctest.Wait()
			if running != 0 || flushes != want+1 {
				t.Errorf("%d goroutines are left, the outbox was written %d times, want %d", running, flushes, want+1)
				return
			}
		}
	})
}

// TestMessageWithoutTime: a message that does not say when it was sent may have been sent just now.
func TestMessageWithoutTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	if at := saidBy(&journal.Record{JSON: []byte(`{"data":{}}`)}).At; at.Before(began) {
		t.Errorf("without a time it was sent at %v", at)
	}
	if at := saidBy(&journal.Record{JSON: []byte(`{"timestamp":"2031-01-02T03:04:05Z"}`)}).At; at.Year() != 2031 {
		t.Errorf("it was sent at %v", at)
	}
}

// TestRepeatLoads: only the history shows what has become of a message that waits for the session to be loaded.
func TestRepeatLoads(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Loaded, Unloaded} {
		p := &puppet{answer: func(method string) (string, error) {
			if method == "session.getMessages" {
				return `{"events":[]}`, nil
			}
			return `{}`, nil
		}}
		s := onStock(t, &stock{rt: p})
		s.loader.state = state
		n, _, err := s.prompts.add(outbox.Prompt{Params: []byte(`{"prompt":"p"}`)}, journal.Position{})
		if err != nil {
			t.Fatal(err)
		}
		s.prompts.outbox.Accepted(n, []string{"m1"}, journal.Position{}, func(bool, bool, error) {})
		_, _ = s.sender.Repeat(t.Context(), "m1")
		if p.called("session.resume") != (state == Unloaded) {
			t.Errorf("in state %v the calls are %v", state, p.calls)
		}
	}
}

// TestResentIsStored: when a prompt was sent again, the disk has its new id before its turn ends.
func TestResentIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &logDisk{}
		box, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		p := &puppet{answer: func(method string) (string, error) {
			if method == "session.send" {
				return `{"messageId":"m2"}`, nil
			}
			return `{}`, nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		s := New(Config{ID: "s1", Host: &stock{fixture: &fixture{ctx: ctx}, rt: p}, Epoch: 7, Outbox: box})
		s.loader.runtime, s.loader.state = p, Loaded
		box.Owe(acknowledged(t, s, "p"), 0)
		s.update(s.prompts.redeliver)
		synctest.Wait()
		next, err := outbox.Open(disk)
		if err != nil || next.MovedTo("m1") != "m2" {
			t.Errorf("%v; the message moved to %q", err, next.MovedTo("m1"))
		}
		stop()
	})
}

// TestAbortAmidADelivery: a caller aborts while a prompt is being sent to a runtime that has ended. No event ends the prompt then.
func TestAbortAmidADelivery(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.RuntimeLost, "the runtime ended")
	for name, test := range map[string]struct {
		err   error
		late  bool // the call has failed before
		begun bool // the CLI has taken it up
		stops bool
	}{
		"the CLI may have it":              {err: lost},
		"the CLI may have it, and is gone": {err: lost, late: true},
		"it was not sent":                  {err: fault.Wrap(rpcconn.ErrNotSent, fault.RuntimeLost, "the runtime ended")},
		"the CLI refuses it":               {err: fault.New(fault.InvalidField, "no")},
		"the session leaves":               {err: fault.New(fault.Draining, "soon"), stops: true},
		"the CLI took it up":               {err: lost, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onStock(t, &stock{rt: &puppet{}})
			n := acknowledged(t, s, "p")
			s.update(s.prompts.restore)
			w := s.prompts.Restored("m1")
			s.prompts.outbox.Owe(n, 0)
			e, ok, err := s.prompts.beginRedelivery(t.Context())
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			s.update(func() {
				s.prompts.reset(e)
				if test.begun {
					s.turns.machine.AwaitTurn(w)
				}
				if test.late {
					s.prompts.undelivered(&e)
				}
			})
			if aborted, err := s.prompts.abort(t.Context(), s.prompts.acknowledged(), s.prompts.awaitStored); !aborted || err != nil {
				t.Error("nothing was aborted", err)
			}
			if !test.late {
				s.update(func() { s.prompts.undelivered(&e) })
			}
			if err := s.prompts.deliveryFailed(t.Context(), e, test.err); test.stops != (err != nil) {
				t.Errorf("the delivery ends with %v", err)
			}
			if w.Over() == test.begun || w.Over() && w.Outcome().Status != bridgev1.TurnStatus_TURN_STATUS_ABORTED {
				t.Errorf("it is over: %v, the outcome is %v", w.Over(), w.Outcome())
			}
			if left := s.prompts.outbox.Entries(); len(left) > 0 {
				t.Errorf("the outbox has %v", left)
			}
			if _, isLost := s.prompts.outbox.LostBecause("m1"); isLost {
				t.Error("it is told as lost")
			}
		})
	}
}

// TestResentWithoutAReply: a prompt was sent again, and the process ended before it replied. If the history has the prompt, it is known
// by its new id.
func TestResentWithoutAReply(t *testing.T) {
	t.Parallel()
	s := onStock(t, &stock{rt: &puppet{}})
	q := s.prompts
	q.outbox.Owe(acknowledged(t, s, "p"), 0)
	if _, ok, err := q.outbox.BeginRedelivery(journal.Position{}, time.Now(), false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	message := saidBy(&journal.Record{JSON: []byte(`{"data":{"messageId":"m2","content":"p"}}`)})
	message.History = true
	entries := q.outbox.Entries()
	q.resolve(t.Context(), fates{
		entries: entries, decisions: outbox.Decide(entries, []outbox.Said{message}), outcomes: make([]turn.Outcome, 1),
	})
	if to := q.outbox.MovedTo("m1"); to != "m2" || !q.outbox.Empty() {
		t.Errorf("the message moved to %q, the outbox has %v", to, q.outbox.Entries())
	}
}
