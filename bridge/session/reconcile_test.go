package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// durableIDs are the ids of the events that the CLI keeps, as the journal has them.
func (r *fixture) durableIDs() (ids []string) {
	for rec := range event.Since(r.t.Context(), r.s.journal, journal.Position{}) {
		var e struct{ ID string }
		if !rec.Ephemeral && json.Unmarshal(rec.JSON, &e) == nil {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// record is the CLI's own record, as lines.
func (r *fixture) record() (path string, lines []string) {
	r.t.Helper()
	path = filepath.Join(r.home, "session-state", "s1", "events.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return path, slices.Collect(strings.Lines(string(text)))
}

func lineOf(lines []string, part string) int {
	return slices.IndexFunc(lines, func(l string) bool {
		return strings.Contains(l, `"user.message"`) && strings.Contains(l, `"content":"`+part+`"`)
	})
}

// reconciling is a way in which a history and a journal came to differ.
type reconciling struct {
	history func(lines []string) []string
	journal func(all []*journal.Record) []*journal.Record
	anew    bool
	swapped bool // the journal's order is not the history's
}

// TestReconcile: what becomes of the journal when the history is loaded again and has
// changed meanwhile.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]reconciling{
		"as it was": {},
		"its end was never written": {
			history: func(lines []string) []string { return lines[:lineOf(lines, "three")] },
			journal: func(all []*journal.Record) []*journal.Record { // until it is, the session does not rest
				at := slices.IndexFunc(all, func(rec *journal.Record) bool { return contentOf(rec) == "three" })
				rest := slices.DeleteFunc(all[at:], func(rec *journal.Record) bool { return rec.Type == "session.idle" })
				return all[:at+len(rest)]
			},
		},
		"its end was cut off": {anew: true, history: func(lines []string) []string { return lines[:lineOf(lines, "three")] }},
		"somebody else went on with it": {history: func(lines []string) []string {
			return append(lines, strings.ReplaceAll(lines[lineOf(lines, "three")], `"id":"`, `"id":"0`))
		}},
		"its middle was cut out": {anew: true, history: func(lines []string) []string {
			return slices.Delete(lines, lineOf(lines, "two"), lineOf(lines, "three"))
		}},
		"its end was cut off and somebody else went on": {anew: true, history: func(lines []string) []string {
			at := lineOf(lines, "three")
			return append(slices.Clone(lines[:at]), strings.ReplaceAll(lines[at], `"id":"`, `"id":"0`))
		}},
		"the journal has a hole": {anew: true, journal: func(all []*journal.Record) []*journal.Record {
			at := slices.IndexFunc(all, func(rec *journal.Record) bool { return contentOf(rec) == "two" })
			return slices.Delete(all, at, at+2)
		}},
		"some were written late": {swapped: true, history: func(lines []string) []string {
			at := lineOf(lines, "two")
			return slices.Concat(lines[:at-1], lines[at:at+2], lines[at-1:at], lines[at+2:])
		}},
		"some were written late, behind others that nobody was told of": {swapped: true,
			history: func(lines []string) []string {
				at := len(lines) - 1
				said := strings.NewReplacer(`"id":"`, `"id":"0`, `"timestamp":"2`, `"timestamp":"9`).Replace(lines[at])
				return slices.Concat(lines[:at], []string{said}, lines[at:])
			}},
		"the journal has a hole, and some were written late": {anew: true,
			history: func(lines []string) []string {
				at := lineOf(lines, "two")
				return slices.Concat(lines[:at-1], lines[at:at+1], lines[at-1:at], lines[at+1:])
			},
			journal: func(all []*journal.Record) []*journal.Record {
				at := slices.IndexFunc(all, func(rec *journal.Record) bool { return contentOf(rec) == "two" })
				return slices.Delete(all, at, at+2)
			}},
		"the journal lacks the end": {journal: func(all []*journal.Record) []*journal.Record {
			return all[:slices.IndexFunc(all, func(rec *journal.Record) bool { return contentOf(rec) == "three" })]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.play(t)
		})
	}
}

// play makes them differ, and loads the session twice: the second time nothing is left to do.
func (test reconciling) play(t *testing.T) {
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{})
	for _, text := range []string{"one", "two", "three"} {
		r.send(message(text)).Waiter.Wait(t.Context(), 0)
	}
	r.crash()
	path, lines := r.record()
	if test.history != nil {
		if err := os.WriteFile(path, []byte(strings.Join(test.history(lines), "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if test.journal != nil {
		var all []*journal.Record
		r.s.Journal().Each(func(rec *journal.Record) bool {
			all = append(all, rec)
			return true
		})
		r.s.Journal().Restart(r.Epoch(), test.journal(all))
	}
	before, had := r.s.Journal().Last(), r.durableIDs()
	for load := range 2 {
		if _, err := r.s.loader.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		epoch := r.s.Journal().Last().Epoch
		if anew := epoch != before.Epoch; anew != (test.anew && load == 0) {
			t.Errorf("load %d: the epoch was %d, is %d", load, before.Epoch, epoch)
		}
		got := r.durableIDs()
		for _, id := range had {
			if !slices.Contains(got, id) {
				t.Errorf("load %d: event %s is lost", load, id)
			}
		}
		want := r.recordedIDs()
		both := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(want, id) })
		if test.swapped {
			slices.Sort(both)
			slices.Sort(want)
		}
		if !slices.Equal(both, want) {
			t.Errorf("load %d: the journal has the history as\n%v, not\n%v", load, both, want)
		}
		before, had = r.s.Journal().Last(), got
		r.crash()
	}
	// A reader learns of the new epoch and reads it from its beginning.
	if ended := r.epochsEnded(); test.anew != (ended > 0) && test.journal == nil {
		t.Errorf("%d epochs have ended for a reader", ended)
	}
}

// recordedIDs are the ids of the events that the CLI has written down.
func (r *fixture) recordedIDs() (ids []string) {
	r.t.Helper()
	_, lines := r.record()
	for _, l := range lines {
		var e struct{ ID string }
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// epochsEnded reads to the end, and counts the ends of epochs in the reader's gaps.
func (r *fixture) epochsEnded() (n int) {
	for {
		records, gap := r.reader.Next(nil, 1<<20)
		if gap != nil && gap.Reason == journal.EpochEnded {
			n++
		}
		if gap == nil && len(records) == 0 {
			return n
		}
	}
}

// TestBegunAnew: a session that the CLI never wrote down begins anew, and with it the
// journal's epoch; what happened before can still be read.
func TestBegunAnew(t *testing.T) {
	t.Parallel()
	r := newFixture(t, hangingTurn)
	r.open(Opening{})
	r.send(message("long"))
	said := r.awaitEvent("user.message")
	r.crash()
	path, _ := r.record()
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := r.s.Journal().Last(); now.Epoch <= said.Pos.Epoch {
		t.Errorf("the journal is at %v, the message was at %v", now, said.Pos)
	}
	if at, ok := r.s.Journal().Lookup(said.ID); !ok || at.Epoch == said.Pos.Epoch {
		t.Errorf("the message is at %v, %v", at, ok)
	}
}

var hangingTurn = fakecli.Script{Prompts: []fakecli.Prompt{{Match: "long", Turns: []fakecli.Turn{{Hang: true}}}}}
