package copilot

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// askWhole is ask for a callback whose request did not fit into a frame.
func (cs *calls) askWhole(cb *bridgev1.Callback, offered bool) {
	l := cs.connected()
	whole, err := cs.client.readCallback(cs.ctx, cb.GetSessionId(), cb.GetCallbackId())
	switch {
	case err == nil:
		cs.ask(whole, offered)
	case IsReason(err, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED), !offered, l == nil, cs.ctx.Err() != nil:
	default:
		cs.log.Warn("callback not read", "session_id", cb.GetSessionId(), "callback_id", cb.GetCallbackId(), "error",
			err)
		// A failure to send ends the link, and the callback comes again.
		_ = l.send(answerFrame(cb.GetCallbackId(), answerError(err.Error())))
	}
}

// readCallback reads a callback with its request.
func (c *Client) readCallback(ctx context.Context, session, id string) (*bridgev1.Callback, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.callbacks.ReadCallback(ctx, &bridgev1.ReadCallbackRequest{SessionId: session, CallbackId: id})
	if err != nil {
		return nil, FromError(err)
	}
	var whole []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, FromError(err)
		}
		whole = append(whole, piece.GetChunk()...)
	}
	cb := new(bridgev1.Callback)
	if err := proto.Unmarshal(whole, cb); err != nil {
		return nil, err
	}
	return cb, nil
}
