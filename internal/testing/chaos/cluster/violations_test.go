package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Position is where an event is in its session's journal.
type Position struct{ Epoch, Seq uint64 }

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq))
}

// Event is a durable event.
type Event struct {
	At   Position
	ID   string
	Type string
	JSON string // the CLI's own text; only lists have it
}

func (e Event) String() string {
	return fmt.Sprintf("%s %s at %d/%d", e.Type, e.ID, e.At.Epoch, e.At.Seq)
}

// Reader is one reader's view of a session from its first event, over all its streams. If an epoch ended, the events
// are those since its Gap.
type Reader struct {
	Name, Session string
	// Through is the last event that a replica listed before the reader was stopped: it must have come.
	Through Position
	Events  []Event
}

// List is what ListEvents of one replica shows at the end.
type List struct {
	Span

	Replica int
	Session string
	Events  []Event
}

// Append is a message of a session's log in NATS.
type Append struct {
	Seq  uint64 // of the stream
	Term uint64 // of the owner who wrote it
}

// answerPrefix begins the answers to calls of tools.
const answerPrefix = "answer "

// Result is a tool's result in a request of a real CLI to the model.
type Result struct {
	Request int    // its number
	CLI     string // the replica that sent it, and its life
	Call    string // the id of the call
	Text    string
}

// Record is what callers received in a schedule, and what is there at its end.
type Record struct {
	Observations

	Readers []Reader
	Lists   []List
	// Appends are the messages of each session's log, in the order of the stream.
	Appends map[string][]Append
	// Results are the results of tools in all requests of real CLIs, in the order of the requests.
	Results []Result
	// Conversations have the results of tools in the last request of each session of a real CLI.
	Conversations map[string][]Result
	// Faults are violations seen while the schedule was played: a call that did not end, a turn without an outcome.
	Faults []string
}

// Check returns the violations of the promises; none says that all hold. Histories has the histories, which are checked by
// themselves.
func (r *Record) Check() []string {
	c := &checking{found: slices.Clone(r.Faults), journals: map[string][]Event{}}
	for _, l := range r.Lists {
		c.list(l)
	}
	for _, one := range r.Readers {
		c.reader(one)
	}
	for _, one := range r.Calls {
		c.end(one)
	}
	for session, appends := range r.Appends {
		c.appends(session, appends)
	}
	c.results(r.Results)
	for session, results := range r.Conversations {
		c.conversation(session, results)
	}
	slices.Sort(c.found)
	return c.found
}

// checking is the state of one check.
type checking struct {
	found    []string
	journals map[string][]Event // of each session, as the first replica shows it
}

func (c *checking) violated(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// order checks that positions increase strictly and that no event comes twice.
func (c *checking) order(by string, events []Event) {
	ids := map[string]bool{}
	for i, e := range events {
		if i > 0 && events[i-1].At.compare(e.At) >= 0 {
			c.violated("%s: %v comes after %v", by, e, events[i-1])
		}
		if e.ID != "" && ids[e.ID] {
			c.violated("%s: %v comes twice", by, e)
		}
		ids[e.ID] = true
	}
}

// list checks what a replica shows: all show the same.
func (c *checking) list(l List) {
	by := fmt.Sprintf("replica %d, session %s", l.Replica, l.Session)
	c.order(by, l.Events)
	journal, ok := c.journals[l.Session]
	if !ok {
		c.journals[l.Session] = l.Events
		return
	}
	if !slices.Equal(journal, l.Events) {
		c.violated("%s: shows %d events, another replica %d, or others", by, len(l.Events), len(journal))
	}
}

// reader checks that a reader has each event of the journal once, at the journal's position.
func (c *checking) reader(r Reader) {
	by := fmt.Sprintf("%s of session %s", r.Name, r.Session)
	c.order(by, r.Events)
	shown := map[Position]string{}
	for _, e := range r.Events {
		shown[e.At] = e.ID
	}
	through := r.Through
	if n := len(r.Events); n > 0 && r.Events[n-1].At.compare(through) > 0 {
		through = r.Events[n-1].At
	}
	at := map[Position]string{}
	for _, e := range c.journals[r.Session] {
		at[e.At] = e.ID
		if _, ok := shown[e.At]; !ok && e.At.compare(through) <= 0 {
			c.violated("%s: did not receive %v", by, e)
		}
	}
	for _, e := range r.Events {
		if id, ok := at[e.At]; !ok {
			c.violated("%s: %v is lost", by, e)
		} else if id != e.ID {
			c.violated("%s: %v was replaced by %s", by, e, id)
		}
	}
}

// ends are the outcomes that a turn may have: no caller aborts it.
var ends = []string{
	"TURN_STATUS_COMPLETED", "TURN_STATUS_FAILED", "TURN_STATUS_STALLED", "TURN_STATUS_RUNTIME_LOST",
}

// end checks that a turn has an outcome.
func (c *checking) end(one Call) {
	if one.End != "" && !slices.Contains(ends, one.End) {
		c.violated("session %s: the turn of prompt %q ended as %s", one.Session, one.Text, one.End)
	}
}

// appends checks that the terms of a log never go back.
func (c *checking) appends(session string, all []Append) {
	for i := 1; i < len(all); i++ {
		if all[i].Term < all[i-1].Term {
			c.violated("session %s: term %d wrote message %d after term %d had written", session, all[i].Term,
				all[i].Seq, all[i-1].Term)
		}
	}
}

// results checks that a CLI took one answer for each call of a tool. The next owner may take another one: it asks again
// if the first answer had no effect that was stored.
func (c *checking) results(all []Result) {
	type call struct {
		cli, id string
	}
	taken, request := map[call]string{}, map[string]int{}
	for _, r := range all {
		k := call{r.CLI, r.Call}
		if text, ok := taken[k]; ok && text != r.Text {
			c.violated("call %s was answered %q and %q at %s", r.Call, text, r.Text, r.CLI)
		}
		taken[k] = r.Text
		if request[r.Call] == r.Request {
			c.violated("call %s is in request %d twice", r.Call, r.Request)
		}
		request[r.Call] = r.Request
	}
}

// conversation checks that the model was sent the answers that the journal has, and no others. The results that the CLI
// makes itself, of calls that were interrupted, are in no event.
func (c *checking) conversation(session string, results []Result) {
	type completion struct {
		Data struct {
			ToolCallID string
			Result     struct{ Content string }
		}
	}
	stored := map[string]string{}
	for _, e := range c.journals[session] {
		var done completion
		if e.Type != "tool.execution_complete" || json.Unmarshal([]byte(e.JSON), &done) != nil {
			continue
		}
		if _, ok := stored[done.Data.ToolCallID]; ok {
			c.violated("session %s: call %s was completed twice", session, done.Data.ToolCallID)
		}
		stored[done.Data.ToolCallID] = done.Data.Result.Content
	}
	for _, r := range results {
		if text := stored[r.Call]; strings.HasPrefix(r.Text+text, answerPrefix) && text != r.Text {
			c.violated("session %s: the model was sent %q for call %s, the journal has %q", session, r.Text, r.Call,
				text)
		}
	}
}
