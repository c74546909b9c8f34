package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// record is an event of a journal, with the CLI's own text.
type record struct {
	entry
	raw string
}

// checker compares what the bridge said of a schedule with what the CLI did, when both have come to rest.
type checker struct {
	ctx   context.Context
	real  bool   // the CLI is the real one
	dir   string // of the schedule
	home  string // of the CLI
	rec   *recorder
	calls *calls
	by    *caller
	given *positions
	// load has a session loaded, so that the bridge compares it with the CLI's history.
	load func(*conversation)

	disorders []disorder      // that the server reported
	early     map[string]bool // events that the CLI told early
}

// check compares what the bridge says with what the CLI did.
func (w *world) check(r *Report) {
	log, err := w.host.entries()
	if err != nil {
		w.rec.violated("the oracle cannot be read: %v", err)
		return
	}
	k := &checker{
		ctx: w.ctx, real: w.plan.real(), dir: w.dir, home: w.host.config.Home, rec: w.rec, calls: w.calls, by: w.callers[0],
		given: &w.positions, disorders: disorders(w.host.said()), early: map[string]bool{},
		load: func(c *conversation) { w.logEvent(step{pick: [4]uint32{uint32(c.n)}}) },
	}
	r.Counts["CLI processes"] = w.host.lives()
	r.Counts["bursts left out of order"] = len(k.disorders)
	r.Counts["readers and participants"] = len(w.audience.readers) + len(w.audience.participants)
	for id, n := range fakecli.Accepted(log) {
		r.Counts["answers the CLI took"] += n
		if n > 1 {
			w.rec.violated("callback %s was answered %d times in the CLI", id, n)
			k.quote(log, id)
		}
	}
	for _, c := range w.sessions {
		journal, history := k.agree(c)
		if log, err = w.host.entries(); err != nil {
			w.rec.violated("the oracle cannot be read: %v", err)
		}
		r.Counts["durable events of the CLI"] += len(history)
		if log != nil {
			k.checkOrder(c, journal, emitted(log))
			k.checkGiven(c, emitted(log))
		}
		k.checkHistory(c, history, w.prompts.of(c))
		for _, f := range w.audience.followers() {
			if f.session == c.id {
				f.check(journal)
				r.Counts["events delivered"] += len(f.events)
				for _, n := range f.gaps {
					r.Counts["gaps told"] += n
				}
			}
		}
	}
	r.Counts["events told early by the CLI"] = len(k.early)
	k.checkList(w.sessions, int(w.abandoned.Load()))
}

// quote puts what an oracle says of something into the schedule's log.
func (k *checker) quote(log []fakecli.Entry, id string) {
	id, _, _ = strings.Cut(id, " ")
	replies := map[string]bool{}
	for i, e := range log {
		if strings.Contains(string(e.Body), id) || e.Kind == fakecli.EntryReply && replies[e.ID] ||
			e.Type == "connect" {
			replies[e.ID] = e.Kind == fakecli.EntryReceived
			k.rec.logf("oracle %d: %s %s %s %s %s %.300s", i, e.Time, e.Kind, e.Session, e.Type, e.ID, e.Body)
		}
	}
}

