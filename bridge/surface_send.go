package bridge

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// beginsTurn has the methods that give a session a prompt.
var beginsTurn = map[string]bool{"session.send": true, "session.sendMessages": true, "session.fleet.start": true}

// promptOnce gives a session a prompt, once for each request id, also across a crash of the
// bridge. If a crash interrupted session.send, the session's outbox and history decide whether the
// prompt was sent; the other methods then fail with SEND_IN_DOUBT. A repeated request whose prompt
// was lost after it was acknowledged fails with SEND_IN_DOUBT too.
func (b *Bridge) promptOnce(ctx context.Context, c *cliCall, requestID string) (json.RawMessage, error) {
	c.request = promptKey(ctx, c.method, requestID)
	key := requestKey(ctx, operationOn(c.method, c.id), requestID)
	m, err := b.once.DoOrSettle(ctx, key, wrapperspb.Bytes(c.params.JSON()), b.interruptedPrompt(ctx, c), func() (proto.Message, error) {
		result, err := b.dispatch(ctx, c)
		return wrapperspb.Bytes(result), err
	})
	if err != nil {
		return nil, err
	}
	result := m.(*wrapperspb.BytesValue).GetValue()
	var said struct{ MessageID string }
	if s, err := b.open(ctx, c.id); err == nil && json.Unmarshal(result, &said) == nil {
		if _, err := s.Repeat(ctx, said.MessageID); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// interruptedPrompt describes how to settle a prompt that a crash interrupted.
func (b *Bridge) interruptedPrompt(ctx context.Context, c *cliCall) idempotency.Doubt {
	texts := []string{c.params.String("prompt")}
	if display := c.params.String("displayPrompt"); display != "" {
		texts = append(texts, display)
	}
	d := doubtful(ctx, b, c.id, c.request, texts, func(messageID string, _ journal.Position) proto.Message {
		var result session.Object
		result.SetString("messageId", messageID)
		return wrapperspb.Bytes(result.JSON())
	})
	if c.method != "session.send" {
		d.Settle = func([]byte) (proto.Message, error) {
			return nil, fault.New(fault.SendInDoubt, "the server ended before the CLI replied to %s", c.method)
		}
	}
	return d
}
