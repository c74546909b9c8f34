package inbox

import (
	"context"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Resolve answers a callback.
func (svc *Service) Resolve(ctx context.Context, r *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	resolve := func(ctx context.Context, done func(*bridgev1.ResolveResponse, error)) {
		s, err := svc.sessions.Following(ctx, r.GetSessionId())
		if err != nil {
			done(nil, err)
			return
		}
		a := &answering{id: r.GetCallbackId(), answer: r.GetAnswer()}
		svc.start(ctx, s, a, func(at journal.Position, err error) {
			if err != nil {
				done(nil, err)
				return
			}
			position.Record(ctx, at)
			done(&bridgev1.ResolveResponse{Position: session.Proto(at)}, nil)
		})
	}
	return idempotency.Run(ctx, svc.operations, idempotency.Operation[*bridgev1.ResolveResponse]{
		Scope: backend.OpResolve, ID: r.GetRequestId(), Request: r, Detach: true, Do: resolve,
		Settle: svc.settle(r, resolve),
	})
}

// Answer gives the CLI a participant's answer to a callback, without waiting for the CLI. done receives the position of
// the answer or the error: before Answer returns, or later, also after the end of ctx, perhaps on the goroutine that
// reads the CLI's connection. It must not block.
func (svc *Service) Answer(
	ctx context.Context, s *session.Session, c *bridgev1.CallbackAnswer, participant string, exact bool,
	done func(journal.Position, error),
) {
	a := &answering{id: c.GetCallbackId(), participant: participant, answer: c.GetAnswer(), exact: exact}
	svc.start(ctx, s, a, done)
}

// answering is an answer of a caller.
type answering struct {
	id          string // the callback's
	participant string // "" for callers of Resolve
	answer      *bridgev1.Answer
	// exact answers reach the CLI unchanged.
	exact bool
}

// start checks an answer and gives it to the CLI. done is called as that of Answer.
func (svc *Service) start(ctx context.Context, s *session.Session, a *answering, done func(journal.Position, error)) {
	by, err := responderOf(a.participant, a.answer)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	switch at, repeated, settled := s.Callbacks().Registry().Repeated(a.id, by); {
	case settled != nil:
		svc.startAfter(ctx, s, a, settled, done)
		return
	case repeated:
		done(at, nil)
		return
	}
	p, err := tenancy.Pending(ctx, s, a.id)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	if a.answer.GetAbstain() != nil {
		s.Callbacks().Abstain(ctx, a.id, a.participant, done)
		return
	}
	reply, err := svc.reply(ctx, s, p, a)
	if err != nil {
		done(journal.Position{}, err)
		return
	}
	s.Callbacks().Resolve(ctx, a.id, by, reply, done)
}

// startAfter is start once the same answer, which is on its way, has been given or has failed.
func (svc *Service) startAfter(
	ctx context.Context, s *session.Session, a *answering, settled <-chan struct{}, done func(journal.Position, error),
) {
	started := svc.shutdown.Go(func(stop context.Context) {
		select {
		case <-settled:
			svc.start(ctx, s, a, done)
		case <-stop.Done():
			done(journal.Position{}, async.ErrStopping)
		}
	})
	if !started {
		done(journal.Position{}, async.ErrStopping)
	}
}

// responderOf identifies a participant with its answer. It returns the zero Responder for callers of Resolve: their
// request ids identify repeated requests.
func responderOf(participant string, a *bridgev1.Answer) (callback.Responder, error) {
	if participant == "" {
		return callback.Responder{}, nil
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		return callback.Responder{}, fault.Wrap(err, fault.AnswerInvalid, "the answer")
	}
	return callback.Responder{Participant: participant, Digest: sha256.Sum256(text)}, nil
}

// answerField is the path of an answer in its request.
const answerField = "answer"

// reply checks an answer and returns it in the CLI's form.
func (svc *Service) reply(
	ctx context.Context, s *session.Session, p *callback.Pending, a *answering,
) (callback.Reply, error) {
	form := svc.codec.Reply
	if a.exact {
		form = svc.codec.ExactReply
	}
	reply, err := form(p, a.answer, answerField)
	if err == nil {
		err = tenancy.CheckAnswer(ctx, s, p, reply, answerField)
	}
	return reply, err
}

// settle settles an answer that was interrupted. If the callback is not pending and the history has its end,
// the CLI has received the answer. Otherwise settle delivers it again.
func (svc *Service) settle(
	r *bridgev1.ResolveRequest, resolve func(context.Context, func(*bridgev1.ResolveResponse, error)),
) *idempotency.Settlement[*bridgev1.ResolveResponse] {
	return &idempotency.Settlement[*bridgev1.ResolveResponse]{
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
					position.Record(ctx, at)
					return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
				}
			}
			return async.Wait(ctx, func(done func(*bridgev1.ResolveResponse, error)) { resolve(ctx, done) })
		},
	}
}