// journal reads the whole journal of a session.
func (k *checker) journal(c *conversation) (out []record) {
	token := ""
	for {
		var page *bridgev1.ListEventsResponse
		err := k.calls.do("ListEvents", func(ctx context.Context) (err error) {
			page, err = k.by.sessions.ListEvents(ctx, &bridgev1.ListEventsRequest{
				SessionId: c.id, PageToken: token, OriginalJson: true, Filter: everything.filter(),
			})
			return err
		})
		if err != nil {
			k.rec.violated("the journal of %s cannot be read: %v", c.id, err)
			return out
		}
		if page.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPOCH_ENDED {
			out = nil // the whole of the new one follows
		}
		for _, e := range page.GetEvents() {
			out = append(out, record{entryOf(e), e.GetOriginalJson()})
		}
		if token = page.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// agreeWithin is how long the journal may be behind the CLI: it writes its history before, or
// after, it tells us.
const agreeWithin = 10 * time.Second

// agree waits for the journal to hold the CLI's history.
func (k *checker) agree(c *conversation) (journal []record, history []said) {
	deadline := time.Now().Add(agreeWithin)
	for try := 0; ; try++ {
		history, err := k.kept(c.id)
		if err != nil {
			k.rec.violated("the history of %s cannot be read: %v", c.id, err)
		}
		journal = k.journal(c)
		differences := k.differ(journal, history)
		if len(differences) == 0 {
			return journal, history
		}
		if time.Now().After(deadline) || k.ctx.Err() != nil {
			for _, d := range differences {
				k.rec.violated("journal of %s: %s", c.id, d)
			}
			return journal, history
		}
		if try%10 == 3 {
			// A session that no runtime has is compared with its history when it is loaded.
			k.load(c)
		}
		pause(k.ctx, 50*time.Millisecond)
	}
}

// differ compares a journal with the CLI's history: every event once, in the same order, to
// the byte where the CLI is the fake one.
func (k *checker) differ(journal []record, history []said) (out []string) {
	at := map[string]int{}
	for i, r := range journal {
		if _, ok := at[r.id]; ok {
			out = append(out, "event "+r.id+" ("+r.kind+") is there twice")
		}
		at[r.id] = i
	}
	last := -1
	for _, h := range history {
		if h.Type == unspoken {
			continue
		}
		i, ok := at[h.ID]
		switch {
		case !ok:
			out = append(out, "event "+h.ID+" ("+h.Type+") is missing")
			continue
		// in the journal the earlier one comes later
		case i < last && !k.writtenLate(journal[i], journal[last]) && !k.toldEarly(h.ID, journal[last].id):
			out = append(out, fmt.Sprintf("event %s (%s, %s) is at %v, before %s (%s, %s) at %v, which was before it",
				h.ID, h.Type, stamp(journal[i]), journal[i].at, journal[last].id, journal[last].kind,
				stamp(journal[last]), journal[last].at))
		case !k.same(journal[i].raw, h.raw):
			out = append(out,
				"event "+h.ID+" ("+h.Type+") is not what the CLI wrote: "+journal[i].raw+" / "+string(h.raw))
		}
		last = max(last, i)
	}
	return out
}

// writtenLate reports whether an event that the CLI wrote behind another happened before it. The real one does so: an
// abort behind the end of the turn that it ended, a warning behind its cause. The CLI's clock shows it, but for one
// pair: a resume that warns is sent before its warning, and written and stamped after it.
func (k *checker) writtenLate(late, other record) bool {
	if !k.real {
		return false
	}
	if late.kind == "session.resume" && other.kind == "session.warning" {
		return true
	}
	a, b := stamp(late), stamp(other)
	return a != "" && b != "" && a <= b
}

// stamp is when an event happened by the CLI's clock: of one form, which sorts.
func stamp(r record) string {
	var e struct{ Timestamp string }
	_ = json.Unmarshal([]byte(r.raw), &e)
	return e.Timestamp
}

// unspoken is the type of an event that the real CLI writes into its history and does not send.
const unspoken = "session.usage_record"

// same compares an event of a journal with that of the history. The real CLI leaves
// copies of the prompt and of results out of what it writes, and its chain of parents goes
// over what is unspoken.
func (k *checker) same(told string, kept []byte) bool {
	if !k.real {
		return told == string(bytes.TrimSpace(kept))
	}
	var a, b map[string]any
	if json.Unmarshal([]byte(told), &a) != nil || json.Unmarshal(kept, &b) != nil {
		return false
	}
	for _, e := range []map[string]any{a, b} {
		delete(e, "parentId")
		if data, ok := e["data"].(map[string]any); ok {
			delete(data, "contentBlocks")
			if result, ok := data["result"].(map[string]any); ok && result["detailedContent"] == result["content"] {
				delete(result, "detailedContent")
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// checkOrder checks that the journal holds nothing that the CLI did not emit, in the order in
// which it did.
func (k *checker) checkOrder(c *conversation, journal []record, order map[string]int) {
	last, before := -1, ""
	for _, r := range journal {
		i, ok := order[r.id]
		switch {
		case !ok:
			k.rec.violated("journal of %s: nobody emitted %s (%s)", c.id, r.id, r.kind)
		case i < last && !k.excused(c, r.at):
			k.rec.violated("journal of %s: %s %s at %v was emitted before %s, and comes after it", c.id, r.kind, r.id,
				r.at, before)
		}
		if ok {
			last, before = i, r.id
		}
	}
}

// checkGiven checks that the positions that readers got, also of events that the journal no longer has, are in the
// order in which the CLI emitted the events, in any order in which it sent them, unless the server says that it left a
// burst as it came.
func (k *checker) checkGiven(c *conversation, order map[string]int) {
	given := k.given.of(c.id)
	last := -1
	var before place
	for _, p := range slices.SortedFunc(maps.Keys(given), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.seq, b.seq))
	}) {
		i, ok := order[given[p]]
		switch {
		case !ok || p.epoch != before.epoch:
		case i < last && !k.excused(c, p):
			k.rec.violated("session %s: readers were given %s at %v, which was emitted before %s at %v", c.id, given[p],
				p, given[before], before)
		}
		if ok {
			last, before = i, p
		}
	}
}

// checkHistory checks what the CLI received: every prompt at most once, and exactly once if a call returned its answer;
// every request has at most one answer.
func (k *checker) checkHistory(c *conversation, history []said, prompts []*prompt) {
	messages, completed := map[string]int{}, map[string]int{}
	for _, h := range history {
		var d struct{ Content, RequestID string }
		if json.Unmarshal(h.Data, &d) != nil {
			continue
		}
		switch {
		case h.Type == "user.message":
			for _, word := range strings.Fields(d.Content) {
				messages[word]++
			}
		case h.Type == "permission.completed" || h.Type == "external_tool.completed":
			completed[d.RequestID]++
		}
	}
	for id, n := range completed {
		if n > 1 {
			k.rec.violated("request %s of session %s was completed %d times", id, c.id, n)
		}
	}
	for _, p := range prompts {
		n := messages[p.word]
		if n > 1 {
			k.rec.violated("prompt %s was given to session %s %d times", p.word, c.id, n)
		}
		if p.completed && n == 0 {
			k.rec.violated("prompt %s of session %s was answered, and never given", p.word, c.id)
		}
		if len(p.messages) > 1 {
			k.rec.violated("prompt %s of session %s has several ids: %v", p.word, c.id, p.messages)
		}
	}
}

// check checks that a reader got every durable event of its range that it wished for,
// once, in the journal's order.
func (t *track) check(journal []record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return
	}
	if n := len(journal); n > 0 && t.at.epoch < journal[n-1].at.epoch {
		t.outlived(journal)
		return
	}
	missing := func(p place) bool {
		for i := 0; i < len(t.lost); i += 2 {
			if t.lost[i].before(p) && !t.lost[i+1].before(p) {
				return true
			}
		}
		return false
	}
	inRange := func(e entry) bool {
		return e.kept() && t.taste.passes(e) && t.begin.before(e.at) && !t.at.before(e.at) && !missing(e.at)
	}
	var want, got []entry
	for _, r := range journal {
		if inRange(r.entry) {
			want = append(want, r.entry)
		}
	}
	for _, e := range t.events {
		if inRange(e) {
			got = append(got, e)
		}
	}
	if slices.Equal(want, got) {
		return
	}
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.violated("after %d durable events it should have got %v, and got %v", i, at(want, i), at(got, i))
			return
		}
	}
}

