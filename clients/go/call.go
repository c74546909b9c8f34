package copilot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

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
	id, session string
	// ctx ends with the callback.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// refused gets the server's refusal of an answer.
	refused chan *Error
}

// calls are the pending callbacks that a participant handles. A goroutine for each works out the answer, and
// ends when the server has the answer or the callback is over.
type calls struct {
	ctx       context.Context // of the participation
	log       *slog.Logger
	client    *Client
	handlers  *handlers
	live      func(context.Context) (*link, error)
	connected func() *link // nil while there is none

	// toolSlots bounds the tools, questionSlots the other handlers that run at once.
	// They are apart so that a question that waits for a person holds up no tool.
	toolSlots, questionSlots chan struct{}

	mu   sync.Mutex
	byID map[string]*call
}

// ask starts to handle a callback. If a goroutine already handles it, that goroutine
// sends its answer again on the new link.
func (cs *calls) ask(cb *bridgev1.Callback, offered bool) {
	if cb.GetTotalBytes() > 0 {
		go cs.askWhole(cb, offered)
		return
	}
	answer := cs.handlers.answerer(cb, offered)
	if answer == nil {
		return
	}
	id := cb.GetCallbackId()
	l := cs.connected()
	cs.mu.Lock()
	_, known := cs.byID[id]
	room := len(cs.byID) < maxCalls
	var c *call
	if !known && room {
		c = cs.newCall(cb)
	}
	cs.mu.Unlock()
	switch {
	case c != nil:
		go cs.serve(c, cs.slots(cb), answer)
	case !known && l != nil:
		cs.log.Warn("too many callbacks at once", "session_id", cb.GetSessionId(), "callback_id", id)
		// A failure to send ends the link, and the callback comes again.
		_ = l.send(answerFrame(id, answerError("too many callbacks at once")))
	}
}

// newCall puts a callback in hand. The caller holds cs.mu.
func (cs *calls) newCall(cb *bridgev1.Callback) *call {
	c := &call{id: cb.GetCallbackId(), session: cb.GetSessionId(), refused: make(chan *Error, 1)}
	tool := cb.GetToolCall()
	parent, state := cb.GetTraceparent(), cb.GetTracestate()
	if parent == "" { // a server before these fields
		parent, state = tool.GetTraceparent(), tool.GetTracestate()
	}
	ctx := context.WithValue(cs.ctx, callKey{}, Call{
		SessionID:        cb.GetSessionId(),
		CallbackID:       c.id,
		ToolCallID:       tool.GetToolCallId(),
		ToolName:         tool.GetToolName(),
		WorkingDirectory: tool.GetWorkingDirectory(),
		Traceparent:      parent,
		Tracestate:       state,
	})
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	cs.byID[c.id] = c
	return c
}

func (cs *calls) slots(cb *bridgev1.Callback) chan struct{} {
	if cb.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
		return cs.toolSlots
	}
	return cs.questionSlots
}

// serve works out the answer to a callback, once there is a slot, and delivers it.
func (cs *calls) serve(c *call, slots chan struct{}, answer answerer) {
	defer cs.drop(c, nil)
	select {
	case slots <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	a := answer(cs.traced(c.ctx))
	<-slots
	cs.deliver(c, a)
}

// traced returns the context of a callback within its trace.
func (cs *calls) traced(ctx context.Context) context.Context {
	call, _ := CallFrom(ctx)
	if extract := cs.client.tracing.Extract; extract != nil && call.Traceparent != "" {
		return extract(ctx, call.Traceparent, call.Tracestate)
	}
	return ctx
}

// deliver sends an answer until the server has taken it: over a new link when the old
// one breaks, again when the runtime was away, and as an error when the server finds it
// invalid, so that the turn goes on.
func (cs *calls) deliver(c *call, answer *bridgev1.Answer) {
	if problem := unsendable(answer); problem != "" {
		cs.log.Warn("answer not sent", "session_id", c.session, "callback_id", c.id, "problem", problem)
		answer = answerError(problem)
	}
	b := newBackoff(cs.client.reconnect)
	for {
		l, err := cs.live(c.ctx)
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
			b.Reset()
		case refusal := <-c.refused:
			cs.log.Warn("answer refused", "session_id", c.session, "callback_id", c.id, "error", refusal)
			switch {
			case refusal.Code == codes.Unavailable && b.Wait(c.ctx, refusal.RetryAfter):
			case refusal.Code == codes.InvalidArgument && answer.GetError() == nil:
				answer = answerError(refusal.Message)
			default:
				return
			}
		}
	}
}

// settle takes the server's reply to an answer.
func (cs *calls) settle(id string, failure *Error) {
	cs.mu.Lock()
	c := cs.byID[id]
	cs.mu.Unlock()
	if c == nil {
		return
	}
	if failure == nil {
		cs.drop(c, &WithdrawnError{Outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED})
		return
	}
	switch failure.Reason {
	case bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED,
		bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND:
		cs.drop(c, &WithdrawnError{})
	default:
		select {
		case c.refused <- failure:
		default: // one refusal is being dealt with
		}
	}
}

// missing returns the callbacks in hand that are not among those given.
func (cs *calls) missing(ids map[string]bool) (over []string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for id := range cs.byID {
		if !ids[id] {
			over = append(over, id)
		}
	}
	return over
}

// withdraw ends a callback whose answer is no longer wanted.
func (cs *calls) withdraw(id string, why *WithdrawnError) {
	cs.mu.Lock()
	c := cs.byID[id]
	cs.mu.Unlock()
	if c != nil {
		cs.drop(c, why)
	}
}

// drop takes a callback out of hand.
func (cs *calls) drop(c *call, why error) {
	cs.mu.Lock()
	if cs.byID[c.id] == c {
		delete(cs.byID, c.id)
	}
	cs.mu.Unlock()
	c.cancel(why)
}

// unsendable says why an answer cannot be sent; a message that gRPC cannot encode would end the
// stream. It is empty for an answer that can.
func unsendable(answer *bridgev1.Answer) string {
	if size := proto.Size(answer); size > maxAnswer {
		return fmt.Sprintf("the answer has %d bytes, more than %d", size, maxAnswer)
	}
	if _, err := proto.Marshal(answer); err != nil {
		return "the answer cannot be encoded: " + err.Error()
	}
	return ""
}

func answerFrame(id string, answer *bridgev1.Answer) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
		Answer: &bridgev1.CallbackAnswer{CallbackId: id, Answer: answer},
	}}
}

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
