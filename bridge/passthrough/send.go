package passthrough

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// beginsTurn has the methods that give a session a prompt.
var beginsTurn = map[string]bool{"session.send": true, "session.sendMessages": true, "session.fleet.start": true}

// promptOnce gives a session a prompt, once for each request id, also across a crash of the
// bridge. If a crash interrupted session.send, the session's outbox and history decide whether the
// prompt was sent; the other methods then fail with SEND_UNCONFIRMED. A repeated request whose prompt
// was lost after it was acknowledged fails with SEND_UNCONFIRMED too.
func (svc *Service) promptOnce(ctx context.Context, c *call, requestID string) (json.RawMessage, error) {
	reply, err := operation.Run(ctx, svc.operations, svc.prompt(ctx, c, requestID))
	if err != nil {
		return nil, err
	}
	var said struct{ MessageID string }
	if s, err := svc.sessions.Open(ctx, c.id); err == nil && json.Unmarshal(reply.GetValue(), &said) == nil {
		if _, err := s.Sender().Repeat(ctx, said.MessageID); err != nil {
			return nil, err
		}
	}
	return reply.GetValue(), nil
}

// prompt returns the operation of a call that gives a session a prompt.
func (svc *Service) prompt(ctx context.Context, c *call, id string) operation.Operation[*wrapperspb.BytesValue] {
	c.request = settle.Key(ctx, c.method, id)
	return operation.Operation[*wrapperspb.BytesValue]{
		Scope: operation.On(c.method, c.id), ID: id, Request: wrapperspb.Bytes(c.params.JSON()),
		Do: func(ctx context.Context) (*wrapperspb.BytesValue, error) {
			result, err := svc.dispatch(ctx, c)
			return wrapperspb.Bytes(result), err
		},
		Settle: svc.settlePrompt(c),
	}
}

// methodSend describes the rpc of session.send.
var methodSend = cliv1.File_copilot_cli_v1_session_proto.Services().ByName("SessionService").Methods().ByName("Send")

// SendExactly makes the call SessionService.Send of copilot.cli.v1 with exact fidelity.
func (svc *Service) SendExactly(
	ctx context.Context, r *cliv1.SessionServiceSendRequest, requestID string,
) (*cliv1.SessionServiceSendResponse, error) {
	request, err := proto.Marshal(r)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "encoding a request")
	}
	reply, err := svc.CallCLI(ctx, methodSend, request, true, requestID, nil)
	if err != nil {
		return nil, err
	}
	return sendResponse(reply)
}

func sendResponse(reply []byte) (*cliv1.SessionServiceSendResponse, error) {
	out := &cliv1.SessionServiceSendResponse{}
	if err := proto.Unmarshal(reply, out); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "decoding a result")
	}
	return out, nil
}

// StartExactly is SendExactly for a session of the caller's tenant, that of the request, without waiting for anything.
// done, which may block, receives the result and the journal position of the CLI's reply on another goroutine.
// StartExactly returns false, and does nothing, if SendExactly must make the call.
func (svc *Service) StartExactly(
	ctx context.Context, s *session.Session, r *cliv1.SessionServiceSendRequest, requestID string,
	done func(*cliv1.SessionServiceSendResponse, journal.Position, error),
) bool {
	request, err := proto.Marshal(r)
	c := &call{method: "session.send", exact: true, typed: true}
	if err != nil || c.read(svc.codec, methodSend, request) != nil {
		return false
	}
	var begin func() *idempotency.Begun
	if requestID != "" {
		op := svc.prompt(ctx, c, requestID)
		begin = func() *idempotency.Begun { return operation.Begin(ctx, svc.operations, &op) }
	}
	m, err := svc.message(ctx, c)
	if err != nil {
		return false
	}
	return svc.sender.StartMessage(ctx, s, m, begin, func(sent sending.Sent, begun *idempotency.Begun, err error) {
		begun.End(wrapperspb.Bytes(sent.Result), err)
		var reply []byte
		if err == nil {
			reply, err = c.reply(svc.codec, methodSend, sent.Result)
		}
		var out *cliv1.SessionServiceSendResponse
		if err == nil {
			out, err = sendResponse(reply)
		}
		if err != nil {
			done(nil, journal.Position{}, session.Exactly(err, c.method, c.id))
			return
		}
		done(out, sent.At, nil)
	})
}

// settlePrompt settles a prompt that a crash interrupted.
func (svc *Service) settlePrompt(c *call) *operation.Settlement[*wrapperspb.BytesValue] {
	texts := []string{c.params.String("prompt")}
	if display := c.params.String("displayPrompt"); display != "" {
		texts = append(texts, display)
	}
	p := settle.Prompt{SessionID: c.id, Key: c.request, Texts: texts}
	settlement := settle.Sent(svc.sessions.Open, p, func(messageID string, _ journal.Position) *wrapperspb.BytesValue {
		var result jsonobj.Object
		result.SetString("messageId", messageID)
		return wrapperspb.Bytes(result.JSON())
	})
	if c.method != "session.send" {
		settlement.Find = func(context.Context, []byte) (*wrapperspb.BytesValue, error) {
			return nil, fault.New(fault.SendUnconfirmed, "the server ended before the CLI replied to %s", c.method)
		}
	}
	return settlement
}
