package sim

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// noted is what readers are told between the events, by the processes of the bridge together.
type noted struct {
	requested, resolved map[string]int // callbacks, by their ids
	restarted           int            // CLI processes that have ended
	lost, resent        map[string]bool
	continued           map[string]bool
	ends                []bridgev1.CloseReason // of the session's use
}

func newNoted() noted {
	return noted{map[string]int{}, map[string]int{}, 0, map[string]bool{}, map[string]bool{}, map[string]bool{}, nil}
}

// note notes a note that the reader gets. The caller holds the world's lock.
func (n *noted) note(rec *journal.Record) {
	switch of := rec.Note.(type) {
	case session.Requested:
		n.requested[of.Pending.ID]++
	case session.Resolved:
		n.resolved[of.ID]++
	case session.Restarted:
		n.restarted++
	case session.Resent:
		for _, id := range of.IDs {
			n.resent[id] = true
		}
	case session.TurnOver:
		for _, id := range of.IDs {
			n.lost[id] = of.Err != nil
		}
	case session.Ended:
		n.ends = append(n.ends, of.Reason)
	case session.Continued:
		n.continued[of.MessageID] = true
	}
}

// checkNotes: readers are told of callbacks as callers are, and of messages that are lost.
func (w *world) checkNotes() {
	for _, p := range w.prompts {
		if p.over && p.outcome.Err != nil && !w.noted.lost[p.id] && w.restarts+w.reader.gaps == 0 {
			w.fail("readers are not told that the message %s is lost", p.id)
		}
		if p.settled && w.noted.lost[p.id] {
			w.fail("readers are told that the message %s is lost, whose turn had ended before it was cut", p.id)
		}
		if p.over && p.err == nil && p.outcome.End.Epoch == 0 {
			w.fail("the outcome of the message %s has no position", p.id)
		}
	}
	if w.restarts+w.reader.gaps+w.reader.returns > 0 { // who begins anew gets no earlier notes, but the state
		return
	}
	for id, a := range w.callbacks {
		if w.noted.requested[id] < a.times || w.noted.resolved[id] != a.ends {
			w.fail("readers are told %d requests and %d ends of callback %s, callers %d and %d", w.noted.requested[id], w.noted.resolved[id], id,
				a.times, a.ends)
		}
	}
}
