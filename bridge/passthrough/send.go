package passthrough

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// beginsTurn has the methods that give a session a prompt.
var beginsTurn = map[string]bool{"session.send": true, "session.sendMessages": true, "session.fleet.start": true}

// promptOnce gives a session a prompt, once for each request id, also across a crash of the
// bridge. If a crash interrupted session.send, the session's outbox and history decide whether the
// prompt was sent; the other methods then fail with SEND_UNCONFIRMED. A repeated request whose prompt
// was lost after it was acknowledged fails with SEND_UNCONFIRMED too.
func (svc *Service) promptOnce(ctx context.Context, c *call, requestID string) (json.RawMessage, error) {
	reply, err := async.Wait(ctx, func(done func(*wrapperspb.BytesValue, error)) {
		svc.startOnce(ctx, c, requestID, idempotency.Blocking(func(ctx context.Context) (*wrapperspb.BytesValue, error) {
			result, err := svc.dispatch(ctx, c)
			return wrapperspb.Bytes(result), err
		}), done)
	})
	return reply.GetValue(), err
}

// startOnce gives a session the prompt of a call by do, once for each request id. done is called once, which may block.
func (svc *Service) startOnce(
	ctx context.Context, c *call, requestID string,
	do func(context.Context, func(*wrapperspb.BytesValue, error)), done func(*wrapperspb.BytesValue, error),
) {
	if requestID == "" {
		do(ctx, done)
		return
	}
	c.request = prompt.RequestKey(ctx, c.method, requestID)
	idempotency.Start(ctx, svc.cfg.Operations, idempotency.Operation[*wrapperspb.BytesValue]{
		Scope: idempotency.On(c.method, c.id), ID: requestID, Request: wrapperspb.Bytes(c.params.JSON()),
		Detach: !c.params.Bool("wait"), // a turn may take longer than a detached operation
		Do:     do, Settle: svc.settlePrompt(c),
		Repeated: func(ctx context.Context, reply *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
			return reply, svc.repeated(ctx, c, reply)
		},
	}, done)
}

// repeated returns an error if the answer that an earlier request with the same id got has become untrue.
func (svc *Service) repeated(ctx context.Context, c *call, reply *wrapperspb.BytesValue) error {
	var said struct{ MessageID string }
	s, err := svc.cfg.Sessions.Open(ctx, c.id)
	if err != nil || json.Unmarshal(reply.GetValue(), &said) != nil {
		return nil // it stands as far as is known
	}
	_, err = s.Sender().Repeat(ctx, said.MessageID)
	return err
}

// methodSend describes the rpc of session.send.
var methodSend = cliv1.File_copilot_cli_v1_session_proto.Services().ByName("SessionService").Methods().ByName("Send")

// sendResponse is the CLI's result as a message.
func (svc *Service) sendResponse(c *call, result json.RawMessage) (*cliv1.SessionServiceSendResponse, error) {
	reply, err := c.reply(svc.cfg.Codec, methodSend, result)
	if err != nil {
		return nil, err
	}
	out := &cliv1.SessionServiceSendResponse{}
	if err := proto.Unmarshal(reply, out); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "decoding a result")
	}
	return out, nil
}

// StartSend makes the call SessionService.Send of copilot.cli.v1 with exact fidelity, in a session that the caller may
// use; with nil, in the one that the request names, which StartSend may wait for. done receives the result and the journal
// position of the CLI's reply, which is zero if an earlier request had it, on another goroutine, which it may block.
func (svc *Service) StartSend(
	ctx context.Context, s *session.Session, r *cliv1.SessionServiceSendRequest, requestID string,
	done func(*cliv1.SessionServiceSendResponse, journal.Position, error),
) {
	c := &call{method: "session.send", exact: true, typed: true}
	request, err := proto.Marshal(r)
	if err != nil {
		err = fault.Wrap(err, fault.Internal, "encoding a request")
	} else {
		err = c.read(svc.cfg.Codec, methodSend, request)
	}
	if err != nil {
		svc.cfg.Shutdown.Spawn(func() { done(nil, journal.Position{}, c.exactly(err)) })
		return
	}
	var at journal.Position
	send := func(ctx context.Context, done func(*wrapperspb.BytesValue, error)) {
		svc.startPrompt(ctx, s, c, func(sent session.Sent, err error) {
			at = sent.At
			done(wrapperspb.Bytes(sent.Result), err)
		})
	}
	svc.startOnce(ctx, c, requestID, send, func(reply *wrapperspb.BytesValue, err error) {
		var out *cliv1.SessionServiceSendResponse
		if err == nil {
			out, err = svc.sendResponse(c, reply.GetValue())
		}
		if err != nil {
			done(nil, journal.Position{}, c.exactly(err))
			return
		}
		done(out, at, nil)
	})
}

// settlePrompt settles a prompt that a crash interrupted.
func (svc *Service) settlePrompt(c *call) *idempotency.Settlement[*wrapperspb.BytesValue] {
	texts := []string{c.params.String("prompt")}
	if display := c.params.String("displayPrompt"); display != "" {
		texts = append(texts, display)
	}
	p := prompt.Interrupted{SessionID: c.id, Key: c.request, Texts: texts}
	settlement := prompt.Settlement(svc.cfg.Sessions.Open, p, func(messageID string, _ journal.Position) *wrapperspb.BytesValue {
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
