package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// The methods that cut the history at a message of the user: the message and all behind it go.
const (
	rewindMethod   = "session.history.rewind"
	truncateMethod = "session.history.truncate"
)

// rewind has a caller cut the history at a message that a reader has got, two of three times with the method that the CLI
// refuses while it works. Histories of several files were not measured.
func (w *world) rewind(n int) {
	w.mu.Lock()
	messages := w.reader.messages
	if len(messages) == 0 || w.disk.file > 0 || w.cli != nil && w.cli.file > 0 {
		w.mu.Unlock()
		return
	}
	var params jsonobj.Object
	params.SetString("eventId", messages[len(messages)-1-n/3%len(messages)])
	method := rewindMethod
	if n%3 == 0 {
		method = truncateMethod
	} else {
		params.SetString("mode", "conversation")
	}
	l, crashes, cuts := w.life, w.crashes, len(w.cuts)
	w.stop.begin() // an interrupted turn is not continued meanwhile
	for _, p := range w.prompts {
		p.abortable = p.abortable || !p.over && p.crashed && w.variant.continues()
	}
	w.mu.Unlock()
	abandoned := false
	c := w.begin(func() { abandoned = true })
	w.do(func() error {
		result, _, err := l.s.Loader().Invoke(c, method, params)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.returned(c)
		if !w.lives(l) {
			return nil
		}
		w.stop.underway--
		w.note("%s: %s %v", method, result, err)
		if err == nil && strings.Contains(string(result), `"success"`) && !w.owner.lost {
			for i := range w.cuts[min(cuts, len(w.cuts)):] {
				w.cuts[cuts+i].told = true
			}
		}
		if w.isRefused(err) || abandoned || w.crashes != crashes || w.isGone(err) || err != nil && isCutAlready(err.Error()) ||
			fault.ReasonOf(err) == fault.RuntimeLost {
			return nil
		}
		return err
	})
}

// notTurn and notFound are in the CLI's errors about a message that the history does not have any more.
const notTurn, notFound = "is not a current root user turn", "not found in session"

func isCutAlready(text string) bool {
	return strings.Contains(text, notTurn) || strings.Contains(text, notFound)
}

// ready reports whether the process can work on a request. A history that is cut while tools are called was not modelled: the
// CLI then waits for answers that its lists do not have.
func (c *cli) ready(r request) bool {
	if modelMethod(r.method) { // parts of a response are taken in order
		first := slices.IndexFunc(c.requests, func(o request) bool { return modelMethod(o.method) && o.params.RequestID == r.params.RequestID })
		return string(c.requests[first].id) == string(r.id)
	}
	return r.method != truncateMethod || c.phase == idle || c.phase == thinking
}

// rewind cuts the history. The record is cut before the event says so, and before the reply.
func (c *cli) rewind(r request) {
	at := slices.IndexFunc(c.events, func(e stored) bool { return e.isMessage() && e.id() == r.params.EventID })
	if c.file > 0 { // not measured
		at = -1
	}
	// A message that has come and that the agent has not taken up may be overtaken by the cut.
	busy := c.phase != idle || len(c.queue)+len(c.steering) > 0 && c.w.lot()%2 == 0
	switch {
	case at < 0 && r.method == rewindMethod:
		c.refuse(r, fmt.Sprintf("Rewind event '%s' %s", r.params.EventID, notTurn))
		return
	case at < 0:
		c.refuse(r, fmt.Sprintf("Event %s %s", r.params.EventID, notFound))
		return
	case r.method == rewindMethod && busy:
		c.reply(r, `{"outcome":"session-busy","restoredFiles":[],"skippedFiles":[]}`)
		return
	}
	removed := len(c.events) - at
	c.w.cut(c.events[at:], false)
	if len(c.stale) > 0 {
		c.stale = unendedCalls(c.events[:at])
	}
	c.events, c.inherited, c.worked = slices.Clone(c.events[:at]), min(c.inherited, at), true
	c.write()
	c.w.disk.known = true
	c.emit("session.snapshot_rewind", fmt.Sprintf(`{"upToEventId":%q,"eventsRemoved":%d}`, r.params.EventID, removed), -1)
	if r.method == truncateMethod {
		c.reply(r, fmt.Sprintf(`{"eventsRemoved":%d}`, removed))
		return
	}
	c.reply(r, fmt.Sprintf(`{"outcome":"success","eventsRemoved":%d}`, removed))
}

