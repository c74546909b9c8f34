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

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// storyteller is a CLI process whose replies a test gives, and the host of the session that it has.
type storyteller struct {
	puppet
	fixture
	s *Session
	// replies are the results by method. onCall, if set, runs before each reply.
	replies map[string]string
	onCall  func(method string)
	saved   int
}

func newStoryteller() *storyteller {
	f := &storyteller{replies: map[string]string{}}
	f.ctx = context.Background()
	f.s = New(Config{ID: "s1", Host: f, Epoch: 7, MaxEphemeralBytes: 1 << 30,
		Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	f.s.loader.runtime, f.s.loader.state = f, Loaded
	f.s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
	return f
}

// MarkDirty implements Host.
func (f *storyteller) MarkDirty() { f.saved++ }

// Call implements Runtime. A method without a reply is unknown to the CLI.
func (f *storyteller) Call(_ context.Context, method string, text []byte, _ ...rpcconn.CallOption) (json.RawMessage, error) {
	if f.onCall != nil {
		f.onCall(method)
	}
	params, _ := jsonobj.Parse(text)
	reply, ok := f.replies[method+" "+params.String("cursor")]
	if !ok {
		reply, ok = f.replies[method]
	}
	if !ok {
		return nil, &rpcconn.Error{Code: -32601, Message: "Unhandled method " + method}
	}
	return json.RawMessage(reply), nil
}

// idOf is the id of the nth event.
func idOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// textOf is an event with a number.
func textOf(n int, kind, data string) string {
	return fmt.Sprintf(`{"type":%q,"id":%q,"timestamp":"2031-06-01T00:%02d:%02d.000Z","data":%s}`, kind, idOf(n), n/60, n%60, data)
}

// said is a message of the user.
func said(n int) string { return textOf(n, "user.message", fmt.Sprintf(`{"content":"m%d"}`, n)) }

// takes has the session receive live events.
func (f *storyteller) takes(t interface{ Fatal(...any) }, texts ...string) {
	for _, text := range texts {
		rec, err := event.Parse(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		f.s.Ingest(rec, time.Now())
	}
}

// has sets the CLI's history.
func (f *storyteller) has(texts ...string) {
	events := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		events[i] = json.RawMessage(text)
	}
	reply, _ := json.Marshal(map[string]any{"events": events}) // JSON values always encode
	f.replies["session.getMessages"] = string(reply)
}

// ids returns the ids of the journal's events, in order.
func (f *storyteller) ids() (ids []string) {
	f.s.journal.Each(func(rec *journal.Record) bool {
		var e struct{ ID string }
		if rec.Note == nil && json.Unmarshal(rec.JSON, &e) == nil {
			ids = append(ids, e.ID)
		}
		return true
	})
	return ids
}

// pending returns the ids of the pending callbacks.
func (f *storyteller) pending() []string {
	var ids []string
	for _, p := range f.s.callbacks.Registry().List() {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

func idsOf(numbers ...int) (ids []string) {
	for _, n := range numbers {
		ids = append(ids, idOf(n))
	}
	return ids
}

func permission(n int, id string) string {
	return textOf(n, callback.PermissionRequested, fmt.Sprintf(`{"requestId":%q,"permissionRequest":{"toolCallId":"call-%s"}}`, id, id))
}

func permitted(n int, id string) string {
	return textOf(n, "permission.completed", fmt.Sprintf(`{"requestId":%q}`, id))
}

func toolEnded(n int, call string) string {
	return textOf(n, "tool.execution_complete", fmt.Sprintf(`{"toolCallId":%q}`, call))
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		live, history []string
		want          []string
		epoch         uint64
	}{
		"an empty journal takes all": {history: []string{said(1), said(2)}, want: idsOf(1, 2), epoch: 7},
		"the same":                   {live: []string{said(1), said(2)}, history: []string{said(1), said(2)}, want: idsOf(1, 2), epoch: 7},
		"the journal lacks the end":  {live: []string{said(1)}, history: []string{said(1), said(2)}, want: idsOf(1, 2), epoch: 7},
		"the history lacks the end":  {live: []string{said(1), said(2)}, history: []string{said(1)}, want: idsOf(1, 2), epoch: 7},
		"the journal has a hole": {live: []string{said(1), said(3)}, history: []string{said(1), said(2), said(3)},
			want: idsOf(1, 2, 3), epoch: 8},
		"the history lost a message": {live: []string{said(1), said(2), said(3)}, history: []string{said(1), said(3)},
			want: idsOf(1, 2, 3), epoch: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			f.takes(t, test.live...)
			f.has(test.history...)
			for load := range 2 {
				if _, err := f.s.reconciler.history(t.Context(), f, false); err != nil {
					t.Fatal(err)
				}
				if got := f.ids(); !slices.Equal(got, test.want) {
					t.Errorf("load %d: the journal has %v, want %v", load, got, test.want)
				}
				if last := f.s.journal.Last(); last.Epoch != test.epoch || f.s.ingester.Known.TurnEnd != last {
					t.Errorf("load %d: the journal is at %v, want epoch %d; the last turn ended at %v", load, last, test.epoch, f.s.ingester.Known.TurnEnd)
				}
			}
			if f.s.turns.Running() {
				t.Error("a turn of the history runs")
			}
			if f.saved == 0 {
				t.Error("the session is not marked for a save")
			}
		})
	}
}

// TestHistoryOfSeveralFiles: session.getMessages has the newest file of the CLI's record. The journal gets the events
// of all files, once, and keeps its epoch.
func TestHistoryOfSeveralFiles(t *testing.T) {
	t.Parallel()
	link := textOf(3, "session.journal_link", `{"previousFile":"events.1.jsonl","sessionId":"s1","version":1}`)
	summary := `{"checkpoint":true,` + said(9)[1:]
	page := func(more bool, texts ...string) string {
		return fmt.Sprintf(`{"events":[%s],"cursor":"next","cursorStatus":"ok","hasMore":%v}`, strings.Join(texts, ","), more)
	}
	for name, test := range map[string]struct {
		live          []string
		first, second string
		want          []string
		reason        fault.Reason
	}{
		"an empty journal": {first: page(true, said(1), said(2)), second: page(false, said(4)), want: idsOf(1, 2, 4)},
		"the same": {live: []string{said(1), said(2), said(4)}, first: page(true, said(1), said(2)),
			second: page(false, said(4)), want: idsOf(1, 2, 4)},
		"the journal lacks the end": {live: []string{said(1), said(2)}, first: page(true, said(1), said(2), link),
			second: page(false, said(4)), want: idsOf(1, 2, 3, 4)},
		"changed meanwhile": {live: []string{said(1)}, first: page(true, said(1)),
			second: `{"events":[],"cursorStatus":"expired"}`, want: idsOf(1), reason: fault.CLIProtocolError},
		"without an end": {live: []string{said(1)}, first: page(true), want: idsOf(1), reason: fault.CLIProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			f.takes(t, test.live...)
			f.has(link, summary, said(4))
			f.replies["session.eventLog.read"], f.replies["session.eventLog.read next"] = test.first, test.second
			for load := range 2 {
				if _, err := f.s.reconciler.history(t.Context(), f, false); fault.ReasonOf(err) != test.reason {
					t.Fatal(err)
				}
				if got := f.ids(); !slices.Equal(got, test.want) || f.s.journal.Last().Epoch != 7 {
					t.Errorf("load %d: the journal has %v in epoch %d, want %v", load, got, f.s.journal.Last().Epoch, test.want)
				}
			}
		})
	}
}

// TestHistoryProperty: for any journal and history of the same conversation, a load adds the events of the
// history to the journal and loses none, the events of the history keep their order, and a second load changes
// nothing.
func TestHistoryProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := newStoryteller()
		part := func(label string) (numbers []int, texts []string) {
			for n := range 12 {
				if rapid.IntRange(0, 3).Draw(rt, label) > 0 {
					numbers, texts = append(numbers, n), append(texts, said(n))
				}
			}
			return numbers, texts
		}
		live, liveTexts := part("live")
		stored, storedTexts := part("stored")
		f.takes(rt, liveTexts...)
		f.has(storedTexts...)
		var first []string
		for load := range 2 {
			if _, err := f.s.reconciler.history(context.Background(), f, true); err != nil {
				rt.Fatal(err)
			}
			got := f.ids()
			for _, id := range idsOf(append(slices.Clone(live), stored...)...) {
				if !slices.Contains(got, id) {
					rt.Fatalf("load %d: the journal lost %s: %v", load, id, got)
				}
			}
			want := idsOf(stored...)
			both := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(want, id) })
			if !slices.Equal(both, want) {
				rt.Fatalf("load %d: the journal has the history as %v, want %v", load, both, want)
			}
			epoch := f.s.journal.Last().Epoch
			if load == 1 && (!slices.Equal(got, first) || epoch != 7+f.epoch.Load() || f.s.journal.Last() != f.s.ingester.Known.TurnEnd) {
				rt.Fatalf("the second load changed %v to %v, in epoch %d of %d", first, got, epoch, 7+f.epoch.Load())
			}
			first = got
		}
		if f.epoch.Load() > 1 {
			rt.Fatalf("two loads began %d epochs", f.epoch.Load())
		}
	})
}

