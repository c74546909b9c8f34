package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// ms is a span from one millisecond to another.
func ms(from, to int) Span {
	return Span{time.Duration(from) * time.Millisecond, time.Duration(to) * time.Millisecond}
}

// acquired is a change of the owner of session s.
func acquired(at Span, term uint64, node string) OwnerChange {
	return OwnerChange{Span: at, Session: "s", Term: term, Node: node}
}

// answered is a call about session s that a replica answered.
func answered(at Span, owner string) Call {
	return Call{Span: at, Method: "ListPending", Session: "s", Outcome: Done, Owner: owner}
}

// sent is a call of Send with request id q.
func sent(at Span, told Outcome, result string) Call {
	return Call{Span: at, Method: "Send", Session: "s", ID: "q", Text: "hello", Outcome: told, Result: result}
}

// resolved is an answer to callback c.
func resolved(at Span, told Outcome, text string) Call {
	return Call{Span: at, Method: methodResolve, Session: "s", ID: "c", Text: text, Outcome: told}
}

// accepts is an answer to callback c that a CLI accepted.
func accepts(at Span, replica int, text string) Accepted {
	return Accepted{at, replica, "s", "c", text}
}

// listed is a conversation with the prompt of sent, so many times.
func listed(count int) List {
	events := []Event{{Type: "session.start", JSON: `"hello"`}}
	for range count {
		events = append(events, Event{Type: "user.message", JSON: `"hello"`})
	}
	return List{Span: ms(100, 101), Session: "s", Events: events}
}

