package session

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A message that the CLI accepted is in its memory only until it is taken up, and one
// that was sent may not even have been read when the runtime ends. Which of them became
// part of the conversation is found in the history, when the session is loaded again.

// ErrUnsettled is in the error of a send of which it is not known whether the CLI took it up: the
// history may show it, once it can be read.
var ErrUnsettled = errors.New("it is not known whether the CLI accepted the message")

// settleTimeout bounds loading a session to see what became of a message.
const settleTimeout = time.Minute

// unconfirmed resolves a send during which the runtime ended: if the history has the message, it was sent, and its turn
// was lost. The journal may have a message that the CLI has lost.
func (sd *Sender) unconfirmed(ctx context.Context, a *attempt, cause error) (Sent, error) {
	_, answered := errors.AsType[*rpcconn.Error](cause)
	if fault.ReasonOf(cause) != fault.RuntimeLost || answered || errors.Is(cause, rpcconn.ErrNotSent) {
		return Sent{}, cause
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	unknown := fault.Wrap(errors.Join(ErrUnsettled, cause), fault.SendUnconfirmed,
		"the runtime ended before it replied, and the history cannot be read")
	select {
	case <-a.rt.Ended(): // only then is it known that the session is to be loaded
	case <-ctx.Done():
		return Sent{}, unknown
	}
	if _, err := sd.s.loader.Load(ctx); err != nil {
		return Sent{}, unknown
	}
	if err := sd.s.prompts.Forgotten(a.n); err != nil {
		return Sent{}, err
	}
	ids, at := inHistory(ctx, sd.s.journal, a.prompt, a.before)
	if ids == nil {
		return Sent{}, fault.Wrap(cause, fault.SendUnconfirmed,
			"the runtime ended before it replied, and the history does not contain the message")
	}
	w := EndedWaiter(turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: sd.s.journal.Last()})
	return Sent{MessageID: ids[0], Result: a.m.result(ids), At: at, Waiter: w}, nil
}

// inHistory looks for the messages of a prompt in what happened after a position, by what they say. It returns their ids
// and the position of the last one; nil if they are not all there. A fleet cannot be found: its call has no message id.
func inHistory(
	ctx context.Context, j *journal.Journal, p outbox.Prompt, after journal.Position,
) (ids []string, at journal.Position) {
	messages := outbox.MessagesOf(p)
	if p.Method == "session.fleet.start" || len(messages) == 0 {
		return nil, at
	}
	for r := range event.Since(ctx, j, after) {
		if r.Type == "user.message" && r.Agent == "" && messages[len(ids)].Says(contentOf(r)) {
			if ids = append(ids, messageIDOf(r)); len(ids) == len(messages) {
				return ids, r.Pos
			}
		}
	}
	return nil, at
}
