package usage

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

func record(t *testing.T, text string) *journal.Record {
	t.Helper()
	rec, err := event.Parse(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func add(u *Usage, rec *journal.Record, at time.Time) {
	c := Read(rec)
	u.Add(&c, at)
}

const used = `{"type":"assistant.usage","id":"1","data":{"model":"m1","inputTokens":10,"outputTokens":2,` +
	`"cacheReadTokens":3,"cacheWriteTokens":4,"cost":1.5,"duration":250}}`

const odd = `{"type":"assistant.usage","id":"3","data":{"model":"m1","inputTokens":-5,"duration":1e300,"cost":-1}}`

// Costs that are too large do not make a session that cannot be saved.
func TestHugeCosts(t *testing.T) {
	t.Parallel()
	var u Usage
	for range 3 {
		add(&u, record(t, `{"type":"assistant.usage","id":"1","data":{"cost":1.7e308}}`), time.Now())
	}
	if text, err := json.Marshal(u); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

// A long name of a model is cut between characters: a message of protobuf has no other texts.
func TestLongModels(t *testing.T) {
	t.Parallel()
	var u Usage
	add(&u, record(t, fmt.Sprintf(`{"type":"assistant.usage","id":"1","data":{"model":"x%s"}}`, strings.Repeat("é", maxModel))),
		time.Now())
	if name := u[0].Model; len(name) != maxModel-1 || !utf8.ValidString(name) {
		t.Errorf("%d bytes: %q", len(name), name)
	}
}

// Requests and turns are counted by day in UTC and by model; requests of sub-agents too.
func TestAdd(t *testing.T) {
	t.Parallel()
	var u Usage
	day := time.Date(2026, 11, 22, 23, 30, 0, 0, time.FixedZone("west", -3600)) // the 23rd in UTC
	for _, step := range []struct {
		text string
		at   time.Time
	}{
		{used, day}, {used, day},
		{`{"type":"assistant.usage","id":"2","agentId":"a","data":{"model":"m2","inputTokens":1}}`, day},
		{odd, day.Add(24 * time.Hour)},
		{`{"type":"assistant.usage","id":"4","data":"no object"}`, day},
	} {
		add(&u, record(t, step.text), step.at)
	}
	u.EndTurn(day, "m1")
	want := Usage{
		{"2026-11-23", "", Sums{Requests: 1}},
		{"2026-11-23", "m1", Sums{
			Turns: 1, Requests: 2, Input: 20, Output: 4, CacheRead: 6, CacheWrite: 8, Cost: 3, Millis: 500,
		}},
		{"2026-11-23", "m2", Sums{Requests: 1, Input: 1}},
		{"2026-11-24", "m1", Sums{Requests: 1, Millis: 1 << 40}},
	}
	if !slices.Equal(u, want) {
		t.Errorf("%+v, want %+v", u, want)
	}
	text, err := json.Marshal(u)
	var back Usage
	if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, u) {
		t.Errorf("%s does not come back: %v, %v", text, back, err)
	}
}

// A session that lasts for years has a bounded number of rows, and the sums of all.
func TestOldestRowsAreMerged(t *testing.T) {
	t.Parallel()
	var u Usage
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const days, models = 300, 3
	for day := range days {
		for model := range models {
			text := fmt.Sprintf(`{"type":"assistant.usage","id":"1","data":{"model":"m%d","inputTokens":1}}`, model)
			add(&u, record(t, text), first.Add(time.Duration(day)*24*time.Hour))
		}
	}
	var sums Sums
	for _, row := range u {
		sums.Add(row.Sums)
	}
	last := u[len(u)-1]
	if len(u) != maxRows || sums.Requests != days*models || sums.Input != days*models {
		t.Errorf("%d rows with %+v", len(u), sums)
	}
	if u[0].Day != "2026-01-01" || u[0].Model != "" || last.Day != "2026-10-27" || last.Model != "m2" ||
		last.Requests != 1 {
		t.Errorf("from %+v to %+v", u[0], last)
	}
}

// Merged rows of many sessions are bounded, and their sums stay.
func TestMerge(t *testing.T) {
	t.Parallel()
	var all Usage
	for day := 10; day < 30; day++ {
		date := fmt.Sprintf("2026-01-%d", day)
		all.Merge(Usage{{date, "a", Sums{Requests: 1}}, {date, "b", Sums{Requests: 2}}}, 4)
	}
	all.Merge(Usage{{"2026-01-29", "b", Sums{Requests: 5}}}, 4)
	want := Usage{
		{"2026-01-10", "", Sums{Requests: 55}}, {"2026-01-28", "b", Sums{Requests: 2}},
		{"2026-01-29", "a", Sums{Requests: 1}}, {"2026-01-29", "b", Sums{Requests: 7}},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("merged: %+v, want %+v", all, want)
	}
}
