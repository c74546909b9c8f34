package sim

import (
	"fmt"
	"slices"
)

// other has another program change the history, before the next process of the bridge reads it: meanwhile the bridge has
// unloaded the session, or its CLI process or itself has ended. Histories of several files were not measured.
func (w *world) other(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("another program is about to change the history")
	w.others = append(w.others, n)
}

// changeByOthers has the other programs change the record. The caller holds the world's lock.
func (w *world) changeByOthers() {
	for _, n := range w.others {
		w.changeByOther(n)
	}
	w.others = nil
}

// changeByOther cuts the history at one of its messages, takes a turn out of its middle, or adds one to its end.
func (w *world) changeByOther(n int) {
	events := w.disk.events
	var messages []int
	for i, e := range events {
		if e.isMessage() {
			messages = append(messages, i)
		}
	}
	if len(messages) == 0 || w.disk.file > 0 {
		return
	}
	which := len(messages) - 1 - n/3%len(messages)
	from, to := messages[which], len(events)
	if which+1 < len(messages) && n%3 == 1 {
		to = messages[which+1]
	}
	if n%3 == 2 {
		w.note("another program adds a turn")
		w.disk.events = append(slices.Clone(events), w.turnOfOther()...)
		return
	}
	w.note("another program removes %d events of %d", to-from, len(events))
	w.cut(events[from:to], true)
	w.disk.events = slices.Delete(slices.Clone(events), from, to)
}

// turnOfOther is what another CLI process adds when it resumes the session, has a turn, and ends.
func (w *world) turnOfOther() (all []stored) {
	type event struct{ kind, data string }
	events := []event{{"session.resume", `{"eventCount":1,"continuePendingWork":false,"sessionWasActive":false}`}}
	for _, t := range unendedCalls(w.disk.events) {
		events = append(events, event{"tool.execution_complete", fmt.Sprintf(`{"toolCallId":%q,"success":false}`, t.id)})
	}
	for _, e := range append(events, []event{
		{"user.message", fmt.Sprintf(`{"content":"X","messageId":%q,"interactionId":"x"}`, w.uuid())},
		{"assistant.turn_start", `{"turnId":"0","interactionId":"x"}`},
		{"assistant.message", `{"content":"AX","toolRequests":[]}`},
		{"assistant.turn_end", `{"turnId":"0"}`},
		{"session.shutdown", `{"shutdownType":"routine"}`},
	}...) {
		all = append(all, stored{
			json: eventJSON(w.uuid(), w.now(), "", e.kind, false, e.data),
			said: -1, other: e.kind == "user.message",
		})
	}
	return all
}
