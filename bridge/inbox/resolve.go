package inbox

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/answer"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Resolve answers a callback.
func (svc *Service) Resolve(ctx context.Context, r *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	resolve := func(ctx context.Context) (*bridgev1.ResolveResponse, error) {
		s, err := svc.sessions.Following(ctx, r.GetSessionId())
		if err != nil {
			return nil, err
		}
		form := answerAt{field: "answer", detached: r.GetRequestId() != ""}
		at, err := svc.resolve(ctx, s, r.GetCallbackId(), "", r.GetAnswer(), form)
		if err != nil {
			return nil, err
		}
		position.Record(ctx, position.Position(at))
		return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
	}
	return operation.Run(ctx, svc.operations, operation.Operation[*bridgev1.ResolveResponse]{
		Scope: idempotency.Resolve, ID: r.GetRequestId(), Request: r, Detach: true, Do: resolve,
		Settle: svc.settle(r, resolve),
	})
}

// answerAt describes how an answer arrives.
type answerAt struct {
	// field is its path in the request.
	field string
	// exact answers reach the CLI unchanged.
	exact bool
	// detached reports that the goroutine of the answer continues without its caller.
	detached bool
}

// resolve checks an answer and gives it to the CLI.
func (svc *Service) resolve(
	ctx context.Context, s *session.Session, id, participant string, a *bridgev1.Answer, at answerAt,
) (journal.Position, error) {
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
	reply, err := svc.reply(ctx, s, p, a, at)
	if err != nil {
		return journal.Position{}, err
	}
	// The answer continues without its caller, who does not wait for a CLI that does not take it.
	give := func(ctx context.Context) (journal.Position, error) { return s.Callbacks().Resolve(ctx, id, by, reply) }
	if at.detached {
		return give(ctx)
	}
	return operation.Detach(ctx, svc.operations, give)
}

// reply checks an answer and returns it in the CLI's form.
func (svc *Service) reply(
	ctx context.Context, s *session.Session, p *callback.Pending, a *bridgev1.Answer, at answerAt,
) (callback.Reply, error) {
	form := svc.answers.Reply
	if at.exact {
		form = svc.answers.ExactReply
	}
	reply, err := form(p, a, at.field)
	if err == nil {
		err = tenancy.CheckAnswer(ctx, s, p, reply, at.field)
	}
	return reply, err
}

// Answer gives the CLI a participant's answer to a callback, without waiting for the CLI. done receives the position of
// the answer or the error: before Answer returns, or later, also after the end of ctx, perhaps on the goroutine that
// reads the CLI's connection. It must not block.
func (svc *Service) Answer(
	ctx context.Context, s *session.Session, c *bridgev1.CallbackAnswer, participant string, exact bool,
	done func(journal.Position, error),
) {
	ctx = context.WithoutCancel(ctx)
	at, id, desk := answerAt{field: "answer", exact: exact, detached: true}, c.GetCallbackId(), s.Callbacks()
	if c.GetAnswer().GetAbstain() != nil || desk.Registry().Answering(id) { // it may have to wait
		svc.operations.Go(func(context.Context) { done(svc.resolve(ctx, s, id, participant, c.GetAnswer(), at)) })
		return
	}
	by, err := answer.GiverOf(participant, c.GetAnswer())
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	if at, repeated := desk.Registry().Repeated(ctx, id, by); repeated {
		done(at, nil)
		return
	}
	p, err := tenancy.Pending(ctx, s, id)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	reply, err := svc.reply(ctx, s, p, c.GetAnswer(), at)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	desk.ResolveAsync(ctx, id, by, reply, done)
}

// settle settles an answer that was interrupted. If the callback is not pending and the history has its end,
// the CLI has received the answer. Otherwise settle delivers it again.
func (svc *Service) settle(
	r *bridgev1.ResolveRequest, resolve func(context.Context) (*bridgev1.ResolveResponse, error),
) *operation.Settlement[*bridgev1.ResolveResponse] {
	return &operation.Settlement[*bridgev1.ResolveResponse]{
		Before: func(context.Context) []byte { return []byte{1} }, // that it was begun is all
		Find: func(ctx context.Context, _ []byte) (*bridgev1.ResolveResponse, error) {
			s, err := svc.sessions.Following(ctx, r.GetSessionId())
			if err != nil {
				return nil, err
			}
			if _, err := s.Loader().Load(ctx); err != nil {
				return nil, err
			}
			if _, err := s.Callbacks().Registry().Get(r.GetCallbackId()); err != nil {
				if at, ok := s.Callbacks().AnswerOf(ctx, r.GetCallbackId()); ok {
					position.Record(ctx, position.Position(at))
					return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
				}
			}
			return resolve(ctx)
		},
	}
}
