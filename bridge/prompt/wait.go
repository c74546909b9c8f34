package prompt

import (
	"cmp"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SendAndWait sends a prompt and waits for the end of its turn.
func (svc *Service) SendAndWait(
	ctx context.Context, r *bridgev1.SendAndWaitRequest,
) (*bridgev1.SendAndWaitResponse, error) {
	idle, err := fields.Duration(r.GetIdleTimeout(), "idle_timeout", 0, request.MaxTimeout)
	if err != nil {
		return nil, err
	}
	timeout, err := fields.Duration(r.GetTimeout(), "timeout", 0, request.MaxTimeout)
	if err != nil {
		return nil, err
	}
	found := func(id string, at journal.Position) *bridgev1.SendAndWaitResponse {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: at}
		if s, err := svc.cfg.Sessions.Open(ctx, r.GetSessionId()); err == nil {
			if again, err := s.Sender().Repeat(ctx, id); err == nil && again.Waiter != nil {
				return &bridgev1.SendAndWaitResponse{MessageId: id} // its turn has not ended
			}
			if out = s.Turns().OutcomeOf(ctx, at); out.Lost() && s.Continues() {
				return &bridgev1.SendAndWaitResponse{MessageId: id} // another turn may continue it
			}
		}
		return &bridgev1.SendAndWaitResponse{MessageId: id, Outcome: out.Proto()}
	}
	// The prompt is sent once, however often the wait is interrupted.
	var begun *startedTurn
	send := func(ctx context.Context, done func(*bridgev1.SendAndWaitResponse, error)) {
		s, m, err := svc.promptOf(ctx, backend.OpSendAndWait, nil, r)
		if err != nil {
			done(nil, err)
			return
		}
		svc.StartMessage(ctx, s, m, func(sent session.Sent, err error) {
			if err != nil {
				done(nil, err)
				return
			}
			sent.Waiter = s.Follow(sent.Waiter, sent.MessageID)
			begun = &startedTurn{s: s, sent: sent}
			if r.GetRequestId() != "" {
				svc.runs.put(begun)
			}
			position.Record(ctx, sent.At)
			done(&bridgev1.SendAndWaitResponse{MessageId: sent.MessageID}, nil)
		})
	}
	reply, err := idempotency.Run(ctx, svc.cfg.Operations, once(ctx, svc, backend.OpSendAndWait, r, found, send))
	if err != nil || reply.GetOutcome() != nil {
		return reply, err
	}
	wait := func(ctx context.Context) (*bridgev1.SendAndWaitResponse, error) {
		if begun == nil {
			begun = svc.runs.get(ctx, r.GetSessionId(), reply.GetMessageId())
		}
		if begun == nil {
			var err error
			if begun, err = svc.turnOf(ctx, r.GetSessionId(), reply.GetMessageId()); err != nil {
				return nil, err
			}
		}
		ctx, done := svc.cfg.Sessions.During(ctx, begun.s)
		out, err := svc.awaitTurn(ctx, begun, reply.GetMessageId(), idle, timeout)
		return out, done(err)
	}
	return idempotency.Run(ctx, svc.cfg.Operations, idempotency.Operation[*bridgev1.SendAndWaitResponse]{
		Scope: idempotency.On(backend.OpTurnEnd, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Do: idempotency.Blocking(wait),
	})
}

// awaitTurn waits for the end of the turn of a message that SendAndWait has sent.
func (svc *Service) awaitTurn(
	ctx context.Context, begun *startedTurn, message string, idle, timeout time.Duration,
) (*bridgev1.SendAndWaitResponse, error) {
	wait, cancel := context.WithTimeout(ctx, cmp.Or(timeout, request.MaxTimeout))
	defer cancel()
	defer context.AfterFunc(svc.cfg.Shutdown.Stopped(), cancel)()
	out := begun.sent.Waiter.Wait(wait, idle)
	if err := ctx.Err(); err != nil {
		return nil, session.Classify(err, "")
	}
	if out.Status == bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT && svc.cfg.Shutdown.Stopped().Err() != nil {
		return nil, fault.New(fault.Draining, "the server stops before the turn has ended").With("message_id", message)
	}
	if out.Err != nil {
		return nil, out.Err
	}
	// A reported outcome survives a restart.
	if err := begun.s.Journal().Await(ctx, out.End); err != nil {
		return nil, session.Classify(err, "")
	}
	position.Record(ctx, out.End)
	return &bridgev1.SendAndWaitResponse{MessageId: message, Outcome: out.Proto()}, nil
}

// turnOf returns the turn of a message that an earlier process of the bridge accepted.
func (svc *Service) turnOf(ctx context.Context, id, message string) (*startedTurn, error) {
	s, err := svc.cfg.Sessions.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	waiter, _, _, err := s.TurnOf(ctx, message)
	if err != nil {
		return nil, err
	}
	return &startedTurn{s: s, sent: session.Sent{MessageID: message, Waiter: waiter}}, nil
}
