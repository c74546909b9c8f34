package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/ingest"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
)

// fixture is a session with the parts that a Reconciler uses, and the CLI process that has the session. It is
// the Tx of the parts.
type fixture struct {
	sync.Mutex
	*Reconciler
	journal   *journal.Journal
	intake    *ingest.Intake
	turns     *turns.Turns
	callbacks *callbacks.Desk
	epoch     uint64
	saved     int
	// replies are the CLI's results by method. onCall, if set, runs before each reply.
	replies map[string]string
	onCall  func(method string)
	gone    bool
}

func newFixture() *fixture {
	f := &fixture{epoch: 7, replies: map[string]string{}}
	logger := func() *slog.Logger { return slog.New(slog.DiscardHandler) }
	f.journal = journal.New(journal.Config{Epoch: f.epoch, MaxEphemeralBytes: 1 << 30,
		Encode: func(*journal.Record, journal.Form) []byte { return nil }})
	f.callbacks = callbacks.New(callbacks.Config{Session: "s1", Journal: f.journal, Observer: observe.Silent(), Logger: logger})
	queue := prompts.New(prompts.Config{Session: "s1", Journal: f.journal, Logger: logger})
	f.turns = turns.New(turns.Config{
		Session: "s1", Lock: f, Tx: f, Journal: f.journal, Callbacks: f.callbacks, Prompts: queue, Observer: observe.Silent(),
		Reason: func(string) (fault.Reason, string) { return 0, "" },
	})
	f.intake = ingest.New(ingest.Config{
		Session: "s1", Tx: f, Journal: f.journal, Turn: f.turns.Machine(), Callbacks: f.callbacks, Logger: logger,
	}, time.Now())
	f.Reconciler = New(Config{
		Session: "s1", Lock: f, Tx: f, Journal: f.journal, Intake: f.intake, Turns: f.turns, Prompts: queue,
		Callbacks: f.callbacks, Logger: logger,
		Epoch: func() uint64 { f.epoch++; return f.epoch },
	})
	return f
}

func (f *fixture) Handlers(*callback.Pending) ([]string, bool) { return nil, true }
func (f *fixture) Covers(*callback.Pending) bool               { return true }
func (f *fixture) HookOrder(string) ([]string, bool)           { return nil, false }
func (f *fixture) TellAsked([]string)                          {}
func (f *fixture) NameOf(string) string                        { return "" }
func (f *fixture) Reading() bool                               { return f.intake.Holding() }
func (f *fixture) Timeout() time.Duration                      { return time.Hour }
func (f *fixture) Span() *observe.Span                         { return nil }
func (f *fixture) MarkDirty()                                  { f.saved++ }
func (f *fixture) Turn() *turn.Machine                         { return f.turns.Machine() }
func (f *fixture) CarryOut(effects []turn.Effect)              { f.turns.CarryOut(effects) }
func (f *fixture) EndTurn(out turn.Outcome)                    { f.turns.End(out) }
func (f *fixture) MarkTurnEnd(at journal.Position)             { f.intake.Marks.TurnEnd = at }
func (f *fixture) Loaded() bool                                { return !f.gone }
func (f *fixture) Interruption() *turn.Interruption            { return &f.intake.Marks.Interruption }
func (f *fixture) Marks() *history.Marks                       { return &f.intake.Marks }
func (f *fixture) Approve([]config.Setting)                    {}
func (f *fixture) Announce()                                   {}
func (f *fixture) Continues() bool                             { return false }
func (f *fixture) Post(note any, at journal.Position) journal.Position {
	return f.journal.Post(note, at)
}

// Current implements Runtime.
func (f *fixture) Current() bool { return !f.gone }

// Call implements Runtime. A method without a reply is unknown to the CLI.
func (f *fixture) Call(_ context.Context, method string, params jsonobj.Object) (json.RawMessage, error) {
	if f.onCall != nil {
		f.onCall(method)
	}
	reply, ok := f.replies[method+" "+params.String("cursor")]
	if !ok {
		reply, ok = f.replies[method]
	}
	if !ok {
		return nil, fault.New(fault.MethodUnknown, "no method %q", method)
	}
	return json.RawMessage(reply), nil
}

// idOf is the id of the nth event.
func idOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// textOf is an event with a number.
func textOf(n int, kind, data string) string {
	return fmt.Sprintf(`{"type":%q,"id":%q,"timestamp":"2031-06-01T00:%02d:%02d.000Z","data":%s}`, kind, idOf(n), n/60, n%60, data)
}

// message is a message of the user.
func message(n int) string { return textOf(n, "user.message", fmt.Sprintf(`{"content":"m%d"}`, n)) }

// takes has the session receive live events.
func (f *fixture) takes(t interface{ Fatal(...any) }, texts ...string) {
	f.Lock()
	defer f.Unlock()
	for _, text := range texts {
		rec, err := event.Parse(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		f.intake.Take(rec, time.Now())
	}
}

// has sets the CLI's history.
func (f *fixture) has(texts ...string) {
	events := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		events[i] = json.RawMessage(text)
	}
	reply, _ := json.Marshal(map[string]any{"events": events}) // JSON values always encode
	f.replies["session.getMessages"] = string(reply)
}

