package prompt

import (
	"context"
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// Opener returns a session that the caller may use.
type Opener func(ctx context.Context, id string) (*session.Session, error)

// RequestKey names a request with a prompt in the session's outbox; empty without an id.
func RequestKey(ctx context.Context, call, id string) string {
	if id == "" {
		return ""
	}
	return caller.From(ctx).Tenant + "\x00" + call + "\x00" + id
}

// Interrupted identifies a prompt whose request a crash may have interrupted.
type Interrupted struct {
	SessionID string
	Key       string   // in the session's outbox
	Texts     []string // by which the history may show it
}

// Settlement finds out whether a prompt was sent whose request a crash of the bridge interrupted: it was if the
// session's outbox or the CLI's history has its message. found makes the answer of that message.
func Settlement[T proto.Message](
	open Opener, p Interrupted, found func(messageID string, at journal.Position) T,
) *idempotency.Settlement[T] {
	return &idempotency.Settlement[T]{
		Before: func(ctx context.Context) []byte {
			var at journal.Position
			if s, err := open(ctx, p.SessionID); err == nil {
				at = s.Journal().Appended()
			}
			return binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
		},
		Find: func(ctx context.Context, before []byte) (answer T, err error) {
			message, at, err := find(ctx, open, p, before)
			if err != nil {
				return answer, err
			}
			position.Record(ctx, at)
			return found(message, at), nil
		},
		Unconfirmed: func(err error) bool {
			reason := fault.ReasonOf(err)
			return errors.Is(err, session.ErrUnsettled) || reason == fault.Cancelled || reason == fault.Timeout
		},
	}
}

// find returns the message of a prompt that a crash interrupted. before is the journal's
// position before the prompt was sent; without one the whole journal counts.
func find(ctx context.Context, open Opener, p Interrupted, before []byte) (message string, at journal.Position, err error) {
	s, err := open(ctx, p.SessionID)
	if err != nil {
		return "", at, err
	}
	if _, err := s.Loader().Load(ctx); err != nil {
		return "", at, err
	}
	epoch, n := binary.Uvarint(before)
	seq, _ := binary.Uvarint(before[max(n, 0):])
	message, at, ok, err := s.Prompts().AnswerTo(ctx, p.Key)
	if err != nil {
		return "", at, err
	}
	if !ok {
		message, at, ok = s.Prompts().FindMessage(ctx, journal.Position{Epoch: epoch, Seq: seq}, p.Texts...)
	}
	if !ok {
		return "", at, fault.New(fault.SendUnconfirmed, "the bridge ended before the CLI replied, and the history does not contain the message")
	}
	return message, at, nil
}