// outlived checks a reader that had gone before the journal began a new epoch: the new epoch still has the events that
// it got, perhaps at other positions, and it got each once.
func (t *track) outlived(journal []record) {
	there := map[string]int{}
	for _, r := range journal {
		there[r.id]++
	}
	for _, e := range t.events {
		if !e.kept() {
			continue
		}
		if there[e.id]--; there[e.id] < 0 {
			t.violated("it got %v, which the journal's new epoch does not have, or has once and it twice", e)
		}
	}
}

func at(list []entry, i int) any {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// checkList checks that only the created sessions exist: a create that was repeated made one.
func (k *checker) checkList(sessions []*conversation, abandoned int) {
	known := map[string]bool{}
	for _, c := range sessions {
		known[c.id] = true
	}
	var open, all []string
	var err error
	for range restTries { // the runtime may just be ending
		if open, all, err = k.listed(known); err == nil {
			break
		}
		pause(k.ctx, 50*time.Millisecond)
	}
	if err != nil || len(open) > abandoned || len(all)-len(open) != len(known) {
		k.rec.violated("%d sessions were made, and listed are %v, of which nobody made %v (%v)", len(known), all, open,
			err)
	}
}

// listed lists the sessions, and the unknown ones among them.
func (k *checker) listed(known map[string]bool) (open, all []string, err error) {
	err = k.calls.do("ListSessions", func(ctx context.Context) error {
		r, err := k.by.sessions.ListSessions(ctx, &bridgev1.ListSessionsRequest{})
		for _, s := range r.GetSessions() {
			all = append(all, s.GetSessionId())
			if !known[s.GetSessionId()] {
				open = append(open, s.GetSessionId())
			}
		}
		return err
	})
	return open, all, err
}