// id is the id of an event.
func (e stored) id() string {
	_, rest, _ := strings.Cut(e.json, `"id":"`) // its first member
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// data is a member of an event's data that is a text.
func (e stored) data(member string) (text string) {
	var of struct{ Data map[string]json.RawMessage }
	_ = json.Unmarshal([]byte(e.json), &of) // the model has made it
	_ = json.Unmarshal(of.Data[member], &text)
	return text
}

// cut is a message that the history had.
type cut struct {
	id string
	// settled: the reader had read that the session came to rest behind it. Otherwise the history may have lost it with its
	// process, for all that the bridge can know.
	settled bool
	// told: the caller knows that it is cut.
	told bool
	// byOther: another program has cut it, so that there is no event.
	byOther bool
	// rewinds and epochs are what the reader had got by then.
	rewinds, epochs int
}

// cut notes that events are removed from the history. No turn is continued for their sake. The caller holds the world's lock.
func (w *world) cut(events []stored, byOther bool) {
	for _, e := range events {
		if !e.isMessage() {
			continue
		}
		id := e.id()
		settled := w.reader.settled[id]
		w.note("the message %s is cut from the history; its end is known: %v", id, settled)
		w.cuts = append(w.cuts, cut{id, settled, false, byOther, w.reader.rewinds, w.reader.epochs})
		if e.said >= 0 {
			p := w.prompts[e.said]
			p.cut, p.settled = true, settled
		}
		if _, text, is := strings.Cut(e.json, `"content":"P`); is && e.said == part { // the history has a part of a prompt
			var n int
			_, _ = fmt.Sscanf(text, "%d.", &n) // the model has made it
			w.prompts[n].cut = true
		}
	}
	w.stop.called = true
}

// readMessage notes a message of the user that the reader gets.
func (r *reader) readMessage(rec *journal.Record) {
	id := stored{json: string(rec.JSON)}.id()
	if !slices.Contains(r.messages, id) {
		r.messages = append(r.messages, id)
	}
	r.unsettled = append(r.unsettled, id)
	if r.said == nil {
		r.said = map[journal.ID]bool{}
	}
	r.said[rec.ID] = true
}

// readEphemeral notes what the reader gets besides the history.
func (r *reader) readEphemeral(rec *journal.Record) {
	switch rec.Type {
	case "session.idle":
		for _, id := range r.unsettled {
			r.settled[id] = true
		}
		r.unsettled = nil
	case "session.snapshot_rewind":
		r.rewinds++
	}
}

// checkCuts: of a message that was cut, and whose end the reader had read, it is told: by the event, or by a gap, behind which
// comes the history in its order. The agent has not got it again.
func (w *world) checkCuts() {
	for _, c := range w.cuts {
		// The next replica restores what was cut just before the end of the one before, unless the caller knew of it.
		if w.clustered && slices.ContainsFunc(w.disk.events, func(e stored) bool { return e.id() == c.id }) {
			if c.told {
				w.fail("the history has the message %s again, which a caller has cut", c.id)
			}
			continue
		}
		told := w.reader.epochs > c.epochs || !c.byOther && w.reader.rewinds > c.rewinds
		if c.settled && !told && w.cli != nil && w.cli.loaded {
			w.fail("the reader is not told that the message %s is cut from the history", c.id)
		}
	}
	if w.cli == nil || !w.cli.loaded {
		return
	}
	var last journal.Position
	for _, e := range w.disk.events {
		if !e.isMessage() {
			continue
		}
		at := w.reader.seen[journal.ParseID([]byte(e.id()))]
		if !last.Before(at) {
			w.fail("the history has the message %s behind one that the reader has at %v, and the reader at %v", e.id(), last, at)
		}
		last = at
	}
}