// Requests without an answer in the history become pending when the session continues them.
func TestHistoryPending(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		live, history []string
		discard       bool
		want          []string
	}{
		"not answered":           {history: []string{permission(1, "a"), permission(2, "b")}, want: []string{"a", "b"}},
		"answered":               {history: []string{permission(1, "a"), permitted(2, "a")}},
		"its tool ended":         {history: []string{permission(1, "a"), toolEnded(2, "call-a")}},
		"not continued":          {history: []string{permission(1, "a")}, discard: true},
		"pending and answered":   {live: []string{permission(1, "a")}, history: []string{permission(1, "a"), permitted(2, "a")}},
		"pending, its tool done": {live: []string{permission(1, "a")}, history: []string{permission(1, "a"), toolEnded(2, "call-a")}},
		"pending, another's end": {live: []string{permission(1, "a")}, history: []string{permission(1, "a"), permitted(2, "b")}, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			f.takes(t, test.live...)
			f.has(test.history...)
			if _, err := f.s.reconciler.history(t.Context(), f, !test.discard); err != nil {
				t.Fatal(err)
			}
			if got := f.pending(); !slices.Equal(got, test.want) {
				t.Errorf("pending are %v, want %v", got, test.want)
			}
		})
	}
}

// Events that arrive while the history is read keep their order behind the events of the history.
func TestHistoryBeforeLiveEvents(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.takes(t, said(1))
	f.s.mu.Lock()
	f.s.ingester.hold()
	f.s.mu.Unlock()
	f.takes(t, said(3), said(4))
	f.has(said(1), said(2), said(3))
	if _, err := f.s.reconciler.history(t.Context(), f, true); err != nil {
		t.Fatal(err)
	}
	f.s.mu.Lock()
	f.s.ingester.release()
	f.s.mu.Unlock()
	if got, want := f.ids(), idsOf(1, 2, 3, 4); !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
	if end := f.s.ingester.Known.End; end.Seq != 2 {
		t.Errorf("the history of the resume ends at %v, want 2", end)
	}
}

func TestHistoryErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply string
		want  fault.Reason
	}{
		"no reply":  {"", fault.MethodUnknown},
		"malformed": {"[]", fault.CLIProtocolError},
	} {
		f := newStoryteller()
		if test.reply != "" {
			f.replies["session.getMessages"] = test.reply
		}
		if _, err := f.s.reconciler.history(t.Context(), f, true); fault.ReasonOf(err) != test.want {
			t.Errorf("%s: the error is %v, want %v", name, err, test.want)
		}
	}
}

// lists sets what the CLI waits for.
func (f *storyteller) lists(ids ...string) {
	type item struct {
		RequestID string `json:"requestId"`
	}
	items := []item{}
	for _, id := range ids {
		items = append(items, item{id})
	}
	reply, _ := json.Marshal(map[string]any{"items": items}) // strings always encode
	f.replies["session.permissions.pendingRequests"] = string(reply)
}

// silent is a CLI process whose calls fail.
type silent struct{ Runtime }

var errBroken = errors.New("broken")

func (silent) Call(context.Context, string, []byte, ...rpcconn.CallOption) (json.RawMessage, error) {
	return nil, errBroken
}

func TestBeginAnew(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.s.reconciler.beginAnew(t.Context())()
	if f.epoch.Load() != 0 {
		t.Errorf("an empty journal begins epoch %d", 7+f.epoch.Load())
	}
	f.takes(t, said(1), said(2))
	f.s.reconciler.beginAnew(t.Context())()
	if last := f.s.journal.Last(); last.Epoch != 8 || !slices.Equal(f.ids(), idsOf(1, 2)) {
		t.Errorf("the journal is at %v with %v", last, f.ids())
	}
}

