package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// methodResolve is the call that answers a callback.
const methodResolve = "Resolve"

// forever is after the end of each history.
const forever = time.Duration(1<<63 - 1)

// Histories returns the histories that must be linearizable.
func (r *Record) Histories() []*History {
	return []*History{r.ownership(), r.requests(), r.claims()}
}

// transition is a change of a session's owner, as an operation.
type transition struct {
	OwnerChange

	// number counts the transitions of the session, from 1.
	number int
	// takeover reports that the former owner had not released the session.
	takeover bool
}

// open implements operation. An owner that was not seen, and after which there is no other, may not have been there.
func (t transition) open() bool { return t.To == forever }

func (t transition) String() string {
	if t.Node == "" {
		return fmt.Sprintf("change %d: the session is released at term %d", t.number, t.Term)
	}
	return fmt.Sprintf("change %d: the owner is %s at term %d", t.number, t.Node, t.Term)
}

// transitions returns the changes of each session's owner in the order of their terms. Where the observer may have
// missed a change, there is one more, after which any replica may be the owner.
func (o *Observations) transitions() map[string][]transition {
	changes := slices.Clone(o.Changes)
	slices.SortFunc(changes, func(a, b OwnerChange) int { return cmp.Compare(a.Term, b.Term) })
	out := map[string][]transition{}
	for _, c := range changes {
		out[c.Session] = append(o.fill(out[c.Session], c.Term, c.To), transition{OwnerChange: c})
	}
	for session, all := range out {
		all = o.fill(all, 1<<63, forever)
		for i := range all {
			all[i].number = i + 1
			all[i].takeover = all[i].Node != "" && i > 0 && all[i-1].Node != ""
		}
		out[session] = all
	}
	return out
}

// fill adds a transition to an unknown owner if a change may have been missed between the last one and a term.
func (o *Observations) fill(all []transition, term uint64, to time.Duration) []transition {
	var last OwnerChange
	if len(all) > 0 {
		last = all[len(all)-1].OwnerChange
	}
	if !slices.ContainsFunc(o.Unseen, func(n uint64) bool { return last.Term < n && n < term }) {
		return all
	}
	return append(all,
		transition{OwnerChange: OwnerChange{Span: Span{last.From, to}, Session: last.Session, Node: anyNode}})
}

// ownership is the state of a session's owner.
type ownership struct {
	number int // of the last transition
	node   string
}

// ownership returns the history of the sessions' owners. A session has one owner at a time, in the order of the terms,
// and each answer comes from its owner.
func (r *Record) ownership() *History {
	parts := map[string][]operation{}
	for session, all := range r.transitions() {
		for _, t := range all {
			parts["session "+session] = append(parts["session "+session], t)
		}
	}
	for _, c := range r.Calls {
		if c.Outcome != Open && c.Owner != "" {
			parts["session "+c.Session] = append(parts["session "+c.Session], c)
		}
	}
	return newHistory("ownership", parts, ownership.next)
}

func (s ownership) next(o operation) []ownership {
	switch o := o.(type) {
	case transition:
		if o.number == s.number+1 {
			return []ownership{{o.number, o.Node}}
		}
	case Call:
		if s.node == o.Owner || s.node == anyNode {
			return []ownership{s}
		}
	}
	return nil
}

// request is the state of a request id.
type request struct {
	// begun reports that there was a call: the prompt may be in the conversation.
	begun bool
	// result is that of the first answer; "" if there is none.
	result string
	// lost reports that an acknowledged prompt was reported as lost, inMemory that it was reported as in memory only.
	lost, inMemory bool
}

// listing is how often a conversation has a prompt at the end of a schedule, as an operation.
type listing struct {
	Span

	Replica int
	Text    string
	Count   int
}

func (l listing) open() bool { return false }

func (l listing) String() string {
	return fmt.Sprintf("replica %d lists %q %d times", l.Replica, l.Text, l.Count)
}

// requests returns the history of the calls with request ids. They take effect once, and each answer equals the first.
// Failures are not remembered: the next call is carried out. After an answer, SEND_UNCONFIRMED says that the acknowledged
// prompt is lost, and no later answer says otherwise.
func (r *Record) requests() *History {
	parts, listed := map[string][]operation{}, map[string]bool{}
	for _, c := range r.Calls {
		if c.ID == "" || c.Method == methodResolve {
			continue
		}
		name := fmt.Sprintf("request %q of session %s", c.ID, c.Session)
		parts[name] = appendCall(parts[name], c)
		if c.Text == "" || listed[name] {
			continue
		}
		listed[name] = true
		for _, l := range r.Lists {
			if l.Session == c.Session {
				parts[name] = append(parts[name], l.count(c.Text))
			}
		}
	}
	return newHistory("requests", parts, request.next)
}

