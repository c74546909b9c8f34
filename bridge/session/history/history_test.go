package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// rec is an event with an id that ends in n; 0 has no id.
func rec(eventType string, n byte) *journal.Record {
	r := &journal.Record{Type: eventType, JSON: []byte(`{"data":{}}`)}
	if n > 0 {
		r.ID = journal.ID{15: n}
	}
	return r
}

func ids(recs []*journal.Record) (out []byte) {
	for _, r := range recs {
		out = append(out, r.ID[15])
	}
	return out
}

// TestMerge: each event of the history or the journal occurs once, the events of the history keep their order,
// and an event that only the journal has follows the last common event before it.
func TestMerge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Permutation([]byte{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "ids")
		split := rapid.SliceOfN(rapid.IntRange(0, 2), len(all), len(all)).Draw(t, "in")
		var history, kept []*journal.Record
		var inHistory []byte
		behind := map[byte]byte{} // what only the journal has → the shared event before it
		var shared byte
		for i, id := range all {
			if split[i] != 1 {
				history, inHistory = append(history, rec("e", id)), append(inHistory, id)
			}
			if split[i] != 0 {
				kept = append(kept, rec("e", id))
			}
			switch split[i] {
			case 1:
				behind[id] = shared
			case 2:
				shared = id
			}
		}
		merged, fresh := Merge(history, kept)
		got := ids(merged)
		if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(got) || len(got) != len(all) {
			t.Fatalf("merged %v of %v", got, all)
		}
		if of := slices.DeleteFunc(slices.Clone(got), func(id byte) bool { return !slices.Contains(inHistory, id) }); !slices.Equal(of, inHistory) {
			t.Fatalf("the history's order is %v, want %v", of, inHistory)
		}
		before := byte(0)
		for _, id := range got {
			if want, only := behind[id]; !only {
				before = id
			} else if before != want {
				t.Fatalf("%d is behind %d in %v, want %d", id, before, got, want)
			}
		}
		for _, r := range fresh {
			if slices.Contains(ids(kept), r.ID[15]) {
				t.Fatalf("%d is fresh, and the journal has it", r.ID[15])
			}
		}
	})
}

// TestOrderedExtension: a history that extends the journal is in order, wherever the journal ends.
func TestOrderedExtension(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, has := rapid.IntRange(1, 20).Draw(t, "n"), rapid.IntRange(0, 20).Draw(t, "has")
		var events []*journal.Record
		for i := range n {
			events = append(events, rec("user.message", byte(i+1)))
		}
		lookup := func(id journal.ID) (journal.Position, bool) {
			return journal.Position{Seq: uint64(id[15])}, int(id[15]) <= has
		}
		if !Ordered(events, lookup) {
			t.Fatalf("%d events, of which the journal has %d, are out of order", n, has)
		}
		r := NewRewrite(events, lookup)
		for i := range min(n, has) {
			kept := *events[i]
			kept.Pos.Seq = uint64(i + 1)
			r.Kept(&kept)
		}
		if r.Found() {
			t.Fatalf("%d events, of which the journal has %d, were cut", n, has)
		}
	})
}

func TestPast(t *testing.T) {
	t.Parallel()
	events := []*journal.Record{rec("e", 1), rec("e", 2), rec("e", 0), rec("e", 3)}
	for want, since := range map[int][]*journal.Record{4: nil, 1: {rec("e", 2), rec("e", 3)}, 3: {rec("e", 0), rec("e", 3)}} {
		if got := Past(events, IDs(since)); got != want {
			t.Errorf("Past(since %v) = %d, want %d", ids(since), got, want)
		}
	}
}

func TestLeftRunning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at        map[string]uint64
		errorType string
		begun     uint64
		running   bool
	}{
		"nothing":            {},
		"a message":          {at: map[string]uint64{"user.message": 3}, begun: 3, running: true},
		"a turn's start":     {at: map[string]uint64{"user.message": 3, "assistant.turn_start": 4}, begun: 4, running: true},
		"ended":              {at: map[string]uint64{"user.message": 3, "session.idle": 5}, begun: 3},
		"failed":             {at: map[string]uint64{"user.message": 3, "session.error": 5}, errorType: "query", begun: 3},
		"an error in a log":  {at: map[string]uint64{"user.message": 3, "session.error": 5}, errorType: turn.LoggedError, begun: 3, running: true},
		"failed in the past": {at: map[string]uint64{"user.message": 3, "session.error": 2}, errorType: "query", begun: 3, running: true},
	} {
		begun, running := LeftRunning(func(of string) uint64 { return test.at[of] }, func(uint64) (*journal.Record, bool) {
			return &journal.Record{JSON: fmt.Appendf(nil, `{"data":{"errorType":%q}}`, test.errorType)}, true
		})
		if begun != test.begun || running != test.running {
			t.Errorf("%s: begun %d, running %v", name, begun, running)
		}
	}
}

