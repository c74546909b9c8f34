package sim

import (
	"context"
	"fmt"
	"strings"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// checkSent: the reply to a prompt has the ids of its messages and a position. The caller holds the world's lock.
func (w *world) checkSent(p *prompt, sent session.Sent) {
	ids := 1
	if p.form == several {
		ids = parts
	}
	if n := strings.Count(string(sent.Result), "00000000-"); n != ids || !strings.Contains(string(sent.Result), sent.MessageID) || sent.MessageID == "" {
		w.failures = append(w.failures, "the reply to the message "+sent.MessageID+" is "+string(sent.Result))
	}
	if sent.At.Seq == 0 && !w.failed { // a disk that hangs reserves none
		w.failures = append(w.failures, "the reply to the message "+sent.MessageID+" has no position")
	}
}

// checkRequest: each request is of the session, and no prompt is given more often than it may be.
func (c *cli) checkRequest(r request) {
	if strings.HasPrefix(r.method, "session.") && r.params.SessionID != "s1" {
		c.w.failures = append(c.w.failures, r.method+" is for the session "+r.params.SessionID)
	}
	text := fmt.Sprintf(`"prompt":%q`, r.params.Prompt)
	if c.w.clustered && r.method == "session.send" && !c.w.owner.lost && c.w.of == nil && !c.w.outboxHas(text) {
		c.w.failures = append(c.w.failures, "a replica gives the agent a message that is not stored: "+text)
	}
}

// checkGivenOften: a prompt may be the reason for which processes end.
func (c *cli) checkGivenOften(p *prompt) {
	if p.given > outbox.MaxDeliveries {
		c.w.failures = append(c.w.failures, "a prompt is given too often")
	}
}

// checkAsked: who asks in the end is told the same, and readers who begin in the end learn of what has become of messages.
func (w *world) checkAsked(said map[int][]int) {
	if w.deletion.done || w.s.Loader().State() != session.Loaded {
		return
	}
	told := newNoted()
	from, err := w.s.Journal().NewReader(journal.Position{}, false, func() {})
	if err != nil {
		w.fail("a reader cannot begin: %v", err)
		return
	}
	defer from.Close()
	for {
		records, gap := from.Next(nil, 1<<20)
		if gap == nil && len(records) == 0 {
			break
		}
		for _, rec := range records {
			told.note(rec)
		}
	}
	for n, p := range w.prompts {
		switch {
		case p.id == "" || !p.over || p.err != nil || p.disconnected:
		case p.outcome.Err != nil:
			if _, err := w.s.Sender().Repeat(context.Background(), p.id); fault.ReasonOf(err) != fault.SendUnconfirmed {
				w.fail("P%d is said to be lost, and not to who asks again: %v", n, err)
			}
			if !told.lost[p.id] {
				w.fail("a reader who begins now is not told that P%d is lost", n)
			}
		case p.abortable && p.given > 1: // what a caller has aborted is no more in the outbox, which would find it by its text
		case len(said[n]) == 1 && !p.cut && (p.given == 1 || w.restarts == 0):
			waiter, at, found, err := w.s.TurnOf(w.ctx, p.id)
			if err != nil || !found || at.Seq == 0 {
				w.fail("P%d is in the conversation, and who asks for its turn is told %v %v", n, found, err)
				continue
			}
			synctest.Wait()
			if done, outcome := waiter.Done(); !isOver(done, outcome) {
				w.fail("the turn of P%d is over, and who asks for it waits", n)
			} else if again := outcomeOf(outcome()); w.crashes == 0 && again != outcomeOf(p.outcome) &&
				!(again == "ABORTED" && outcomeOf(p.outcome) == "STALLED") { // the record has the bridge's abort alone
				w.fail("P%d: the caller was told %s, and who asks again %s", n, p, again)
			}
			if p.given > 1 && !told.resent[p.id] {
				w.fail("a reader who begins now is not told that P%d was sent again", n)
			}
		}
	}
}
