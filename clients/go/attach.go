package copilot

import (
	"context"
	"slices"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// serve reads a link until it ends, and says why. Nothing in it waits for a handler, so
// that callbacks and their withdrawals are always heard.
func (p *participant) serve(l *link) error {
	watchdog := l.watch(silence)
	defer watchdog.Stop()
	l.beating.Go(func() { l.beat(heartbeat) })
	l.err = p.receive(l, func() { watchdog.Reset(silence) })
	p.setLink(nil)
	close(l.down)
	p.calls.lost(l)
	return l.err
}

func (p *participant) receive(l *link, alive func()) error {
	for {
		resp, err := l.stream.Recv()
		if err != nil {
			return l.failure(err)
		}
		alive()
		if err := p.take(resp); err != nil {
			return err
		}
	}
}

// take takes a frame. An error ends the link.
func (p *participant) take(resp *bridgev1.AttachResponse) error {
	switch f := resp.GetFrame().(type) {
	case *bridgev1.AttachResponse_Stream:
		return p.onStream(f.Stream)
	case *bridgev1.AttachResponse_Done:
		p.pos.Note(f.Done.GetPosition())
		p.replied(f.Done.GetCallbackId(), f.Done.GetCommandId(), nil)
	case *bridgev1.AttachResponse_Failed:
		if id := f.Failed.GetModelRequestId(); id != "" {
			p.models.End(id, fromFailure(f.Failed.GetFailure()))
			return nil
		}
		p.replied(f.Failed.GetCallbackId(), f.Failed.GetCommandId(), fromFailure(f.Failed.GetFailure()))
	}
	return nil
}

// onStream takes a frame about the session. An error ends the link.
func (p *participant) onStream(frame *bridgev1.SubscribeResponse) error {
	p.pos.Note(frame.GetResumeAfter())
	switch f := frame.GetFrame().(type) {
	case *bridgev1.SubscribeResponse_Started:
		p.reconcile(f.Started.GetPendingCallbacks())
	case *bridgev1.SubscribeResponse_Gap:
		p.reconcile(f.Gap.GetPendingCallbacks())
	case *bridgev1.SubscribeResponse_CallbackRequested:
		p.calls.ask(f.CallbackRequested.GetCallback(), f.CallbackRequested.GetOffered())
	case *bridgev1.SubscribeResponse_CallbackResolved:
		r := f.CallbackResolved
		p.calls.withdraw(r.GetCallbackId(),
			&WithdrawnError{Outcome: wordOf[CallbackOutcome](r.GetOutcome()), ParticipantID: r.GetParticipantId()})
	case *bridgev1.SubscribeResponse_RuntimeRestarted:
		p.log.Warn("runtime restarted", "cause", f.RuntimeRestarted.GetCause())
		change := ConnectionChange{State: RuntimeRestarted}
		if outcome := f.RuntimeRestarted.GetTurnOutcome(); outcome != nil {
			change.TurnOutcome = &Outcome{Proto: outcome}
		}
		p.changes.Add(change)
	case *bridgev1.SubscribeResponse_GoAway:
		return errGoAway
	case *bridgev1.SubscribeResponse_Closed:
		return p.closed(f.Closed.GetReason())
	}
	return nil
}

// closed says what the server's last word about the session means.
func (p *participant) closed(reason bridgev1.CloseReason) error {
	if reason == bridgev1.CloseReason_CLOSE_REASON_DRAINING {
		return unavailable("the server is draining")
	}
	return &ClosedError{SessionID: p.sessionID, Reason: wordOf[CloseReason](reason)}
}

// reconcile compares what is pending on the server with what is being answered here:
// what is new is taken up, what is over is withdrawn.
func (p *participant) reconcile(pending []*bridgev1.Callback) {
	ids := make(map[string]bool, len(pending))
	for _, cb := range pending {
		ids[cb.GetCallbackId()] = true
	}
	for _, id := range p.calls.missing(ids) {
		p.calls.withdraw(id, &WithdrawnError{})
	}
	p.mu.Lock()
	self := p.id
	p.mu.Unlock()
	for _, cb := range pending {
		to := cb.GetParticipantIds()
		// A callback without a participant, or whose participant left, is open to every handler.
		p.calls.ask(cb, len(to) == 0 || slices.Contains(to, self))
	}
}

// replied takes the server's reply to an answer or a command.
func (p *participant) replied(callbackID, commandID string, failure *Error) {
	if callbackID != "" {
		p.calls.settle(callbackID, failure)
		return
	}
	p.mu.Lock()
	reply := p.commands[commandID]
	delete(p.commands, commandID)
	p.mu.Unlock()
	if reply != nil {
		reply <- failure // buffered: one command has one reply
	}
}

// command tells the session to do something and waits for the reply. It reports false
// when the link broke first.
func (p *participant) command(ctx context.Context, l *link, cmd *bridgev1.AttachCommand) (bool, error) {
	reply := make(chan *Error, 1)
	p.mu.Lock()
	p.commands[cmd.CommandId] = reply
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.commands, cmd.CommandId)
		p.mu.Unlock()
	}()
	// When sending fails the link goes down.
	_ = l.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: cmd}})
	select {
	case failure := <-reply:
		if failure != nil {
			return true, failure
		}
		return true, nil
	case <-l.down:
		return false, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}