// Events that come while the history is read, and are in it, count although the journal begins an epoch: a turn can go on and
// end within a load.
func TestEventsDuringALoadThatBeginsAnEpoch(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.takes(t, said(1), said(3))
	f.s.update(func() { f.s.turns.carryOut(f.s.turns.machine.LosePast(f.s.journal.Last())) })
	f.has(said(1), said(2), said(3), said(4))
	f.s.ingester.hold()
	f.takes(t, said(4))
	if _, err := f.s.reconciler.history(t.Context(), f, false); err != nil {
		t.Fatal(err)
	}
	f.s.update(f.s.ingester.release)
	if epoch := f.s.journal.Last().Epoch; epoch != 8 || !slices.Equal(f.ids(), idsOf(1, 2, 3, 4)) {
		t.Errorf("the journal has %v in epoch %d", f.ids(), epoch)
	}
	if !f.s.turns.Running() {
		t.Error("the turn of a message that came meanwhile does not run")
	}
}

// A journal whose disk has not reserved a number yet is not empty: a history that contradicts it begins an epoch.
func TestHistoryOnASlowDisk(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(t *testing.T, f *storyteller){
		"a history": func(t *testing.T, f *storyteller) {
			if _, err := f.s.reconciler.history(t.Context(), f, false); err != nil {
				t.Fatal(err)
			}
		},
		"none": func(t *testing.T, f *storyteller) { f.s.reconciler.beginAnew(t.Context())() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fs := &faultfs.FS{}
				release := fs.Stall()
				w := journal.NewWriter(journal.WriterConfig{FS: fs})
				log, _, err := journal.OpenDisk("s1", 7, w)
				if err != nil {
					t.Fatal(err)
				}
				f := newStoryteller()
				f.s = New(Config{ID: "s1", Host: f, Epoch: 7, Log: log, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
				f.takes(t, said(1), said(3))
				f.has(said(1), said(2), said(3))
				load(t, f)
				if epoch := f.s.journal.Last().Epoch; epoch != 8 {
					t.Errorf("the journal has %v in epoch %d", f.ids(), epoch)
				}
				release()
				if err := f.s.journal.Close(t.Context()); err != nil {
					t.Error(err)
				}
				w.Close()
			})
		})
	}
}

// TestUnseenIsForgottenOnce: that an abort leaves an unseen turn counts for the next load alone.
func TestUnseenIsForgottenOnce(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.has(said(1))
	f.s.prompts.leavesUnseen = true
	if _, err := f.s.reconciler.history(t.Context(), f, false); err != nil {
		t.Fatal(err)
	}
	if f.s.loader.loadedIn(f); f.s.prompts.leavesUnseen {
		t.Error("it counts again")
	}
}

// TestOutcomeOfOneMessage: the event before a message is not of its turn.
func TestOutcomeOfOneMessage(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.takes(t, said(1), textOf(2, "assistant.turn_end", `{"turnId":"0"}`), textOf(3, "session.error", `{"errorType":"query","message":"no"}`),
		said(4), textOf(5, "assistant.turn_start", `{"turnId":"0"}`), textOf(6, "assistant.message", `{"content":"yes","toolRequests":[]}`),
		textOf(7, "assistant.turn_end", `{"turnId":"0"}`), textOf(8, "session.idle", `{}`))
	at, ok := f.s.journal.Lookup(journal.ParseID([]byte(idOf(4))))
	if !ok {
		t.Fatal("the message is not in the journal")
	}
	if out := f.s.turns.OutcomeOf(t.Context(), at); out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the outcome is %v", out.Status)
	}
}

// TestEndOfATurnIsKept: the session remembers where its last turn ended.
func TestEndOfATurnIsKept(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.takes(t, said(1), textOf(2, "assistant.turn_start", `{"turnId":"0"}`), textOf(3, "assistant.message", `{"content":"yes","toolRequests":[]}`),
		textOf(4, "assistant.turn_end", `{"turnId":"0"}`), textOf(5, "session.idle", `{}`))
	if at := f.s.ingester.Known.TurnEnd; at.Seq == 0 || f.s.journal.Last().Before(at) {
		t.Errorf("the turn ended at %v, the journal at %v", at, f.s.journal.Last())
	}
}

// TestAbortedInANewEpoch: what a position of an earlier epoch says is nothing about the events of this one.
func TestAbortedInANewEpoch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reconciled journal.Position
		want       bool
	}{
		{journal.Position{}, true}, {journal.Position{Epoch: 6, Seq: 100}, true}, {journal.Position{Epoch: 7, Seq: 2}, false},
	} {
		f := newStoryteller()
		f.s.settings.State.Continues = true
		f.takes(t, said(1), textOf(2, "abort", `{"reason":"user_initiated"}`))
		f.s.ingester.Known.ReconciledTo = tc.reconciled
		if got := f.s.reconciler.aborted(t.Context()); got != tc.want {
			t.Errorf("reconciled to %v, aborted is %v", tc.reconciled, got)
		}
	}
}