// Each model accepts the histories that its promise allows, and no others. A wrong history has the operation that
// cannot be explained.
func TestModels(t *testing.T) {
	t.Parallel()
	inMemory := sent(ms(1, 2), Done, "m")
	inMemory.InMemory = true
	for name, c := range map[string]struct {
		name string // of the history
		Record
		illegal string // in the report; "" if the history is linearizable
	}{
		// Ownership.
		"the owner answers": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 12), 9, "r1")},
			Calls:   []Call{answered(ms(3, 4), "r0"), answered(ms(9, 11), "r0"), answered(ms(9, 13), "r1")},
		}}},
		"an answer is late": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 12), 9, "r1")},
			Calls:   []Call{answered(ms(9, 30), "r0"), answered(ms(20, 21), "r1")},
		}}},
		"a former owner answers": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 12), 9, "r1")},
			Calls:   []Call{answered(ms(3, 4), "r0"), answered(ms(13, 14), "r0")},
		}}, illegal: "owner r0"},
		"two owners answer by turns": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(3, 40), 9, "r1")},
			Calls:   []Call{answered(ms(4, 5), "r0"), answered(ms(6, 7), "r1"), answered(ms(8, 9), "r0")},
		}}, illegal: "through r0: done, owner r0"},
		"a replica answers before it owns the session": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 12), 9, "r1")},
			Calls:   []Call{answered(ms(3, 4), "r1")},
		}}, illegal: "owner r1"},
		"a released session is answered for": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(3, 4), 6, "")},
			Calls:   []Call{answered(ms(5, 6), "r0")},
		}}, illegal: "owner r0"},
		"an owner comes back": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(3, 4), 6, ""), acquired(ms(5, 6), 7, "r0")},
			Calls:   []Call{answered(ms(5, 6), "r0")},
		}}},
		"an owner was not seen": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(8, 9), 7, "r0")}, Unseen: []uint64{6},
			Calls: []Call{answered(ms(3, 4), "r1"), answered(ms(10, 11), "r0")},
		}}},
		"the last owner was not seen": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0")}, Unseen: []uint64{6},
			Calls: []Call{answered(ms(3, 4), "r0"), answered(ms(5, 6), "r1")},
		}}},
		"an unseen owner is one of the past": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(8, 9), 7, "r0")}, Unseen: []uint64{6},
			Calls: []Call{answered(ms(10, 11), "r1")},
		}}, illegal: "owner r1"},
		"an unseen owner comes after the last one": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(8, 9), 7, "r1")}, Unseen: []uint64{9},
			Calls: []Call{answered(ms(3, 4), "r2")},
		}}, illegal: "owner r2"},
		"a call without an answer says nothing of the owner": {name: "ownership", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:   []Call{{Span: ms(3, 4), Session: "s", Outcome: Open, Owner: "r1"}},
		}}},

		// Requests.
		"a repetition has the first answer": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Done, "m"), sent(ms(1, 3), Open, ""), sent(ms(4, 5), Done, "m")}},
			Lists:        []List{listed(1), listed(1)},
		}},
		"a repetition has another answer": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Done, "m"), sent(ms(4, 5), Done, "n")}},
			Lists:        []List{listed(1)},
		}, illegal: `Send s "q" "hello" through r0: done n`},
		"a prompt is sent twice": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Open, ""), sent(ms(4, 5), Done, "m")}},
			Lists:        []List{listed(2)},
		}, illegal: `lists "hello" 2 times`},
		"an acknowledged prompt is not there": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Done, "m")}},
			Lists:        []List{listed(0)},
		}, illegal: `lists "hello" 0 times`},
		"an open call has taken effect": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Open, "")}},
			Lists:        []List{listed(1)},
		}},
		"the first of two open calls has taken effect": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(102, 103), Open, ""), sent(ms(1, 2), Open, "")}},
			Lists:        []List{listed(1)},
		}},
		"an open call has no effect": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Open, "")}},
			Lists:        []List{listed(0)},
		}},
		"a prompt is there before it is sent": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(102, 103), Open, "")}},
			Lists:        []List{listed(1)},
		}, illegal: `lists "hello" 1 times`},
		"a prompt is reported as lost": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Done, "m"), sent(ms(4, 5), Lost, "")}},
			Lists:        []List{listed(0)},
		}},
		"a lost prompt is acknowledged again": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{
				sent(ms(1, 2), Done, "m"), sent(ms(3, 4), Lost, ""), sent(ms(5, 6), Done, "m"),
			}},
		}, illegal: "done m"},
		"the next call sends a prompt that was not sent": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Lost, ""), sent(ms(4, 5), Done, "m")}},
			Lists:        []List{listed(1)},
		}},
		"the next call does not send a prompt that was not sent": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{sent(ms(1, 2), Lost, ""), sent(ms(4, 5), Done, "m")}},
			Lists:        []List{listed(0)},
		}, illegal: `lists "hello" 0 times`},
		"a prompt in memory is lost": {name: "requests", Record: Record{
			Observations: Observations{Calls: []Call{inMemory}}, Lists: []List{listed(0)},
		}},

		// Claims.
		"one answer is accepted": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a"), resolved(ms(4, 5), Resolved, "b"), resolved(ms(9, 10), Done, "a")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "a")},
		}}},
		"two answers are accepted": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a"), resolved(ms(4, 9), Done, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "a")},
		}}, illegal: `"b" through r0: done`},
		"the CLI has the other answer": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a"), resolved(ms(4, 9), Resolved, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "b")},
		}}, illegal: `accepts "b"`},
		"the CLI has no answer": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a")},
			Accepted: []Accepted{{Session: "s", Callback: "another"}},
		}}, illegal: "the end"},
		"the CLI has two answers": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "a"), accepts(ms(6, 7), 0, "a")},
		}}, illegal: "callback c of session s"},
		"nobody has the callback": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(4, 5), Resolved, "b"), resolved(ms(6, 8), Done, "a")},
			Accepted: []Accepted{accepts(ms(7, 7), 0, "a")},
		}}, illegal: `"b" through r0: resolved`},
		"an open answer has the callback": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 4), Open, "a"), resolved(ms(8, 9), Resolved, "b")},
			Accepted: []Accepted{accepts(ms(5, 6), 0, "a")},
		}}},
		"an open answer is on its way": {name: "claims", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:   []Call{resolved(ms(3, 4), Open, "a"), resolved(ms(5, 6), Resolved, "b")},
		}}},
		"the CLI has an answer that nobody gave": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 4), Open, "a")},
			Accepted: []Accepted{accepts(ms(5, 6), 0, "b")},
		}}, illegal: `accepts "b"`},
		"an open answer outlives the owner": {name: "claims", Record: Record{Observations: Observations{
			Changes: []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 11), 6, "r1")},
			Calls: []Call{
				resolved(ms(3, 4), Open, "a"), resolved(ms(5, 5), Resolved, "c"), resolved(ms(6, 8), Done, "b"),
			},
			Accepted: []Accepted{accepts(ms(7, 7), 0, "b"), accepts(ms(15, 16), 1, "a")},
		}}},
		"an open answer has no effect": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 4), Open, "a"), resolved(ms(5, 9), Done, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "b")},
		}}},
		"an open answer is taken beside another one": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0")},
			Calls:    []Call{resolved(ms(3, 4), Open, "a"), resolved(ms(5, 9), Done, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "b"), accepts(ms(6, 7), 0, "a")},
		}}, illegal: "accepts"},
		"the next owner asks again after a crash": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 11), 6, "r1")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a"), resolved(ms(12, 18), Done, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "a"), accepts(ms(15, 16), 1, "b")},
		}}},
		"the next owner asks again after a release": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(9, 9), 6, ""), acquired(ms(10, 11), 7, "r1")},
			Calls:    []Call{resolved(ms(3, 8), Done, "a"), resolved(ms(12, 18), Done, "b")},
			Accepted: []Accepted{accepts(ms(6, 7), 0, "a"), accepts(ms(15, 16), 1, "b")},
		}}, illegal: `"b"`},
		"the CLI of a former owner takes an answer": {name: "claims", Record: Record{Observations: Observations{
			Changes:  []OwnerChange{acquired(ms(1, 2), 5, "r0"), acquired(ms(10, 11), 6, "r1")},
			Calls:    []Call{resolved(ms(3, 4), Open, "a"), resolved(ms(12, 18), Done, "b")},
			Accepted: []Accepted{accepts(ms(15, 16), 1, "b"), accepts(ms(17, 18), 0, "a")},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range c.Histories() {
				if h.Name != c.name {
					continue
				}
				want := porcupine.Ok
				if c.illegal != "" {
					want = porcupine.Illegal
				}
				result, illegal := h.Check(time.Minute)
				if result != want {
					t.Fatalf("the history is %s, want %s", result, want)
				}
				for _, one := range illegal {
					if !strings.Contains(one.String(), c.illegal) {
						t.Errorf("the report is %q, want %q", one, c.illegal)
					}
				}
			}
		})
	}
}
