package cluster

import (
	"cmp"
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
	Replica int
	Session string
	Events  []Event
}

// Prompt is a prompt with the answers that its caller received.
type Prompt struct {
	Session string
	// Word is in no other prompt.
	Word string
	// IDs are the message ids of the acknowledgements of Send, which was repeated with one request id. None says that
	// the prompt was not acknowledged.
	IDs []string
	// Lost reports that a repetition at the end failed with SEND_UNCONFIRMED: the prompt is reported as lost. Or its
	// caller was told that it is in memory only.
	Lost bool

	text string // the whole prompt
}

// Append is a message of a session's log in NATS.
type Append struct {
	Seq  uint64 // of the stream
	Term uint64 // of the owner who wrote it
}

// Record is what callers received in a schedule, and what is there at its end.
type Record struct {
	Readers []Reader
	Lists   []List
	Prompts []Prompt
	// Appends are the messages of each session's log, in the order of the stream.
	Appends map[string][]Append
	// Answers counts how many answers the CLIs took of each callback (fakecli.Accepted).
	Answers map[string]int
	// Faults are violations seen while the schedule was played: a call that did not end, a turn without an outcome.
	Faults []string
}

// Check returns the violations of the promises; none says that all hold.
func (r *Record) Check() []string {
	c := &checking{found: slices.Clone(r.Faults), journals: map[string][]Event{}}
	for _, l := range r.Lists {
		c.list(l)
	}
	for _, one := range r.Readers {
		c.reader(one)
	}
	for _, p := range r.Prompts {
		c.prompt(p)
	}
	for session, appends := range r.Appends {
		c.appends(session, appends)
	}
	for id, n := range r.Answers {
		if n > 1 {
			c.violated("callback %s was answered %d times", id, n)
		}
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

// prompt checks that a prompt is in the conversation once if it was acknowledged and not reported as lost, and never
// more than once.
func (c *checking) prompt(p Prompt) {
	n := 0
	for _, e := range c.journals[p.Session] {
		if e.Type == "user.message" && strings.Contains(e.JSON, p.Word) {
			n++
		}
	}
	switch {
	case n > 1:
		c.violated("session %s: prompt %s is in the conversation %d times", p.Session, p.Word, n)
	case n == 0 && len(p.IDs) > 0 && !p.Lost:
		c.violated("session %s: prompt %s was acknowledged and is lost", p.Session, p.Word)
	}
	if len(slices.Compact(slices.Clone(p.IDs))) > 1 {
		c.violated("session %s: prompt %s was acknowledged as %v", p.Session, p.Word, p.IDs)
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
