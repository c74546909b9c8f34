package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Span is the time of an operation since the schedule's begin: from before the call to after its answer.
type Span struct{ From, To time.Duration }

func (s Span) span() Span { return s }

// Outcome is the kind of answer that a caller received.
type Outcome string

// The outcomes of calls.
const (
	// Open is a call without an answer, or with an error that leaves open whether the call took effect.
	Open     Outcome = "open"
	Done     Outcome = "done"
	Lost     Outcome = "lost"     // SEND_UNCONFIRMED
	Resolved Outcome = "resolved" // CALLBACK_RESOLVED or CALLBACK_NOT_FOUND
)

// Call is a call about a session with the answer that its caller received.
type Call struct {
	Span

	Method  string
	Replica int // that received the call from the caller
	Session string
	// ID is the request id, for Resolve the callback's id; "" if the call has neither.
	ID string
	// Text is the prompt, or the answer to a callback.
	Text    string
	Outcome Outcome
	// Owner is the replica that the answer names as the session's owner.
	Owner string
	// Result has what must be equal in all answers to one request.
	Result string
	// End is the outcome of the turn, if the call waited for it: a name of bridge.v1.TurnStatus. Result contains it.
	End string
	// InMemory reports that the prompt was acknowledged as in memory only.
	InMemory bool
	// Error is the error of a call that is not Done.
	Error string
}

func (c Call) open() bool { return c.Outcome == Open }

func (c Call) String() string {
	s := fmt.Sprintf("%s %s", c.Method, c.Session)
	for _, detail := range []string{c.ID, c.Text} {
		if detail != "" {
			s += fmt.Sprintf(" %q", detail)
		}
	}
	s += fmt.Sprintf(" through r%d: %s", c.Replica, c.Outcome)
	for _, detail := range []string{c.Result, c.Error} {
		if detail != "" {
			s += " " + detail
		}
	}
	if c.Owner != "" {
		s += ", owner " + c.Owner
	}
	return s
}

// OwnerChange is a change of a session's owner in NATS.
type OwnerChange struct {
	Span

	Session string
	Term    uint64
	// Node is the replica that acquired the session; "" if the owner released it.
	Node string
}

// anyNode is the node of an owner that the observer did not see.
const anyNode = "any"

// Accepted is an answer to a callback that a CLI accepted.
type Accepted struct {
	Span

	Replica           int
	Session, Callback string
	Text              string
}

// Observations are what happened in a schedule, with times.
type Observations struct {
	Calls   []Call
	Changes []OwnerChange
	// Unseen are the terms of changes that the observer missed. Their sessions are unknown.
	Unseen   []uint64
	Accepted []Accepted
}

// operation is an operation of a history with its result.
type operation interface {
	fmt.Stringer

	span() Span
	// open reports that the operation may take effect until the end of the history, or never.
	open() bool
}

// History has the operations about one promise.
type History struct {
	Name  string
	model porcupine.Model
	parts []part
}

// part has the operations about one session, request or callback. Each part is checked by itself.
type part struct {
	name       string
	operations []operation
}

// newHistory returns a history with parts by their names. next returns the states in which an operation leaves a state,
// none if the operation is impossible there. The first state of each part is the zero value.
func newHistory[S comparable](name string, parts map[string][]operation, next func(S, operation) []S) *History {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{*new(S)} },
		Step: func(state, input, _ any) (out []any) {
			for _, s := range next(state.(S), input.(operation)) {
				out = append(out, s)
			}
			return out
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}
	h := &History{Name: name, model: m.ToModel()}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		operations := parts[name]
		slices.SortStableFunc(operations, func(a, b operation) int { return cmp.Compare(a.span().From, b.span().From) })
		h.parts = append(h.parts, part{name, operations})
	}
	return h
}

// Operations counts the operations of the history.
func (h *History) Operations() (n int) {
	for _, p := range h.parts {
		n += len(p.operations)
	}
	return n
}

// Check checks whether the history is linearizable, and returns the parts that are not. The result is Unknown if all
// other parts are, but the check of a part was not finished within the limit.
func (h *History) Check(limit time.Duration) (result porcupine.CheckResult, illegal []Illegal) {
	result = porcupine.Ok
	end := time.Now().Add(limit)
	for _, p := range h.parts {
		operations := p.porcupine()
		left := max(time.Until(end), time.Millisecond) // 0 means no limit
		switch one := porcupine.CheckOperationsTimeout(h.model, operations, left); {
		case one == porcupine.Illegal:
			result = one
			_, info := porcupine.CheckOperationsVerbose(h.model, operations, limit)
			illegal = append(illegal, Illegal{p, h.model, info})
		case one == porcupine.Unknown && result == porcupine.Ok:
			result = one
		}
	}
	return result, illegal
}

// porcupine returns the operations in Porcupine's form. Operations at the same time have different clients. Open
// operations end after all others.
func (p *part) porcupine() []porcupine.Operation {
	out := make([]porcupine.Operation, 0, len(p.operations))
	var busy []int64 // until when each client is
	for _, o := range p.operations {
		from, to := int64(o.span().From), int64(o.span().To)
		if o.open() {
			to = math.MaxInt64
		}
		client := slices.IndexFunc(busy, func(until int64) bool { return until < from })
		if client < 0 {
			client = len(busy)
			busy = append(busy, 0)
		}
		busy[client] = to
		out = append(out, porcupine.Operation{ClientId: client, Input: o, Call: from, Return: to})
	}
	return out
}

// Illegal is a part of a history that is not linearizable.
type Illegal struct {
	part

	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// String names the first operation to end that is not in the longest linearization.
func (i Illegal) String() string {
	linear := i.linear()
	var first operation
	for _, o := range i.operations {
		if !linear[o] && !o.open() && (first == nil || o.span().To < first.span().To) {
			first = o
		}
	}
	return fmt.Sprintf("%s: no order of %d operations explains %v", i.name, len(i.operations), first)
}

// linear returns the operations of the longest partial linearization.
func (i Illegal) linear() map[operation]bool {
	var longest []porcupine.Operation
	for _, partial := range i.info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	out := map[operation]bool{}
	for _, o := range longest {
		out[o.Input.(operation)] = true
	}
	return out
}

// Text lists the operations, by the times of their calls. "?" marks those that are not in the longest linearization.
func (i Illegal) Text() string {
	linear := i.linear()
	var b strings.Builder
	_, _ = fmt.Fprintln(&b, i)
	for _, o := range i.operations {
		mark, to := " ", o.span().To.Round(time.Microsecond).String()
		if !linear[o] {
			mark = "?"
		}
		if o.open() {
			to = "the end"
		}
		_, _ = fmt.Fprintf(&b, "%s %12v to %12s  %v\n", mark, o.span().From.Round(time.Microsecond), to, o)
	}
	return b.String()
}

// Write writes the text and Porcupine's page of the part into files that are named name.txt and name.html.
func (i Illegal) Write(name string) error {
	return errors.Join(
		os.WriteFile(name+".txt", []byte(i.Text()), 0o600), porcupine.VisualizePath(i.model, i.info, name+".html"))
}
