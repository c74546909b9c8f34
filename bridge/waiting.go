package bridge

import (
	"cmp"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SendAndWait says something and waits for the turn's end.
func (b *Bridge) SendAndWait(ctx context.Context, r *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error) {
	idle, err := fields.Duration(r.GetIdleTimeout(), "idle_timeout", 0, maxTimeout)
	if err != nil {
		return nil, err
	}
	timeout, err := fields.Duration(r.GetTimeout(), "timeout", 0, maxTimeout)
	if err != nil {
		return nil, err
	}
	found := func(id string, at journal.Position) *bridgev1.SendAndWaitResponse {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: at}
		if s, err := b.open(ctx, r.GetSessionId()); err == nil {
			if again, err := s.Sender().Repeat(ctx, id); err == nil && again.Waiter != nil {
				return &bridgev1.SendAndWaitResponse{MessageId: id} // its turn has not ended
			}
			out = s.Turns().OutcomeOf(ctx, at)
		}
		return &bridgev1.SendAndWaitResponse{MessageId: id, Outcome: out.Proto()}
	}
	// What is said is said once, however often the waiting for its end is broken off.
	var begun *startedTurn
	said, err := sendOnce(ctx, b, idempotency.SendAndWait, r, found, func(ctx context.Context) (*bridgev1.SendAndWaitResponse, error) {
		s, sent, err := b.send(ctx, idempotency.SendAndWait, r)
		if err != nil {
			return nil, err
		}
		begun = &startedTurn{s: s, sent: sent}
		if r.GetRequestId() != "" {
			b.runs.put(begun)
		}
		record(ctx, sent.At)
		return &bridgev1.SendAndWaitResponse{MessageId: sent.MessageID}, nil
	})
	if err != nil || said.GetOutcome() != nil {
		return said, err
	}
	wait := func(ctx context.Context) (*bridgev1.SendAndWaitResponse, error) {
		if begun == nil {
			begun = b.runs.get(ctx, r.GetSessionId(), said.GetMessageId())
		}
		if begun == nil {
			var err error
			if begun, err = b.turnOf(ctx, r.GetSessionId(), said.GetMessageId()); err != nil {
				return nil, err
			}
		}
		if begun == nil {
			return b.awaitTurn(ctx, nil, r.GetSessionId(), said.GetMessageId(), idle, timeout)
		}
		ctx, done := b.visiting(ctx, begun.s)
		out, err := b.awaitTurn(ctx, begun, r.GetSessionId(), said.GetMessageId(), idle, timeout)
		return out, done(err)
	}
	return operation.Run(ctx, b.operations, operation.Operation[*bridgev1.SendAndWaitResponse]{
		Scope: operation.On(idempotency.TurnEnd, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Do: wait,
	})
}

// awaitTurn waits for the end of the turn of a message that SendAndWait has sent. One that
// is nil was begun in an earlier life of the bridge, with whose runtimes it ended.
func (b *Bridge) awaitTurn(ctx context.Context, begun *startedTurn, id, message string, idle, timeout time.Duration) (*bridgev1.SendAndWaitResponse, error) {
	if begun == nil {
		s, err := b.open(ctx, id)
		if err != nil {
			return nil, err
		}
		lost := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.Journal().Last()}
		if at, ok := s.Prompts().Locate(ctx, message); ok {
			lost = s.Turns().OutcomeOf(ctx, at)
		}
		return &bridgev1.SendAndWaitResponse{MessageId: message, Outcome: lost.Proto()}, nil
	}
	wait, cancel := context.WithTimeout(ctx, cmp.Or(timeout, maxTimeout))
	defer cancel()
	defer context.AfterFunc(b.shutdown.Stopped(), cancel)()
	out := begun.sent.Waiter.Wait(wait, idle)
	if err := ctx.Err(); err != nil {
		return nil, session.Classify(err, "")
	}
	if out.Status == bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT && b.shutdown.Stopped().Err() != nil {
		return nil, fault.New(fault.Draining, "the server stops before the turn has ended").With("message_id", message)
	}
	if out.Err != nil {
		return nil, out.Err
	}
	// What is told of is there in the next life too.
	if err := begun.s.Journal().Await(ctx, out.End); err != nil {
		return nil, session.Classify(err, "")
	}
	record(ctx, out.End)
	return &bridgev1.SendAndWaitResponse{MessageId: message, Outcome: out.Proto()}, nil
}

// turnOf returns the turn of a message that an earlier life of the bridge had accepted; nil if
// there is nothing to wait for.
func (b *Bridge) turnOf(ctx context.Context, id, message string) (*startedTurn, error) {
	s, err := b.open(ctx, id)
	if err != nil {
		return nil, err
	}
	again, err := s.Sender().Repeat(ctx, message)
	if err != nil || again.Waiter == nil {
		return nil, err
	}
	return &startedTurn{s: s, sent: sending.Sent{MessageID: message, Waiter: again.Waiter}}, nil
}
