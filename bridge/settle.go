package bridge

import (
	"context"
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sendRequest is a request with a prompt.
type sendRequest interface {
	proto.Message
	GetSessionId() string
	GetRequestId() string
	GetPrompt() *bridgev1.Prompt
}

// promptKey names a request with a prompt in the session's outbox; empty without an id.
func promptKey(ctx context.Context, call, id string) string {
	if id == "" {
		return ""
	}
	return caller.From(ctx).Tenant + "\x00" + call + "\x00" + id
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
	p := sentPrompt{r.GetSessionId(), promptKey(ctx, call, r.GetRequestId()), textsOf(r.GetPrompt())}
	return operation.Run(ctx, b.operations, operation.Operation[T]{
		Scope: operation.On(call, r.GetSessionId()), ID: r.GetRequestId(), Request: r, Detach: true, Do: f,
		Settle: settleSent(b, p, found),
	})
}

// sentPrompt identifies a prompt whose request a crash may have interrupted.
type sentPrompt struct {
	sessionID string
	key       string   // in the session's outbox
	texts     []string // by which the history may show it
}

// settleSent settles a prompt that a crash interrupted: if the outbox or the history has its
// message, it was sent.
func settleSent[T proto.Message](
	b *Bridge, p sentPrompt, found func(messageID string, at journal.Position) T,
) *operation.Settlement[T] {
	return &operation.Settlement[T]{
		Before: func(ctx context.Context) []byte {
			var at journal.Position
			if s, err := b.open(ctx, p.sessionID); err == nil {
				at = s.Journal().Last()
			}
			return binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
		},
		Find: func(ctx context.Context, before []byte) (answer T, err error) {
			message, at, err := b.findSent(ctx, p, before)
			if err != nil {
				return answer, err
			}
			record(ctx, at)
			return found(message, at), nil
		},
		Unconfirmed: func(err error) bool {
			reason := fault.ReasonOf(err)
			return errors.Is(err, session.ErrUnsettled) || reason == fault.Cancelled || reason == fault.Timeout
		},
	}
}

// findSent finds the message of a prompt that a crash interrupted. before is the journal's
// position before the prompt was sent; without one the whole journal counts.
func (b *Bridge) findSent(ctx context.Context, p sentPrompt, before []byte) (message string, at journal.Position, err error) {
	s, err := b.open(ctx, p.sessionID)
	if err != nil {
		return "", at, err
	}
	if _, err := s.Loaded(ctx); err != nil {
		return "", at, err
	}
	epoch, n := binary.Uvarint(before)
	seq, _ := binary.Uvarint(before[max(n, 0):])
	message, at, ok := s.AnswerTo(p.key)
	if !ok {
		message, at, ok = s.FindMessage(ctx, journal.Position{Epoch: epoch, Seq: seq}, p.texts...)
	}
	if !ok {
		return "", at, fault.New(fault.SendInDoubt, "the bridge ended before the CLI replied, and the history does not have the message")
	}
	return message, at, nil
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
			if _, err := s.Pending().Get(r.GetCallbackId()); err != nil {
				if at, ok := s.AnswerOf(ctx, r.GetCallbackId()); ok {
					record(ctx, at)
					return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
				}
			}
			return resolve(ctx)
		},
	}
}
