package cluster

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// good returns a record without a violation.
func good() *Record {
	journal := []Event{
		{At: Position{1, 1}, ID: "a", Type: "session.start"},
		{At: Position{1, 2}, ID: "b", Type: "user.message", JSON: `"text w1w"`},
		{At: Position{1, 4}, ID: "c", Type: "user.message", JSON: `"text w2w"`},
		{At: Position{1, 5}, ID: "e", Type: "tool.execution_complete",
			JSON: `{"data":{"toolCallId":"t","result":{"content":"answer 1"}}}`},
		{At: Position{2, 1}, ID: "d", Type: "session.idle"},
	}
	return &Record{
		Observations: Observations{Calls: []Call{{Session: "s", Text: "text w1w", Outcome: Done, End: "TURN_STATUS_RUNTIME_LOST"}}},
		Readers: []Reader{
			{Name: "r", Session: "s", Through: Position{2, 1}, Events: slices.Clone(journal)},
			{Name: "stopped early", Session: "s", Through: Position{1, 2}, Events: slices.Clone(journal[:2])},
		},
		Lists: []List{
			{Replica: 0, Session: "s", Events: slices.Clone(journal)},
			{Replica: 1, Session: "s", Events: slices.Clone(journal)},
		},
		Appends: map[string][]Append{"s": {{1, 5}, {2, 5}, {3, 9}}},
		Results: []Result{{1, "a", "t", "answer 0"}, {2, "a", "t", "answer 0"}, {3, "b", "t", "answer 1"},
			{3, "b", "u", "interrupted"}},
		Conversations: map[string][]Result{"s": {{3, "b", "t", "answer 1"}, {3, "b", "u", "interrupted"}}},
	}
}

func TestGoodRecord(t *testing.T) {
	t.Parallel()
	if found := good().Check(); len(found) > 0 {
		t.Errorf("a record without a violation has %q", found)
	}
}

// Each checker finds the violation that it is for.
func TestViolations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*Record)
		want  string
	}{
		"an event that was shown is not there": {func(r *Record) {
			for i := range r.Lists {
				r.Lists[i].Events = slices.Delete(r.Lists[i].Events, 2, 3)
			}
		}, "user.message c at 1/4 is lost"},
		"another event has its position": {func(r *Record) {
			r.Readers[0].Events[2].ID = "z"
		}, "z at 1/4 was replaced by c"},
		"an event was not shown": {func(r *Record) {
			r.Readers[0].Events = slices.Delete(r.Readers[0].Events, 1, 2)
		}, "did not receive user.message b at 1/2"},
		"the last event was not shown": {func(r *Record) {
			r.Readers[0].Events = r.Readers[0].Events[:4]
		}, "did not receive session.idle d at 2/1"},
		"an event was shown twice": {func(r *Record) {
			r.Readers[0].Events = slices.Insert(r.Readers[0].Events, 1, r.Readers[0].Events[0])
		}, "a at 1/1 comes twice"},
		"positions go back": {func(r *Record) {
			r.Readers[0].Events[1], r.Readers[0].Events[2] = r.Readers[0].Events[2], r.Readers[0].Events[1]
		}, "b at 1/2 comes after user.message c at 1/4"},
		"replicas differ": {func(r *Record) {
			r.Lists[1].Events[4].ID = "z"
		}, "shows 5 events, another replica 5"},
		"an event has two positions": {func(r *Record) {
			r.Lists[0].Events[4].ID = "a"
		}, "a at 2/1 comes twice"},
		"two owners append": {func(r *Record) {
			r.Appends["s"][2].Term = 4
		}, "term 4 wrote message 3 after term 5"},
		"a turn ends without an outcome": {func(r *Record) {
			r.Calls[0].End = "TURN_STATUS_UNSPECIFIED"
		}, `the turn of prompt "text w1w" ended as TURN_STATUS_UNSPECIFIED`},
		"a CLI takes two answers": {func(r *Record) {
			r.Results[1].Text = "answer 1"
		}, `call t was answered "answer 0" and "answer 1" at a`},
		"a result is in a request twice": {func(r *Record) {
			r.Results[1].Request = 1
		}, "call t is in request 1 twice"},
		"a call is completed twice": {func(r *Record) {
			for i := range r.Lists {
				again := r.Lists[i].Events[3]
				again.At.Seq, again.ID = 6, "f"
				r.Lists[i].Events = slices.Insert(r.Lists[i].Events, 4, again)
			}
		}, "call t was completed twice"},
		"the model has another answer": {func(r *Record) {
			r.Conversations["s"][0].Text = "answer 0"
		}, `the model was sent "answer 0" for call t, the journal has "answer 1"`},
		"the model has an answer of nobody": {func(r *Record) {
			r.Conversations["s"][1].Text = "answer 0"
		}, `the model was sent "answer 0" for call u, the journal has ""`},
		"a call does not end": {func(r *Record) {
			r.Faults = []string{"hung"}
		}, "hung"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good()
			c.spoil(r)
			found := r.Check()
			if !slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// A seed gives the same schedule each time; the faults of one target do not overlap, and a majority of the NATS
// servers is always there. All faults occur.
func TestDraw(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) { t.Parallel(); drawMany(t, 200, false) })
	t.Run("real", func(t *testing.T) { t.Parallel(); drawMany(t, 400, true) }) // they have fewer faults
}

func drawMany(t *testing.T, count uint64, realCLI bool) {
	t.Helper()
	kinds := map[Fault]int{}
	long := 0
	for seed := range count {
		p := Draw(seed, realCLI)
		if !reflect.DeepEqual(p, Draw(seed, realCLI)) {
			t.Fatalf("seed %d gives two schedules", seed)
		}
		free := map[string]Action{}
		for i, a := range p.Actions {
			kinds[a.Fault]++
			if a.Fault == Freeze && a.For > p.Timing.Lease {
				long++
			}
			if before, ok := free[a.group()]; ok && a.At < before.end() || i > 0 && a.At < p.Actions[i-1].At {
				t.Errorf("%v: %v overlaps %v, or is out of order", p, a, before)
			}
			free[a.group()] = a
		}
		if n := len(p.Actions); n < p.Timing.MinActions || n > p.Timing.MaxActions {
			t.Errorf("%v: %d actions", p, n)
		}
	}
	for _, f := range []Fault{
		Kill, Freeze, Drain, StopNATS, KillNATS, FreezeNATS, FillNATS, PartNATS, CutNATS, CutPeers, SlowNATS,
	} {
		if kinds[f] < 25 {
			t.Errorf("%s occurs %d times in %d schedules", f, kinds[f], count)
		}
	}
	if long < 30 {
		t.Errorf("%d freezes are longer than the lease", long)
	}
}
