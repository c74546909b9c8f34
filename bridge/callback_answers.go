package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/answer"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Resolve answers a callback.
func (b *Bridge) Resolve(ctx context.Context, r *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	resolve := func(ctx context.Context) (*bridgev1.ResolveResponse, error) {
		s, err := b.asking(ctx, r.GetSessionId())
		if err != nil {
			return nil, err
		}
		form := answerAt{field: "answer", detached: r.GetRequestId() != ""}
		at, err := b.resolve(ctx, s, r.GetCallbackId(), "", r.GetAnswer(), form)
		if err != nil {
			return nil, err
		}
		record(ctx, at)
		return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
	}
	return operation.Run(ctx, b.operations, operation.Operation[*bridgev1.ResolveResponse]{
		Scope: idempotency.Resolve, ID: r.GetRequestId(), Request: r, Detach: true, Do: resolve, Settle: b.settleResolve(r, resolve),
	})
}

// answerAt is where an answer is in its request, and whether it is to reach the CLI as it is.
type answerAt struct {
	field string
	exact bool
	// detached: the operation that brings the answer continues without its caller already.
	detached bool
}

// resolve checks an answer and gives it to the CLI.
func (b *Bridge) resolve(ctx context.Context, s *session.Session, id, participant string, a *bridgev1.Answer, at answerAt) (journal.Position, error) {
	by, err := answer.GiverOf(participant, a)
	if err != nil {
		return journal.Position{}, err
	}
	if at, repeated := s.Callbacks().Registry().Repeated(ctx, id, by); repeated {
		return at, nil
	}
	p, err := tenancy.Pending(ctx, s, id)
	if err != nil {
		return journal.Position{}, err
	}
	if a.GetAbstain() != nil {
		return s.Callbacks().Abstain(ctx, id, participant)
	}
	form := b.answers.Reply
	if at.exact {
		form = b.answers.ExactReply
	}
	reply, err := form(p, a, at.field)
	if err != nil {
		return journal.Position{}, err
	}
	if err := tenancy.CheckAnswer(ctx, s, p, reply, at.field); err != nil {
		return journal.Position{}, err
	}
	// An answer that is on its way comes to its end without its caller, whom a CLI that does
	// not take it must not hold.
	give := func(ctx context.Context) (journal.Position, error) { return s.Callbacks().Resolve(ctx, id, by, reply) }
	if at.detached {
		return give(ctx)
	}
	return operation.Detach(ctx, b.operations, give)
}

// asking returns a session whose callbacks can be answered.
func (b *Bridge) asking(ctx context.Context, id string) (*session.Session, error) {
	if err := tenancy.CheckName(id, "session_id"); err != nil {
		return nil, err
	}
	e, err := b.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.Session, e.Session.Asking()
}
