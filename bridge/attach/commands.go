package attach

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// startSend sends a prompt as the receiver of the stream, which must not wait. It returns false if the goroutine of
// runCommands must carry out the command. No other command is unfinished.
func (a *Attachment) startSend(ctx context.Context, c *bridgev1.AttachCommand) bool {
	if a.name != a.s.ID() { // a guest may have lost its right
		return false
	}
	done := func(reply *bridgev1.AttachDone, err error) {
		a.finish(ctx, c, reply, err)
		<-a.busy
		a.unfinished.Add(-1)
	}
	started := false
	apart := observe.Apart(ctx)
	a.busy <- struct{}{} // nothing holds it
	switch do := c.GetCommand().(type) {
	case *bridgev1.AttachCommand_Send:
		started = a.svc.sender.Start(apart, a.s, a.sendRequest(c), func(sent *bridgev1.SendResponse, err error) {
			done(sentDone(sent), err)
		})
	case *bridgev1.AttachCommand_ExactSend:
		id := c.GetRequestId()
		started = a.checkExact(do.ExactSend) == nil && a.svc.exactly.StartExactly(apart, a.s, do.ExactSend, id,
			func(result *cliv1.SessionServiceSendResponse, at journal.Position, err error) {
				sent := exactlySent(result)
				sent.Position = session.Proto(at)
				done(sent, err)
			})
	}
	if !started {
		<-a.busy
	}
	return started
}

// sendRequest is the call that a command stands for.
func (a *Attachment) sendRequest(c *bridgev1.AttachCommand) *bridgev1.SendRequest {
	return &bridgev1.SendRequest{SessionId: a.name, RequestId: c.GetRequestId(), Prompt: c.GetSend()}
}

// runCommands carries out commands in the order they came.
func (a *Attachment) runCommands(ctx context.Context) {
	ctx = observe.Apart(ctx)
	for {
		select {
		case c := <-a.commands:
			select {
			case a.busy <- struct{}{}: // after the one that startSend has begun
			case <-ctx.Done():
				return
			}
			done, err := a.command(ctx, c)
			a.finish(ctx, c, done, err)
			<-a.busy
			a.unfinished.Add(-1)
		case <-ctx.Done():
			return
		}
	}
}

// finish replies to a command.
func (a *Attachment) finish(ctx context.Context, c *bridgev1.AttachCommand, done *bridgev1.AttachDone, err error) {
	if err != nil {
		a.svc.observer.Refused(err)
		what := &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: c.GetCommandId()}}
		a.reply(ctx, a.failed(ctx, what, err))
		return
	}
	done.Subject = &bridgev1.AttachDone_CommandId{CommandId: c.GetCommandId()}
	a.reply(ctx, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: done}})
}

func sentDone(sent *bridgev1.SendResponse) *bridgev1.AttachDone {
	return &bridgev1.AttachDone{MessageId: sent.GetMessageId(), Position: sent.GetPosition()}
}

func (a *Attachment) command(ctx context.Context, c *bridgev1.AttachCommand) (*bridgev1.AttachDone, error) {
	done := func(p journal.Position, err error) (*bridgev1.AttachDone, error) {
		return &bridgev1.AttachDone{Position: session.Proto(p)}, err
	}
	switch do := c.GetCommand().(type) {
	case *bridgev1.AttachCommand_Send:
		sent, err := a.svc.sender.Send(ctx, a.sendRequest(c))
		if err != nil {
			return nil, err
		}
		return sentDone(sent), nil
	case *bridgev1.AttachCommand_ExactSend:
		return a.sendExactly(ctx, do.ExactSend, c.GetRequestId())
	case *bridgev1.AttachCommand_Abort:
		_, at, err := a.s.Sender().Abort(ctx)
		return done(at, err)
	case *bridgev1.AttachCommand_SetTools:
		tools, err := a.svc.parser.Tools(do.SetTools.GetTools(), "command.set_tools.tools", a.start.GetExact())
		if err == nil && !a.start.GetExact() {
			err = a.s.Participants().CheckNames(ctx, tools, nil, "command.set_tools.")
		}
		if err != nil {
			return nil, err
		}
		err = a.s.Participants().Change(ctx, a.p, &tools, nil)
		if err != nil && a.start.GetExact() {
			err = session.Exactly(err, "session.tools.set", a.name)
		}
		return done(a.s.Journal().Last(), err)
	case *bridgev1.AttachCommand_SetHandlers:
		h, err := request.Handling(do.SetHandlers, "command.set_handlers")
		if err == nil && h != nil {
			err = tenancy.CheckHandlers(ctx, a.s, h.Methods, "command.set_handlers")
		}
		if err != nil {
			return nil, err
		}
		return done(a.s.Journal().Last(), a.s.Participants().Change(ctx, a.p, nil, h))
	default:
		return nil, fault.New(fault.InvalidField, "the command is empty").WithField("command")
	}
}

// answer carries out an answer, which continues also after the end of the stream, whose context is ctx: its
// participant does not wait for a CLI that does not take it. It takes back the answer's token when it is over.
func (a *Attachment) answer(ctx context.Context, c *bridgev1.CallbackAnswer) {
	id := c.GetCallbackId()
	a.svc.callbacks.Answer(ctx, a.s, c, a.p.ID, a.start.GetExact(), func(at journal.Position, err error) {
		r := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: &bridgev1.AttachDone{
			Subject: &bridgev1.AttachDone_CallbackId{CallbackId: id}, Position: session.Proto(at),
		}}}
		if err != nil {
			failed := &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CallbackId{CallbackId: id}}
			r = a.failed(ctx, failed, err)
		}
		if !a.out.offer(r) {
			a.svc.shutdown.Go(func(context.Context) { a.reply(ctx, r) })
		}
		<-a.answers
	})
}

// reply sends a frame of the participation.
func (a *Attachment) reply(ctx context.Context, r *bridgev1.AttachResponse) {
	a.out.reply(ctx, a.life, r)
}

func (a *Attachment) failed(ctx context.Context, what *bridgev1.AttachFailed, err error) *bridgev1.AttachResponse {
	return a.svc.failed(ctx, a.s, a.p.ID, what, err)
}

// failed returns the frame that says why something failed. The call goes on, so a refusal is
// audited here.
func (svc *Service) failed(
	ctx context.Context, s tenancy.Session, participant string, what *bridgev1.AttachFailed, err error,
) *bridgev1.AttachResponse {
	err = session.Classify(err, "")
	if fault.ReasonOf(err) == fault.Forbidden {
		svc.audit.Record(ctx, audit.Entry{
			Action: "call.refused", Outcome: audit.Refused, Reason: fault.Name(fault.Forbidden),
			Method: methodAttach, Session: s.ID(), Owner: s.Tenant(), Participant: participant,
		})
	}
	return failedFrame(what, err)
}

// methodAttach is the rpc of participants' streams.
const methodAttach = "copilot.bridge.v1.CallbackService/Attach"

// commandFailed is the frame that says why a command was not taken up.
func commandFailed(c *bridgev1.AttachCommand, err error) *bridgev1.AttachResponse {
	return failedFrame(&bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: c.GetCommandId()}}, session.Classify(err, ""))
}

func failedFrame(what *bridgev1.AttachFailed, err error) *bridgev1.AttachResponse {
	what.Failure, _ = fault.Failure(err)
	if f, _ := fault.Public(err); f.RPC != nil {
		what.RpcError = &bridgev1.JsonRpcError{Code: f.RPC.Code, Message: f.RPC.Message, DataJson: f.RPC.Data}
	}
	return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Failed{Failed: what}}
}
