package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// given is a prompt of the table: its text, the CLI's ids, and what changes.
func given(text string, ids []string, change ...func(*Entry)) Entry {
	e := Entry{IDs: ids, Before: journal.Position{Epoch: 1, Seq: 10}, GivenAt: noon, Deliveries: 1}
	e.prompt.Params, _ = json.Marshal(map[string]string{"prompt": text})
	for _, c := range change {
		c(&e)
	}
	e.messages = MessagesOf(e.prompt)
	return e
}

func method(name, params string) func(*Entry) {
	return func(e *Entry) { e.prompt.Method, e.prompt.Params = name, json.RawMessage(params) }
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func immediate(e *Entry) { e.prompt.Immediate = true }

func continues(e *Entry) { e.prompt.Continues = 1 }

// at is a message that the journal has, and the history unless it says otherwise.
func at(seq uint64, id, text string) Said {
	return Said{MessageID: id, Content: text, At: noon.Add(time.Second), Pos: journal.Position{Epoch: 1, Seq: seq}, History: true}
}

// alone is a message that only the history has, some time after the prompt was sent.
func alone(after time.Duration, id, text string) Said {
	return Said{MessageID: id, Content: text, At: noon.Add(after), History: true}
}

// abortAt is an abort that the journal has.
func abortAt(seq uint64) Said {
	return Said{Abort: true, At: noon, Pos: journal.Position{Epoch: 1, Seq: seq}}
}

// abortAlone is an abort that only the history has, some time after the prompt was sent.
func abortAlone(after time.Duration) Said { return Said{Abort: true, At: noon.Add(after)} }

func answeredAt(seq uint64) func(*Entry) {
	return func(e *Entry) { e.AnsweredAt = journal.Position{Epoch: 1, Seq: seq} }
}

func inJournal(s Said) Said {
	s.History = false
	return s
}

func TestDecide(t *testing.T) {
	t.Parallel()
	one := []string{"m1"}
	for name, test := range map[string]struct {
		entries []Entry
		said    []Said
		want    []Verdict
	}{
		"nothing is there":                     {[]Entry{given("hi", one)}, nil, []Verdict{Untaken}},
		"by its id":                            {[]Entry{given("hi", one)}, []Said{at(11, "m1", "hi")}, []Verdict{Taken}},
		"by its id, in other words":            {[]Entry{given("hi", one)}, []Said{at(11, "m1", "shown")}, []Verdict{Taken}},
		"another id, the same words":           {[]Entry{given("hi", one)}, []Said{at(11, "m2", "hi")}, []Verdict{Untaken}},
		"by its words, without an id":          {[]Entry{given("hi", one)}, []Said{at(11, "", "hi")}, []Verdict{Taken}},
		"not answered, by its words":           {[]Entry{given("hi", nil)}, []Said{at(11, "m9", "hi")}, []Verdict{Taken}},
		"the same words from before":           {[]Entry{given("hi", one)}, []Said{at(10, "", "hi")}, []Verdict{Untaken}},
		"the journal lacks it":                 {[]Entry{given("hi", one)}, []Said{alone(time.Millisecond, "", "hi")}, []Verdict{Taken}},
		"the journal lacks an older one":       {[]Entry{given("hi", one)}, []Said{alone(-time.Minute, "", "hi")}, []Verdict{Untaken}},
		"of another epoch, by the time":        {[]Entry{given("hi", one, func(e *Entry) { e.Before.Epoch = 0 })}, []Said{at(3, "", "hi")}, []Verdict{Taken}},
		"the history lacks it":                 {[]Entry{given("hi", one)}, []Said{inJournal(at(11, "m1", "hi"))}, []Verdict{Forgotten}},
		"two of the same words, one there":     {[]Entry{given("hi", one), given("hi", []string{"m2"})}, []Said{at(11, "", "hi")}, []Verdict{Taken, Untaken}},
		"two of the same words, the second id": {[]Entry{given("hi", one), given("hi", []string{"m2"})}, []Said{at(11, "m2", "hi")}, []Verdict{Overtaken, Taken}},
		"a continuation behind an abort": {[]Entry{given("go on", nil, continues)}, []Said{{Abort: true, Pos: at(10, "", "").Pos}},
			[]Verdict{Untaken}},
		"a continuation whose answer came behind the abort": {[]Entry{given("go on", one, continues, answeredAt(11))},
			[]Said{{Abort: true, Pos: at(11, "", "").Pos}}, []Verdict{Removed}},
		"a continuation before an abort": {[]Entry{given("go on", nil, continues)}, []Said{{Abort: true, Pos: at(11, "", "").Pos}},
			[]Verdict{Removed}},
		"a later one was taken": {[]Entry{given("a", one), given("b", []string{"m2"}), given("c", []string{"m3"})},
			[]Said{at(11, "m2", "b")}, []Verdict{Overtaken, Taken, Untaken}},
		"an immediate one was taken": {[]Entry{given("a", one), given("b", []string{"m2"}, immediate)},
			[]Said{at(11, "m2", "b")}, []Verdict{Untaken, Taken}},
		"after an immediate one": {[]Entry{given("a", one, immediate), given("b", []string{"m2"})},
			[]Said{at(11, "m2", "b")}, []Verdict{Untaken, Taken}},
		"what is displayed": {[]Entry{given("", one, method("", `{"prompt":"hi","displayPrompt":"shown"}`))},
			[]Said{at(11, "", "shown")}, []Verdict{Taken}},
		"a fleet": {[]Entry{given("", nil, method(methodFleet, `{"prompt":"go"}`))},
			[]Said{at(11, "m5", "Fleet deployed: go")}, []Verdict{Taken}},
		"several": {[]Entry{given("", []string{"a", "b"}, method(methodMessages, `{"messages":[{"prompt":"1"},{"prompt":"2"}]}`))},
			[]Said{at(11, "a", "1"), at(12, "b", "2")}, []Verdict{Taken}},
		"the first of several": {[]Entry{given("", []string{"a", "b"}, method(methodMessages, `{"messages":[{"prompt":"1"},{"prompt":"2"}]}`))},
			[]Said{at(11, "a", "1")}, []Verdict{Partly}},
		"the rest of several": {[]Entry{given("", []string{"c"}, method(methodMessages, `{"messages":[{"prompt":"1"},{"prompt":"2"}]}`), func(e *Entry) { e.Done = 1 })},
			[]Said{at(11, "a", "1"), at(12, "c", "2")}, []Verdict{Taken}},
		"several, of which the history lacks one": {[]Entry{given("", []string{"a", "b"}, method(methodMessages, `{"messages":[{"prompt":"1"},{"prompt":"2"}]}`))},
			[]Said{at(11, "a", "1"), inJournal(at(12, "b", "2"))}, []Verdict{Forgotten}},
		"aborted":                               {[]Entry{given("hi", one, answeredAt(11))}, []Said{abortAt(12)}, []Verdict{Removed}},
		"aborted before the answer":             {[]Entry{given("hi", one, answeredAt(11))}, []Said{abortAt(11)}, []Verdict{Untaken}},
		"aborted before it was sent":            {[]Entry{given("hi", one)}, []Said{abortAt(10)}, []Verdict{Untaken}},
		"aborted, of an older outbox":           {[]Entry{given("hi", one)}, []Said{abortAt(11)}, []Verdict{Removed}},
		"not answered, aborted":                 {[]Entry{given("hi", nil)}, []Said{abortAt(11)}, []Verdict{Untaken}},
		"taken up and aborted":                  {[]Entry{given("hi", one)}, []Said{at(11, "m1", "hi"), abortAt(12)}, []Verdict{Taken}},
		"aborted as the history says":           {[]Entry{given("hi", one, answeredAt(11))}, []Said{abortAlone(0)}, []Verdict{Removed}},
		"aborted earlier, as the history says":  {[]Entry{given("hi", one)}, []Said{abortAlone(-time.Second)}, []Verdict{Untaken}},
		"aborted, of another epoch":             {[]Entry{given("hi", one, func(e *Entry) { e.Before.Epoch = 0 })}, []Said{abortAt(3)}, []Verdict{Untaken}},
		"aborted, and a later one was taken up": {[]Entry{given("a", one), given("b", []string{"m2"}, answeredAt(20))}, []Said{abortAt(12), at(21, "m2", "b")}, []Verdict{Removed, Taken}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, got := range Decide(test.entries, test.said) {
				if got.Verdict != test.want[i] {
					t.Errorf("prompt %d is %d, want %d", i, got.Verdict, test.want[i])
				}
			}
		})
	}
}

func TestObstacle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Entry)
		free   bool
	}{
		"nothing":                {func(*Entry) {}, true},
		"the queue was changed":  {func(e *Entry) { e.Edited = true }, false},
		"it was given too often": {func(e *Entry) { e.Deliveries = MaxDeliveries }, false},
		"secrets in memory":      {func(e *Entry) { e.prompt.Lacks = []string{"requestHeaders"} }, true},
		"secrets gone":           {func(e *Entry) { e.prompt.Lacks, e.prompt.Params = []string{"requestHeaders"}, nil }, false},
		"a fleet":                {func(e *Entry) { e.prompt.Method = methodFleet }, false},
	} {
		e := given("hi", []string{"m1"}, test.change)
		if got := e.Obstacle(); (got == "") != test.free {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestMessageWithoutAPosition: without a position, the time says whether a message can belong to a prompt.
func TestMessageWithoutAPosition(t *testing.T) {
	t.Parallel()
	given := time.Now()
	e := &Entry{GivenAt: given}
	if !e.after(Said{At: given}) || e.after(Said{At: given.Add(-time.Hour)}) {
		t.Error("the time of a message without a position does not count")
	}
}