// ids returns the ids of the journal's events, in order.
func (f *fixture) ids() (ids []string) {
	f.journal.Each(func(rec *journal.Record) bool {
		var e struct{ ID string }
		if rec.Note == nil && json.Unmarshal(rec.JSON, &e) == nil {
			ids = append(ids, e.ID)
		}
		return true
	})
	return ids
}

// pending returns the ids of the pending callbacks.
func (f *fixture) pending() []string {
	var ids []string
	for _, p := range f.callbacks.Registry().List() {
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
		"an empty journal takes all": {history: []string{message(1), message(2)}, want: idsOf(1, 2), epoch: 7},
		"the same":                   {live: []string{message(1), message(2)}, history: []string{message(1), message(2)}, want: idsOf(1, 2), epoch: 7},
		"the journal lacks the end":  {live: []string{message(1)}, history: []string{message(1), message(2)}, want: idsOf(1, 2), epoch: 7},
		"the history lacks the end":  {live: []string{message(1), message(2)}, history: []string{message(1)}, want: idsOf(1, 2), epoch: 7},
		"the journal has a hole": {live: []string{message(1), message(3)}, history: []string{message(1), message(2), message(3)},
			want: idsOf(1, 2, 3), epoch: 8},
		"the history lost a message": {live: []string{message(1), message(2), message(3)}, history: []string{message(1), message(3)},
			want: idsOf(1, 2, 3), epoch: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.takes(t, test.live...)
			f.has(test.history...)
			for load := range 2 {
				if err := f.History(t.Context(), f, false); err != nil {
					t.Fatal(err)
				}
				if got := f.ids(); !slices.Equal(got, test.want) {
					t.Errorf("load %d: the journal has %v, want %v", load, got, test.want)
				}
				if last := f.journal.Last(); last.Epoch != test.epoch || f.intake.Marks.TurnEnd != last {
					t.Errorf("load %d: the journal is at %v, want epoch %d; the last turn ended at %v", load, last, test.epoch, f.intake.Marks.TurnEnd)
				}
			}
			if f.turns.Running() {
				t.Error("a turn of the history runs")
			}
			if f.saved == 0 {
				t.Error("the session is not marked for a save")
			}
		})
	}
}

// TestHistoryProperty: for any journal and history of the same conversation, a load adds the events of the
// history to the journal and loses none, the events of the history keep their order, and a second load changes
// nothing.
// TestHistoryOfSeveralFiles: session.getMessages has the newest file of the CLI's record. The journal gets the events
// of all files, once, and keeps its epoch.
func TestHistoryOfSeveralFiles(t *testing.T) {
	t.Parallel()
	link := textOf(3, "session.journal_link", `{"previousFile":"events.1.jsonl","sessionId":"s1","version":1}`)
	summary := `{"checkpoint":true,` + message(9)[1:]
	page := func(more bool, texts ...string) string {
		return fmt.Sprintf(`{"events":[%s],"cursor":"next","cursorStatus":"ok","hasMore":%v}`, strings.Join(texts, ","), more)
	}
	for name, test := range map[string]struct {
		live          []string
		first, second string
		want          []string
		reason        fault.Reason
	}{
		"an empty journal": {first: page(true, message(1), message(2)), second: page(false, message(4)), want: idsOf(1, 2, 4)},
		"the same": {live: []string{message(1), message(2), message(4)}, first: page(true, message(1), message(2)),
			second: page(false, message(4)), want: idsOf(1, 2, 4)},
		"the journal lacks the end": {live: []string{message(1), message(2)}, first: page(true, message(1), message(2), link),
			second: page(false, message(4)), want: idsOf(1, 2, 3, 4)},
		"changed meanwhile": {live: []string{message(1)}, first: page(true, message(1)),
			second: `{"events":[],"cursorStatus":"expired"}`, want: idsOf(1), reason: fault.CLIProtocolError},
		"without an end": {live: []string{message(1)}, first: page(true), want: idsOf(1), reason: fault.CLIProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.takes(t, test.live...)
			f.has(link, summary, message(4))
			f.replies["session.eventLog.read"], f.replies["session.eventLog.read next"] = test.first, test.second
			for load := range 2 {
				if err := f.History(t.Context(), f, false); fault.ReasonOf(err) != test.reason {
					t.Fatal(err)
				}
				if got := f.ids(); !slices.Equal(got, test.want) || f.journal.Last().Epoch != 7 {
					t.Errorf("load %d: the journal has %v in epoch %d, want %v", load, got, f.journal.Last().Epoch, test.want)
				}
			}
		})
	}
}

func TestHistoryProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture()
		part := func(label string) (numbers []int, texts []string) {
			for n := range 12 {
				if rapid.IntRange(0, 3).Draw(rt, label) > 0 {
					numbers, texts = append(numbers, n), append(texts, message(n))
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
			if err := f.History(context.Background(), f, true); err != nil {
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
			epoch := f.journal.Last().Epoch
			if load == 1 && (!slices.Equal(got, first) || epoch != f.epoch || f.journal.Last() != f.intake.Marks.TurnEnd) {
				rt.Fatalf("the second load changed %v to %v, in epoch %d of %d", first, got, epoch, f.epoch)
			}
			first = got
		}
		if f.epoch > 8 {
			rt.Fatalf("two loads began %d epochs", f.epoch-7)
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
			f := newFixture()
			f.takes(t, test.live...)
			f.has(test.history...)
			if err := f.History(t.Context(), f, !test.discard); err != nil {
				t.Fatal(err)
			}
			if got := f.pending(); !slices.Equal(got, test.want) {
				t.Errorf("pending are %v, want %v", got, test.want)
			}
		})
	}
}

// Events that arrive while the history is read keep their order behind the events of the history.
func TestHistoryAndLiveEvents(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.takes(t, message(1))
	f.Lock()
	f.intake.Hold()
	f.Unlock()
	f.takes(t, message(3), message(4))
	f.has(message(1), message(2), message(3))
	if err := f.History(t.Context(), f, true); err != nil {
		t.Fatal(err)
	}
	f.Lock()
	f.intake.Release()
	f.Unlock()
	if got, want := f.ids(), idsOf(1, 2, 3, 4); !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
	if end := f.intake.Marks.End; end.Seq != 2 {
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
		f := newFixture()
		if test.reply != "" {
			f.replies["session.getMessages"] = test.reply
		}
		if err := f.History(t.Context(), f, true); fault.ReasonOf(err) != test.want {
			t.Errorf("%s: the error is %v, want %v", name, err, test.want)
		}
	}
}

// lists sets what the CLI waits for.
func (f *fixture) lists(ids ...string) {
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

func TestPending(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		live    []string
		waiting []string
		gone    bool
		// during runs while the CLI makes its list of permissions.
		during  func(t *testing.T, f *fixture)
		want    []string
		changed bool
	}{
		"nothing":                        {},
		"the same":                       {live: []string{permission(1, "a")}, waiting: []string{"a"}, want: []string{"a"}},
		"the CLI does not wait":          {live: []string{permission(1, "a"), permission(2, "b")}, waiting: []string{"b"}, want: []string{"b"}, changed: true},
		"the CLI waits for an ended one": {live: []string{permission(1, "a"), permitted(2, "a")}, waiting: []string{"a"}, want: []string{"a"}, changed: true},
		"the journal does not have it":   {waiting: []string{"x"}},
		"the process is gone":            {live: []string{permission(1, "a"), permitted(2, "a")}, waiting: []string{"a"}, gone: true},
		"asked meanwhile": {waiting: []string{"a"}, want: []string{"a"}, during: func(t *testing.T, f *fixture) {
			f.takes(t, permission(1, "a"))
		}},
		"asked behind the list": {want: []string{"a"}, during: func(t *testing.T, f *fixture) {
			f.takes(t, permission(1, "a"))
		}},
		"asked and answered meanwhile": {waiting: []string{"a"}, during: func(t *testing.T, f *fixture) {
			f.takes(t, permission(1, "a"), permitted(2, "a"))
		}},
		"answered meanwhile": {live: []string{permission(1, "a")}, waiting: []string{"a"}, during: func(t *testing.T, f *fixture) {
			f.takes(t, permitted(2, "a"))
		}},
		"an answer is on its way": {live: []string{permission(1, "a")}, want: []string{"a"}, during: func(t *testing.T, f *fixture) {
			if _, err := f.callbacks.Registry().Claim("a"); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.takes(t, test.live...)
			f.lists(test.waiting...)
			f.gone = test.gone
			f.onCall = func(method string) {
				if test.during != nil && method == pendingLists[callback.PermissionRequested] {
					test.during(t, f)
				}
			}
			changed, err := f.Pending(t.Context(), f)
			if err != nil || changed != test.changed {
				t.Errorf("changed: %t, %v; want %t", changed, err, test.changed)
			}
			if got := f.pending(); !slices.Equal(got, test.want) {
				t.Errorf("pending are %v, want %v", got, test.want)
			}
		})
	}
}

// failing is a CLI process whose calls fail.
type failing struct{ *fixture }

var errBroken = errors.New("broken")

func (failing) Call(context.Context, string, jsonobj.Object) (json.RawMessage, error) {
	return nil, errBroken
}

func TestPendingErrors(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.replies["session.permissions.pendingRequests"] = `[]`
	if _, err := f.Pending(t.Context(), f); fault.ReasonOf(err) != fault.CLIProtocolError {
		t.Errorf("for a malformed list the error is %v", err)
	}
	if _, err := f.Pending(t.Context(), failing{f}); !errors.Is(err, errBroken) {
		t.Errorf("for a call that fails the error is %v", err)
	}
}

func TestBeginAnew(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.BeginAnew(t.Context())()
	if f.epoch != 7 {
		t.Errorf("an empty journal begins epoch %d", f.epoch)
	}
	f.takes(t, message(1), message(2))
	f.BeginAnew(t.Context())()
	if last := f.journal.Last(); last.Epoch != 8 || !slices.Equal(f.ids(), idsOf(1, 2)) {
		t.Errorf("the journal is at %v with %v", last, f.ids())
	}
}