// appendCall adds a call to the operations of a request or callback. Of open calls with equal texts, the one that began
// first is enough, because it may take effect at any later time. Each further one doubles the orders to be tried.
func appendCall(to []operation, c Call) []operation {
	if c.Outcome != Open {
		return append(to, c)
	}
	i := slices.IndexFunc(to, func(o operation) bool {
		before, ok := o.(Call)
		return ok && before.Outcome == Open && before.Text == c.Text
	})
	switch {
	case i < 0:
		return append(to, c)
	case c.From < to[i].span().From:
		to[i] = c
	}
	return to
}

// count counts how often a prompt is in the conversation.
func (l *List) count(text string) listing {
	out := listing{Span: l.Span, Replica: l.Replica, Text: text}
	for _, e := range l.Events {
		if e.Type == "user.message" && strings.Contains(e.JSON, text) {
			out.Count++
		}
	}
	return out
}

func (s request) next(o operation) []request {
	switch o := o.(type) {
	case Call:
		s.begun = true
		switch o.Outcome {
		case Lost:
			s.lost = s.result != ""
		case Done:
			if s.lost || s.result != "" && s.result != o.Result {
				return nil
			}
			s.result, s.inMemory = o.Result, s.inMemory || o.InMemory
		}
	case listing:
		missing := o.Count == 0 && s.result != "" && !s.lost && !s.inMemory
		if missing || o.Count > 1 || o.Count == 1 && !s.begun {
			return nil
		}
	}
	return []request{s}
}

// claim is the state of a callback.
type claim struct {
	owner ownership
	// offered has the answers of open calls, each in quotes. One of them may have the callback until text says which
	// answer has it.
	offered string
	// text is the answer that has the callback, because a caller was told so or the CLI accepted it; "" if none has.
	text string
	// delivered reports that the owner's CLI has accepted the answer.
	delivered bool
}

// delivery is an answer that a CLI accepted, as an operation.
type delivery struct{ Accepted }

func (d delivery) open() bool { return false }

func (d delivery) String() string {
	return fmt.Sprintf("the CLI of replica %d accepts %q", d.Replica, d.Text)
}

// ending is the end of the history of a callback: the CLI has accepted the answer that has the callback.
type ending struct{ Span }

func (ending) open() bool     { return false }
func (ending) String() string { return "the end: the CLI has the answer" }

// claims returns the history of the answers to callbacks. One answer has a callback. Its callers are told that it is
// done, those of other answers that the callback is resolved, and the CLI accepts exactly that answer, once. After a
// takeover the CLI may ask again: the former owner may have had an answer whose effect was not stored yet.
func (r *Record) claims() *History {
	parts, sessions := map[string][]operation{}, map[string]string{}
	part := func(session, callback string) string {
		name := fmt.Sprintf("callback %s of session %s", callback, session)
		sessions[name] = session
		return name
	}
	var last time.Duration
	for _, c := range r.Calls {
		if last = max(last, c.To); c.Method == methodResolve {
			name := part(c.Session, c.ID)
			parts[name] = appendCall(parts[name], c)
		}
	}
	for _, a := range r.Accepted {
		name := part(a.Session, a.Callback)
		parts[name] = append(parts[name], delivery{a})
	}
	transitions := r.transitions()
	for name, session := range sessions {
		for _, t := range transitions[session] {
			parts[name] = append(parts[name], t)
		}
		if len(r.Accepted) > 0 { // the real CLI does not say what it accepts
			parts[name] = append(parts[name], ending{Span{last + 1, last + 1}})
		}
	}
	return newHistory("claims", parts, claim.next)
}

func (s claim) next(o operation) []claim {
	switch o := o.(type) {
	case transition:
		return s.change(o)
	case delivery:
		return s.deliver(o)
	case ending:
		if s.text != "" && !s.delivered {
			return nil
		}
	case Call:
		return s.resolve(o)
	}
	return []claim{s}
}

// change returns the states after a change of the owner.
func (s claim) change(t transition) []claim {
	owners := s.owner.next(t)
	if owners == nil {
		return nil
	}
	s.owner = owners[0]
	if t.takeover && s.text != "" {
		return []claim{s, {owner: s.owner, offered: s.offered}}
	}
	return []claim{s}
}

// deliver returns the state after a CLI accepted an answer. An answer to the CLI of a former owner has no effect.
func (s claim) deliver(d delivery) []claim {
	node := fmt.Sprint("r", d.Replica)
	switch {
	case s.owner.node != node && s.owner.node != anyNode:
		return []claim{s}
	case s.delivered || s.text != d.Text && (s.text != "" || !strings.Contains(s.offered, strconv.Quote(d.Text))):
		return nil
	}
	s.text, s.delivered = d.Text, true
	return []claim{s}
}

// resolve returns the state after a caller's answer.
func (s claim) resolve(c Call) []claim {
	switch c.Outcome {
	case Open:
		s.offered += strconv.Quote(c.Text)
	case Done:
		if s.text != "" && s.text != c.Text {
			return nil
		}
		s.text = c.Text
	case Resolved:
		if s.text == "" && s.offered == "" {
			return nil
		}
	default:
		return nil
	}
	return []claim{s}
}