func TestUnfinished(t *testing.T) {
	t.Parallel()
	message := func(data string) *journal.Record {
		return &journal.Record{Type: "assistant.message", JSON: []byte(`{"data":` + data + `}`)}
	}
	user, last := rec("user.message", 1), message(`{"toolRequests":[]}`)
	call := message(`{"toolRequests":[{"name":"bash"}]}`)
	helper := rec("user.message", 2)
	helper.Agent = "helper"
	logged := &journal.Record{Type: "session.error", JSON: []byte(`{"data":{"errorType":"notification"}}`)}
	warm := &journal.Record{Type: "session.resume", JSON: []byte(`{"data":{"sessionWasActive":true}}`)}
	for name, test := range map[string]struct {
		events []*journal.Record
		want   bool
	}{
		"failed behind a resume":  {[]*journal.Record{user, warm, rec("session.error", 4), rec("session.shutdown", 5)}, false},
		"an error of the next":    {[]*journal.Record{user, rec("session.resume", 3), rec("session.error", 4)}, true},
		"nothing":                 {},
		"not answered":            {[]*journal.Record{last, user, rec("assistant.turn_start", 3)}, true},
		"calls a tool":            {[]*journal.Record{user, call, rec("tool.execution_start", 3)}, true},
		"has a result":            {[]*journal.Record{user, call, rec("tool.execution_complete", 3)}, true},
		"finished":                {[]*journal.Record{user, call, last, rec("assistant.turn_end", 3)}, false},
		"aborted":                 {[]*journal.Record{user, call, rec("abort", 3)}, false},
		"a subagent's message":    {[]*journal.Record{user, last, helper}, false},
		"a message after the end": {[]*journal.Record{user, last, user}, true},
		"failed":                  {[]*journal.Record{user, rec("assistant.turn_end", 3), rec("session.error", 4)}, false},
		"failed behind a call":    {[]*journal.Record{user, call, rec("session.error", 4), rec("session.shutdown", 5)}, false},
		"a client's error":        {[]*journal.Record{user, logged}, true},
		"an error of another process": {
			[]*journal.Record{user, rec("session.shutdown", 3), rec("session.error", 4), rec("session.shutdown", 5)}, true,
		},
	} {
		if got := Unfinished(test.events); got != test.want {
			t.Errorf("%s: unfinished is %v", name, got)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	const (
		asked   = `permission.requested {"requestId":"r","permissionRequest":{"toolCallId":"c"}}`
		refused = `permission.completed {"requestId":"r","result":{"kind":"denied-interactively-by-user"}}`
		ended   = `tool.execution_complete {"toolCallId":"c"}`
	)
	for name, test := range map[string]struct {
		events []string
		want   []string
	}{
		"nothing":              {},
		"not answered":         {events: []string{asked}},
		"refused":              {events: []string{asked, refused}, want: []string{"r"}},
		"approved":             {events: []string{asked, `permission.completed {"requestId":"r","result":{"kind":"approved"}}`}},
		"ended":                {events: []string{asked, refused, ended}},
		"another one ended":    {events: []string{asked, refused, `tool.execution_complete {"toolCallId":"d"}`}, want: []string{"r"}},
		"aborted":              {events: []string{asked, refused, `abort {}`}},
		"the agent went on":    {events: []string{asked, refused, `assistant.turn_end {}`}},
		"a message came":       {events: []string{asked, refused, `user.message {}`}},
		"not asked":            {events: []string{refused}},
		"an answer of no kind": {events: []string{asked, `permission.completed {"requestId":"r"}`}},
	} {
		var records []*journal.Record
		for _, e := range test.events {
			kind, data, _ := strings.Cut(e, " ")
			records = append(records, &journal.Record{Type: kind, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, kind, data)})
		}
		if got := Refused(records); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
		for _, rec := range records {
			rec.Agent = "a1"
		}
		if got := Refused(records); got != nil {
			t.Errorf("%s, of a sub-agent: %q", name, got)
		}
	}
}

func TestLingering(t *testing.T) {
	t.Parallel()
	const (
		asked    = `permission.requested {"requestId":"r","permissionRequest":{"toolCallId":"c"}}`
		answered = `permission.completed {"requestId":"r","result":{"kind":"approved"}}`
		ended    = `tool.execution_complete {"toolCallId":"c"}`
		left     = `session.resume {"continuePendingWork":false,"sessionWasActive":false}`
	)
	for name, test := range map[string]struct {
		events    []string
		withdrawn bool
		want      bool
	}{
		"nothing":                 {},
		"it waits":                {events: []string{asked}},
		"it is withdrawn":         {events: []string{asked}, withdrawn: true, want: true},
		"a resume":                {events: []string{asked, left}, want: true},
		"a resume that continues": {events: []string{asked, strings.Replace(left, "false", "true", 1)}},
		"aborted":                 {events: []string{asked, `abort {}`}, want: true},
		"a message":               {events: []string{asked, `user.message {}`}, want: true},
		"the end of a step":       {events: []string{asked, `assistant.turn_end {}`}, want: true},
		"answered":                {events: []string{asked, answered, `abort {}`}, withdrawn: true},
		"answered later":          {events: []string{asked, `abort {}`, answered}},
		"ended":                   {events: []string{asked, ended, `abort {}`}, withdrawn: true},
		"ended later":             {events: []string{asked, `abort {}`, ended}},
		"another one ended":       {events: []string{asked, `tool.execution_complete {"toolCallId":"d"}`, `abort {}`}, want: true},
	} {
		var records []*journal.Record
		for _, e := range test.events {
			kind, data, _ := strings.Cut(e, " ")
			records = append(records, &journal.Record{Type: kind, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, kind, data)})
		}
		if got := Lingering(records, test.withdrawn); got["r"] != test.want || len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
		for _, rec := range records {
			rec.Agent = "a1"
		}
		if got := Lingering(records, test.withdrawn); len(got) > 0 {
			t.Errorf("%s, of a sub-agent: %v", name, got)
		}
	}
}

