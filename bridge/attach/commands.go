package attach

import (
	"context"
	"sync"

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

// commands are a participant's commands, which are carried out one at a time, in the order in which they came.
type commands struct {
	mu      sync.Mutex
	running bool
	waiting []*bridgev1.AttachCommand
}

// add takes a command. It reports whether the caller is to carry it out now, and whether there was room for it.
func (q *commands) add(c *bridgev1.AttachCommand) (now, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.running:
		q.running = true
		return true, true
	case len(q.waiting) >= commandQueue:
		return false, false
	}
	q.waiting = append(q.waiting, c)
	return false, true
}

// next returns the command after one that has ended; nil if there is none.
func (q *commands) next() *bridgev1.AttachCommand {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running, q.waiting = false, nil
		return nil
	}
	c := q.waiting[0]
	q.waiting = q.waiting[1:]
	return c
}

// startCommand carries out a command, and then those that came meanwhile. It does not block. After the end of the stream
// it does nothing.
func (a *Attachment) startCommand(ctx context.Context, c *bridgev1.AttachCommand) {
	done := func(reply *bridgev1.AttachDone, err error) {
		a.finish(ctx, c, reply, err)
		if ctx.Err() != nil || a.life.Err() != nil {
			return // the participant has left, and its other commands with it
		}
		if next := a.commands.next(); next != nil {
			a.startCommand(ctx, next)
		}
	}
	switch {
	case !a.sends(c):
		a.spawn(func() { done(a.command(ctx, c)) })
	case a.name != a.s.ID(): // a guest may have lost its right
		a.spawn(func() { a.send(ctx, nil, c, done) })
	default:
		a.send(ctx, a.s, c, done)
	}
}

// sends reports whether a command has a prompt that is not refused.
func (a *Attachment) sends(c *bridgev1.AttachCommand) bool {
	exact := c.GetExactSend()
	return c.GetSend() != nil || exact != nil && a.checkExact(exact) == nil
}

// send carries out a command with a prompt, as Sender.Start does.
func (a *Attachment) send(
	ctx context.Context, s *session.Session, c *bridgev1.AttachCommand, done func(*bridgev1.AttachDone, error),
) {
	ctx = observe.Apart(ctx)
	if exact := c.GetExactSend(); exact != nil {
		a.svc.cfg.Exactly.StartSend(ctx, s, exact, c.GetRequestId(),
			func(result *cliv1.SessionServiceSendResponse, at journal.Position, err error) {
				done(exactlySent(result, at), err)
			})
		return
	}
	a.svc.cfg.Sender.Start(ctx, s, a.sendRequest(c), func(sent *bridgev1.SendResponse, err error) {
		done(&bridgev1.AttachDone{MessageId: sent.GetMessageId(), Position: sent.GetPosition()}, err)
	})
}

// sendRequest is the call that a command stands for.
func (a *Attachment) sendRequest(c *bridgev1.AttachCommand) *bridgev1.SendRequest {
	return &bridgev1.SendRequest{SessionId: a.name, RequestId: c.GetRequestId(), Prompt: c.GetSend()}
}

// finish replies to a command.
func (a *Attachment) finish(ctx context.Context, c *bridgev1.AttachCommand, done *bridgev1.AttachDone, err error) {
	if err != nil {
		a.svc.cfg.Observer.Refused(err)
		what := &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: c.GetCommandId()}}
		a.reply(ctx, a.failed(ctx, what, err))
		return
	}
	done.Subject = &bridgev1.AttachDone_CommandId{CommandId: c.GetCommandId()}
	a.reply(ctx, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: done}})
}

// command carries out a command without a prompt, and waits for its end.
func (a *Attachment) command(ctx context.Context, c *bridgev1.AttachCommand) (*bridgev1.AttachDone, error) {
	ctx, cancel := context.WithCancel(observe.Apart(ctx))
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	done := func(p journal.Position, err error) (*bridgev1.AttachDone, error) {
		return &bridgev1.AttachDone{Position: session.Proto(p)}, err
	}
	switch do := c.GetCommand().(type) {
	case *bridgev1.AttachCommand_ExactSend:
		return nil, a.checkExact(do.ExactSend)
	case *bridgev1.AttachCommand_Abort:
		aborted, err := a.s.Sender().Abort(ctx, nil)
		return done(aborted.At, err)
	case *bridgev1.AttachCommand_SetTools:
		tools, err := a.svc.cfg.Parser.Tools(do.SetTools.GetTools(), "command.set_tools.tools", a.start.GetExact())
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
	a.svc.cfg.Callbacks.Answer(ctx, a.s, c, a.p.ID, a.start.GetExact(), func(at journal.Position, err error) {
		r := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: &bridgev1.AttachDone{
			Subject: &bridgev1.AttachDone_CallbackId{CallbackId: id}, Position: session.Proto(at),
		}}}
		if err != nil {
			failed := &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CallbackId{CallbackId: id}}
			r = a.failed(ctx, failed, err)
		}
		if !a.out.offer(r) {
			a.svc.cfg.Shutdown.Go(func(context.Context) { a.reply(ctx, r) })
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
		svc.cfg.Audit.Record(ctx, audit.Entry{
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
