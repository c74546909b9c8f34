package bridge

import (
	"context"
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// doubtful says how a send is settled that the bridge's end interrupted: if the history
// has the message, it was sent.
func doubtful(ctx context.Context, b *Bridge, id, key string, texts []string, answer func(messageID string, at journal.Position) proto.Message) idempotency.Doubt {
	return idempotency.Doubt{
		Since: func() []byte {
			var at journal.Position
			if s, err := b.open(ctx, id); err == nil {
				at = s.Journal().Last()
			}
			return binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
		},
		Settle: func(since []byte) (proto.Message, error) {
			s, err := b.open(ctx, id)
			if err != nil {
				return nil, err
			}
			if _, err := s.Loaded(ctx); err != nil {
				return nil, err
			}
			epoch, n := binary.Uvarint(since)
			seq, _ := binary.Uvarint(since[max(n, 0):])
			message, at, ok := s.AnswerTo(key)
			if !ok {
				message, at, ok = s.FindMessage(ctx, journal.Position{Epoch: epoch, Seq: seq}, texts...)
			}
			if !ok {
				return nil, fault.New(fault.SendInDoubt, "the bridge ended before the CLI replied, and the history does not have the message")
			}
			record(ctx, at)
			return answer(message, at), nil
		},
		Open: func(err error) bool {
			reason := fault.ReasonOf(err)
			return errors.Is(err, session.ErrUnsettled) || reason == fault.Cancelled || reason == fault.Timeout
		},
	}
}

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

// sendOnce is idempotent for sends.
func sendOnce[T proto.Message](ctx context.Context, b *Bridge, call string, request sendRequest, found func(messageID string, at journal.Position) T, f func(context.Context) (T, error)) (T, error) {
	return whole(ctx, b, request.GetRequestId(), func(ctx context.Context) (T, error) {
		asked := promptKey(ctx, call, request.GetRequestId())
		d := doubtful(ctx, b, request.GetSessionId(), asked, textsOf(request.GetPrompt()), func(id string, at journal.Position) proto.Message { return found(id, at) })
		key := requestKey(ctx, operationOn(call, request.GetSessionId()), request.GetRequestId())
		m, err := b.once.DoOrSettle(ctx, key, withoutTrace(request), d, func() (proto.Message, error) { return f(ctx) })
		if err != nil {
			var none T
			return none, err
		}
		return m.(T), nil
	})
}

// createOnce is idempotent for CreateSession: one that was interrupted is found under the
// id that was chosen for it.
func (b *Bridge) createOnce(ctx context.Context, r *bridgev1.CreateSessionRequest, id string, create func(context.Context) (*session.Session, error)) (*bridgev1.CreateSessionResponse, error) {
	return whole(ctx, b, r.GetRequestId(), func(ctx context.Context) (*bridgev1.CreateSessionResponse, error) {
		return b.createdOnce(ctx, r, id, create)
	})
}

func (b *Bridge) createdOnce(ctx context.Context, r *bridgev1.CreateSessionRequest, id string, create func(context.Context) (*session.Session, error)) (*bridgev1.CreateSessionResponse, error) {
	made := func() (proto.Message, error) {
		s, err := create(ctx)
		if err != nil {
			return nil, err
		}
		record(ctx, s.Journal().Last())
		return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
	}
	m, err := b.once.DoOrSettle(ctx, requestKey(ctx, idempotency.Create, r.GetRequestId()), r, idempotency.Doubt{
		Since: func() []byte { return []byte(id) },
		Settle: func(since []byte) (proto.Message, error) {
			if s, err := b.open(ctx, string(since)); err == nil {
				return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
			}
			return made()
		},
	}, made)
	if err != nil {
		return nil, err
	}
	return m.(*bridgev1.CreateSessionResponse), nil
}

// resolveOnce is idempotent for Resolve. One that was interrupted reached the CLI if the
// callback does not wait any more and the history tells its end.
func (b *Bridge) resolveOnce(ctx context.Context, r *bridgev1.ResolveRequest, resolve func() (*bridgev1.ResolveResponse, error)) (*bridgev1.ResolveResponse, error) {
	answer := func() (proto.Message, error) { return resolve() }
	m, err := b.once.DoOrSettle(ctx, requestKey(ctx, idempotency.Resolve, r.GetRequestId()), r, idempotency.Doubt{
		Since: func() []byte { return []byte{1} }, // that it was begun is all
		Settle: func([]byte) (proto.Message, error) {
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
			return answer()
		},
	}, answer)
	if err != nil {
		return nil, err
	}
	return m.(*bridgev1.ResolveResponse), nil
}