func TestUnended(t *testing.T) {
	t.Parallel()
	const (
		asked, answered = `external_tool.requested {"requestId":"r","toolCallId":"c"}`, `external_tool.completed {"requestId":"r"}`
		ended           = `tool.execution_complete {"toolCallId":"c"}`
	)
	for name, test := range map[string]struct {
		events []string
		want   bool
	}{
		"nothing":             {},
		"not answered":        {events: []string{asked}},
		"answered":            {events: []string{asked, answered}, want: true},
		"ended":               {events: []string{asked, answered, ended}},
		"another one ended":   {events: []string{asked, answered, `tool.execution_complete {"toolCallId":"d"}`}, want: true},
		"aborted":             {events: []string{asked, answered, `abort {}`}},
		"the agent went on":   {events: []string{asked, answered, `assistant.turn_end {}`}},
		"a message came":      {events: []string{asked, answered, `user.message {}`}},
		"not asked":           {events: []string{answered}},
		"asked once more":     {events: []string{asked, answered, ended, asked}},
		"answered once again": {events: []string{asked, answered, ended, asked, answered}, want: true},
	} {
		var records []*journal.Record
		for _, e := range test.events {
			kind, data, _ := strings.Cut(e, " ")
			records = append(records, &journal.Record{Type: kind, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, kind, data)})
		}
		if got := Unended(records); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		for _, rec := range records {
			rec.Agent = "a1"
		}
		if Unended(records) {
			t.Errorf("%s, of a sub-agent: the session's own agent waits", name)
		}
	}
}

