package sim

import (
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// written reports whether the record may have an event behind later ones: it is written down when a turn or a load has ended.
func (e stored) written() bool {
	return strings.Contains(e.json, `"type":"abort"`) || strings.Contains(e.json, `"type":"session.resume"`)
}

// checkRecord: what a process has that is loaded the reader has got, in the order of the record.
func (w *world) checkRecord() {
	if w.cli == nil || !w.cli.loaded || w.s.Loader().State() != session.Loaded {
		return
	}
	var last journal.Position
	for _, e := range w.disk.events {
		at, has := w.reader.seen[journal.ParseID([]byte(e.id()))]
		switch {
		case !has:
			w.fail("the reader has not got an event of the record: %s", e.json)
		case !e.written() && !last.Before(at):
			w.fail("the record has an event behind one that the reader has at %v, and the reader at %v: %s", last, at, e.json)
		case !e.written():
			last = at
		}
	}
}

// checkPositions: a turn ends behind what the agent has said in it, and before the next message of a user.
func (w *world) checkPositions() {
	for n, p := range w.prompts {
		out := p.outcome
		taken, is := w.reader.seen[journal.ParseID([]byte(p.event))]
		if said := out.Message; is && p.over && p.err == nil && !p.crashed && said != nil && said.Pos.Epoch == taken.Epoch && !taken.Before(said.Pos) {
			w.fail("P%d was taken up at %v, and is answered by what the agent said at %v", n, taken, said.Pos)
		}
		if !p.over || p.crashed || p.err != nil || out.Err != nil || out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED ||
			out.End.Epoch != w.reader.at.Epoch || p.event == "" {
			continue
		}
		if !is {
			continue
		}
		said := out.Message
		if said == nil || !taken.Before(said.Pos) || !said.Pos.Before(out.End) || w.reader.seen[said.ID] != said.Pos {
			w.fail("P%d was taken up at %v, its turn ended at %v, with what the agent said at %+v", n, taken, out.End, said)
		}
		for m, later := range w.prompts {
			at, is := w.reader.seen[journal.ParseID([]byte(later.event))]
			if is && later.event != "" && taken.Before(at) && later.turn != p.turn && !out.End.Before(at) {
				w.fail("the turn of P%d ended at %v, behind P%d at %v", n, out.End, m, at)
			}
		}
	}
}
