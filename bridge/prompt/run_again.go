package prompt

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// settleRun settles a Run that a crash interrupted before its start was recorded. If the session
// exists, its outbox and its history decide whether the prompt was sent; if a session that the Run
// was to create does not exist, run starts it again.
func (svc *Service) settleRun(
	r *bridgev1.RunRequest, p Interrupted, run func(context.Context) (*bridgev1.RunStarted, error),
) *idempotency.Settlement[*bridgev1.RunStarted] {
	of := func(id string) *idempotency.Settlement[*bridgev1.RunStarted] {
		p.SessionID = id
		return Settlement(svc.cfg.Sessions.Open, p, func(messageID string, _ journal.Position) *bridgev1.RunStarted {
			return &bridgev1.RunStarted{SessionId: id, MessageId: messageID}
		})
	}
	settlement := of(p.SessionID)
	if r.GetCreate() == nil {
		return settlement
	}
	id := p.SessionID
	settlement.Before = func(context.Context) []byte { return []byte(id) }
	settlement.Find = func(ctx context.Context, chosen []byte) (*bridgev1.RunStarted, error) {
		if _, err := svc.cfg.Sessions.Find(ctx, string(chosen)); fault.ReasonOf(err) == fault.SessionNotFound {
			return run(ctx)
		}
		return of(string(chosen)).Find(ctx, nil)
	}
	return settlement
}

// runAgain returns the turn of a Run that an earlier process of the bridge began. The session's
// journal has its events. The turn goes on, or has ended: then the journal has its outcome too.
func (svc *Service) runAgain(
	ctx context.Context, r *bridgev1.RunRequest, started *bridgev1.RunStarted,
) (*startedTurn, error) {
	// Not open: a Run's session is disconnected after the turn.
	s, err := svc.cfg.Sessions.Find(ctx, started.GetSessionId())
	if err != nil {
		return nil, err
	}
	id := started.GetMessageId()
	waiter, at, found, err := s.TurnOf(ctx, id)
	if err != nil {
		return nil, err
	}
	t := svc.newTurn(ctx, s, r)
	t.sent = session.Sent{MessageID: id, At: at, Waiter: waiter}
	if r.GetCreate() == nil && found {
		t.begin = session.Proto(journal.Position{Epoch: at.Epoch, Seq: at.Seq - 1})
	}
	if earlier := svc.runs.put(t); earlier != t {
		return earlier, nil
	}
	svc.disconnectAfter(t)
	return t, nil
}