// TestOrdered: what the journal lacks may stand before what it has only if it happened later.
func TestOrdered(t *testing.T) {
	t.Parallel()
	at := func(n byte, second int) *journal.Record {
		r := rec("user.message", n)
		r.JSON = fmt.Appendf(nil, `{"data":{},"timestamp":"2031-01-01T00:00:%02d.000Z"}`, second)
		return r
	}
	lookup := func(id journal.ID) (journal.Position, bool) {
		return journal.Position{Seq: uint64(id[15])}, id[15] < 10
	}
	for name, tc := range map[string]struct {
		history []*journal.Record
		want    bool
	}{
		"nothing is lacking":                 {[]*journal.Record{at(1, 1), at(2, 2)}, true},
		"the end is lacking":                 {[]*journal.Record{at(1, 1), at(11, 2), at(12, 3)}, true},
		"the middle is lacking":              {[]*journal.Record{at(1, 1), at(11, 2), at(2, 3)}, false},
		"at the same time":                   {[]*journal.Record{at(1, 1), at(11, 2), at(2, 2)}, false},
		"it was written late":                {[]*journal.Record{at(1, 1), at(11, 3), at(2, 2)}, true},
		"behind two, between them":           {[]*journal.Record{at(1, 1), at(11, 2), at(12, 4), at(2, 3)}, false},
		"behind two, the second one first":   {[]*journal.Record{at(1, 1), at(11, 4), at(12, 2), at(2, 3)}, false},
		"behind two, before both":            {[]*journal.Record{at(1, 1), at(11, 4), at(12, 3), at(2, 2)}, true},
		"those that both have change places": {[]*journal.Record{at(2, 2), at(1, 1), at(11, 3)}, true},
		"an older one is behind":             {[]*journal.Record{at(2, 2), at(11, 3), at(1, 4)}, true},
	} {
		if got := Ordered(tc.history, lookup); got != tc.want {
			t.Errorf("%s: ordered is %v", name, got)
		}
	}
}

// TestWithdrawn: what a resume has ended stays so until a turn begins.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	resumed := func(goesOn, active bool) *journal.Record {
		r := rec("session.resume", 1)
		r.JSON = fmt.Appendf(nil, `{"type":"session.resume","data":{"continuePendingWork":%v,"sessionWasActive":%v}}`, goesOn, active)
		return r
	}
	var k Known
	for i, step := range []struct {
		rec  *journal.Record
		want bool
	}{
		{resumed(true, false), false}, {resumed(false, true), false}, {resumed(false, false), true}, {resumed(true, false), true},
		{rec("session.idle", 2), true}, {rec("user.message", 3), false},
		{resumed(false, false), true}, {rec("assistant.turn_start", 4), false},
	} {
		if k.Apply(step.rec); k.Withdrawn != step.want {
			t.Errorf("step %d: withdrawn is %v", i, k.Withdrawn)
		}
	}
}

// TestUnansweredBehindAResume: a resume that does not continue the work of a session that was closed ends its requests.
func TestUnansweredBehindAResume(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]int{
		`{"continuePendingWork":false,"sessionWasActive":false}`: 0,
		`{"continuePendingWork":true,"sessionWasActive":false}`:  1,
		`{"continuePendingWork":false,"sessionWasActive":true}`:  1,
		`7`: 1,
	} {
		var u Unanswered
		u.Follow(rec(callback.PermissionRequested, 1))
		resumed := rec("session.resume", 2)
		resumed.JSON = []byte(`{"type":"session.resume","data":` + data + `}`)
		if u.Follow(resumed); len(u) != want {
			t.Errorf("%s leaves %d requests, want %d", data, len(u), want)
		}
	}
}

// TestRestEndsAnInterruption: when the session comes to rest, nothing is to be done about an earlier turn, and the count of
// continuations begins anew.
func TestRestEndsAnInterruption(t *testing.T) {
	t.Parallel()
	known := Known{Interruption: turn.Interruption{Last: true, Told: 2, Aborted: true}}
	known.Apply(rec("assistant.idle", 1))
	if known.Interruption.Told != 2 {
		t.Errorf("before it rests: %+v", known.Interruption)
	}
	known.Apply(rec("session.idle", 2))
	if known.Interruption != (turn.Interruption{}) {
		t.Errorf("at rest: %+v", known.Interruption)
	}
}

// TestOrderWithoutATime: an event without a time is not known to have happened before what the journal lacks.
func TestOrderWithoutATime(t *testing.T) {
	t.Parallel()
	lacked := rec("e", 1)
	lacked.JSON = []byte(`{"data":{},"timestamp":"2031-06-01T00:00:01.000Z"}`)
	lookup := func(id journal.ID) (journal.Position, bool) { return journal.Position{Seq: 5}, id != lacked.ID }
	if Ordered([]*journal.Record{lacked, rec("e", 2)}, lookup) {
		t.Error("what the journal lacks is taken for the end of the history")
	}
}
