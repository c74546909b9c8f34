package copilot

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// maxConcurrentQuestions bounds the handlers, other than tools, that run at once.
	maxConcurrentQuestions = 64
	// maxCalls bounds the callbacks that a participant has in hand. One more is answered
	// with an error. The server itself keeps no more than this pending in a session.
	maxCalls = 1024
	// maxAnswer bounds an answer: by default a server accepts messages of 16 MiB, and a
	// longer one would end the stream. The client sends an error instead.
	maxAnswer = 15 << 20
)

// call is a pending callback that this client handles.
type call struct {
	id string
	// ctx ends with the callback.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// refused gets the server's refusal of an answer.
	refused chan *Error
}

// ask starts to handle a callback. If a goroutine already handles it, that goroutine
// sends its answer again on the new link.
func (p *participant) ask(cb *bridgev1.Callback, offered bool) {
	if cb.GetWholeBytes() > 0 {
		go p.askWhole(cb, offered)
		return
	}
	answer := p.answererFor(cb, offered)
	if answer == nil {
		return
	}
	id := cb.GetCallbackId()
	p.mu.Lock()
	l := p.link
	_, known := p.calls[id]
	room := len(p.calls) < maxCalls
	var c *call
	if !known && room {
		c = p.newCall(cb)
	}
	p.mu.Unlock()
	switch {
	case c != nil:
		go p.serveCall(c, p.slots(cb), answer)
	case !known && l != nil:
		p.log.Warn("too many callbacks at once", "callback_id", id)
		// A failure to send ends the link, and the callback comes again.
		_ = l.send(answerFrame(id, answerError("too many callbacks at once")))
	}
}

// newCall puts a callback in hand. The caller holds p.mu.
func (p *participant) newCall(cb *bridgev1.Callback) *call {
	c := &call{id: cb.GetCallbackId(), refused: make(chan *Error, 1)}
	tool := cb.GetToolCall()
	parent, state := cb.GetTraceparent(), cb.GetTracestate()
	if parent == "" { // a server before these fields
		parent, state = tool.GetTraceparent(), tool.GetTracestate()
	}
	ctx := context.WithValue(p.ctx, callKey{}, Call{
		SessionID:        cb.GetSessionId(),
		CallbackID:       c.id,
		ToolCallID:       tool.GetToolCallId(),
		ToolName:         tool.GetToolName(),
		WorkingDirectory: tool.GetWorkingDirectory(),
		Traceparent:      parent,
		Tracestate:       state,
	})
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	p.calls[c.id] = c
	return c
}

func (p *participant) slots(cb *bridgev1.Callback) chan struct{} {
	if cb.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
		return p.toolSlots
	}
	return p.questionSlots
}

// serveCall works out the answer to a callback, once there is a slot, and delivers it.
func (p *participant) serveCall(c *call, slots chan struct{}, answer answerer) {
	defer p.drop(c, nil)
	select {
	case slots <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	a := answer(c.ctx)
	<-slots
	p.deliver(c, a)
}

// deliver sends an answer until the server has taken it: over a new link when the old
// one breaks, again when the runtime was away, and as an error when the server finds it
// invalid, so that the turn goes on.
func (p *participant) deliver(c *call, answer *bridgev1.Answer) {
	if size := proto.Size(answer); size > maxAnswer {
		answer = answerError(fmt.Sprintf("the answer has %d bytes, more than %d", size, maxAnswer))
	}
	b := newBackoff(p.client.reconnect)
	for {
		l, err := p.live(c.ctx)
		if err != nil || c.ctx.Err() != nil {
			return
		}
		err = l.send(answerFrame(c.id, answer))
		if err == nil && answer.GetAbstain() != nil {
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-l.down:
			b.reset()
		case refusal := <-c.refused:
			p.log.Warn("answer refused", "callback_id", c.id, "error", refusal)
			switch {
			case refusal.Code == codes.Unavailable && b.wait(c.ctx, refusal):
			case refusal.Code == codes.InvalidArgument && answer.GetError() == nil:
				answer = answerError(refusal.Message)
			default:
				return
			}
		}
	}
}

// settle takes the server's reply to an answer.
func (p *participant) settle(id string, failure *Error) {
	p.mu.Lock()
	c := p.calls[id]
	p.mu.Unlock()
	if c == nil {
		return
	}
	if failure == nil {
		p.drop(c, &WithdrawnError{Outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED})
		return
	}
	switch failure.Reason {
	case bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED,
		bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND:
		p.drop(c, &WithdrawnError{})
	default:
		select {
		case c.refused <- failure:
		default: // one refusal is being dealt with
		}
	}
}

// withdraw ends a callback whose answer is no longer wanted.
func (p *participant) withdraw(id string, why *WithdrawnError) {
	p.mu.Lock()
	c := p.calls[id]
	p.mu.Unlock()
	if c != nil {
		p.drop(c, why)
	}
}

// drop takes a callback out of hand.
func (p *participant) drop(c *call, why error) {
	p.mu.Lock()
	if p.calls[c.id] == c {
		delete(p.calls, c.id)
	}
	p.mu.Unlock()
	c.cancel(why)
}

func answerFrame(id string, answer *bridgev1.Answer) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
		Answer: &bridgev1.CallbackAnswer{CallbackId: id, Answer: answer},
	}}
}
