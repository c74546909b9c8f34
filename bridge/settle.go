package bridge

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sendRequest is a request with a prompt.
type sendRequest interface {
	proto.Message
	GetSessionId() string
	GetRequestId() string
	GetPrompt() *bridgev1.Prompt
}

// textsOf are those by which the history may show a prompt.
func textsOf(p *bridgev1.Prompt) []string {
	if p.GetDisplayText() == "" {
		return []string{p.GetText()}
	}
	return []string{p.GetText(), p.GetDisplayText()}
}

// sendOnce sends a prompt by f, once for each request id. found makes the answer of a message
// that the history has.
func sendOnce[T proto.Message](
	ctx context.Context, b *Bridge, call string, r sendRequest,
	found func(messageID string, at journal.Position) T, f func(context.Context) (T, error),
) (T, error) {
	p := settle.Prompt{SessionID: r.GetSessionId(), Key: settle.Key(ctx, call, r.GetRequestId()), Texts: textsOf(r.GetPrompt())}
	return operation.Run(ctx, b.operations, operation.Operation[T]{
		Scope: operation.On(call, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Detach: true, Do: f,
		Settle: settle.Sent(b.open, p, found),
	})
}

// settleCreate finds a session whose making was interrupted under the id that was chosen for it,
// or else makes it.
func (b *Bridge) settleCreate(
	id string, create func(context.Context) (*bridgev1.CreateSessionResponse, error),
) *operation.Settlement[*bridgev1.CreateSessionResponse] {
	return &operation.Settlement[*bridgev1.CreateSessionResponse]{
		Before: func(context.Context) []byte { return []byte(id) },
		Find: func(ctx context.Context, chosen []byte) (*bridgev1.CreateSessionResponse, error) {
			if s, err := b.open(ctx, string(chosen)); err == nil {
				return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
			}
			return create(ctx)
		},
	}
}

// settleResolve settles an answer that was interrupted. It reached the CLI if the callback does
// not wait any more and the history tells its end; else it is given again.
func (b *Bridge) settleResolve(
	r *bridgev1.ResolveRequest, resolve func(context.Context) (*bridgev1.ResolveResponse, error),
) *operation.Settlement[*bridgev1.ResolveResponse] {
	return &operation.Settlement[*bridgev1.ResolveResponse]{
		Before: func(context.Context) []byte { return []byte{1} }, // that it was begun is all
		Find: func(ctx context.Context, _ []byte) (*bridgev1.ResolveResponse, error) {
			s, err := b.asking(ctx, r.GetSessionId())
			if err != nil {
				return nil, err
			}
			if _, err := s.Loaded(ctx); err != nil {
				return nil, err
			}
			if _, err := s.Callbacks().Registry().Get(r.GetCallbackId()); err != nil {
				if at, ok := s.Callbacks().AnswerOf(ctx, r.GetCallbackId()); ok {
					record(ctx, at)
					return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
				}
			}
			return resolve(ctx)
		},
	}
}
