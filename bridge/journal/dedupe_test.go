package journal

import (
	"fmt"
	"testing"
)

func TestDedupe(t *testing.T) {
	t.Parallel()
	const uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"
	type add struct {
		id        string
		ephemeral bool
		fresh     bool
	}
	turn := add{id: "turn"}
	for name, adds := range map[string][]add{
		"durable, for good":           {{uuid, false, true}, turn, turn, turn, {uuid, false, false}},
		"ephemeral, this turn":        {{uuid, true, true}, {uuid, true, false}},
		"ephemeral, the turn before":  {{uuid, true, true}, turn, {uuid, true, false}},
		"ephemeral, two turns before": {{uuid, true, true}, turn, {"b", true, true}, turn, {uuid, true, true}},
		"a turn without events":       {{uuid, true, true}, turn, turn, turn, {uuid, true, false}},
		"a durable one comes back":    {{uuid, false, true}, {uuid, true, false}},
		"no id is always new":         {{"", true, true}, {"", true, true}, {"", false, true}},
		"ids that are not UUIDs":      {{"x", false, true}, {"x", false, false}, {"y", false, true}},
		"almost a UUID is not that": {{"0f8fad5b-d9cb-469f-a165-70867728950g", true, true},
			{"0f8fad5b-d9cb-469f-a165-70867728950h", true, true}},
		"the case of a UUID is no sin": {{uuid, true, true}, {"0F8FAD5B-D9CB-469F-A165-70867728950E", true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDedupe()
			for i, a := range adds {
				if a == turn {
					d.rotate()
				} else if got := d.add(ParseID([]byte(a.id)), a.ephemeral, 1); got != a.fresh {
					t.Errorf("add %d of %q: new is %v, want %v", i, a.id, got, a.fresh)
				}
			}
		})
	}
}

// A burst's second copies come up to 86,000 events late, in any order, and may come
// after the turn's end.
func TestDedupeLateCopies(t *testing.T) {
	t.Parallel()
	const burst = 90_000
	j := New(Config{Epoch: 1, MaxEphemeralBytes: 1 << 20})
	event := func(i int) *Record {
		return &Record{Type: "assistant.message_delta",
			ID: ParseID(fmt.Appendf(nil, "00000000-0000-4000-8000-%012x", i)), Ephemeral: true}
	}
	for i := range burst {
		if !j.Append(event(i)) {
			t.Fatalf("event %d was taken for a copy", i)
		}
	}
	j.TurnEnded()
	for i := burst - 1; i >= 0; i-- {
		if j.Append(event(i)) {
			t.Fatalf("the copy of event %d was taken for an event", i)
		}
	}
	if got := j.Last().Seq; got != burst {
		t.Errorf("last seq is %d, want %d", got, burst)
	}
}

func TestDedupeIsBounded(t *testing.T) {
	t.Parallel()
	d := newDedupe()
	d.limit = 10
	for i := range 25 {
		if !d.add(ParseID(fmt.Append(nil, i)), true, 0) || d.add(ParseID(fmt.Append(nil, i)), true, 0) {
			t.Errorf("id %d is not remembered", i)
		}
	}
	if d.current.n != 5 || d.previous.n != 10 {
		t.Errorf("%d and %d ids are remembered, want 5 and 10", d.current.n, d.previous.n)
	}
}
