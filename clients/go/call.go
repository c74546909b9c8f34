package copilot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/answer"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/worker"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// maxConcurrentQuestions bounds the handlers, other than tools, that run at once.
	maxConcurrentQuestions = 64
	// maxCalls bounds the callbacks that a participant has in hand. One more is answered
	// with an error. The server itself keeps no more than this pending in a session.
	maxCalls = 1024
)

// call is a pending callback that this client handles, and the context of its handler, which ends with the callback.
type call struct {
	context.Context
	cancel context.CancelCauseFunc
	info   Call

	// The fields below are guarded by the mutex of calls.

	// answer is nil until it is sent for the first time.
	answer *bridgev1.Answer
	// sentOn is the link that the answer was sent on. Nil: a goroutine is about to send it.
	sentOn *link
	// backoff has the pauses between refusals of the answer; nil before the first.
	backoff *pause.Backoff
}

// Value returns what [CallFrom] reads, or a value of the participation.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return &c.info
	}
	return c.Context.Value(key)
}

// calls are the pending callbacks that a participant handles. A goroutine for each works out the answer and sends it.
// The answer is kept until the server has it or the callback is over, and sent again on a new link.
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
	worker                   *worker.Worker

	mu   sync.Mutex
	byID map[string]*call
}

// ask starts to handle a callback, unless it is handled already.
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
		cs.worker.Do(func() { cs.serve(c, cs.slots(cb), answer) })
	case !known && l != nil:
		cs.log.Warn("too many callbacks at once", "session_id", cb.GetSessionId(), "callback_id", id)
		// A failure to send ends the link, and the callback comes again.
		_ = l.send(answerFrame(id, answerError("too many callbacks at once")))
	}
}

// newCall puts a callback in hand. The caller holds cs.mu.
func (cs *calls) newCall(cb *bridgev1.Callback) *call {
	tool := cb.GetToolCall()
	parent, state := cb.GetTraceparent(), cb.GetTracestate()
	if parent == "" { // a server before these fields
		parent, state = tool.GetTraceparent(), tool.GetTracestate()
	}
	c := &call{info: Call{
		SessionID:        cb.GetSessionId(),
		CallbackID:       cb.GetCallbackId(),
		ToolCallID:       tool.GetToolCallId(),
		ToolName:         tool.GetToolName(),
		WorkingDirectory: tool.GetWorkingDirectory(),
		Traceparent:      parent,
		Tracestate:       state,
	}}
	c.Context, c.cancel = context.WithCancelCause(cs.ctx)
	cs.byID[c.info.CallbackID] = c
	return c
}

func (cs *calls) slots(cb *bridgev1.Callback) chan struct{} {
	if cb.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
		return cs.toolSlots
	}
	return cs.questionSlots
}

// serve works out the answer to a callback, once there is a slot, and sends it.
func (cs *calls) serve(c *call, slots chan struct{}, work answerer) {
	select {
	case slots <- struct{}{}:
	case <-c.Done():
		return
	}
	a := work(cs.traced(c))
	<-slots
	if problem := answer.Unsendable(a); problem != "" {
		cs.log.Warn("answer not sent", "session_id", c.info.SessionID, "callback_id", c.info.CallbackID, "problem", problem)
		a = answerError(problem)
	}
	cs.deliver(c, a)
}

// traced returns the context of a callback within its trace.
func (cs *calls) traced(c *call) context.Context {
	if extract := cs.client.tracing.Extract; extract != nil && c.info.Traceparent != "" {
		return extract(c, c.info.Traceparent, c.info.Tracestate)
	}
	return c
}

// deliver sends an answer, on a new link when the old one breaks. It does not wait for the server's reply: see settle.
func (cs *calls) deliver(c *call, answer *bridgev1.Answer) {
	for answer != nil {
		l, err := cs.live(c)
		if err != nil || !cs.sending(c, answer, l) {
			return
		}
		err = l.send(answerFrame(c.info.CallbackID, answer))
		if err == nil && answer.GetAbstain() != nil {
			cs.drop(c, nil)
			return
		}
		select {
		case <-l.down:
			answer = cs.unsent(c, l)
		default: // settle or lost takes the call up
			return
		}
	}
}

// sending notes, before it is sent, that an answer goes out on a link. It reports false when the callback is over.
func (cs *calls) sending(c *call, answer *bridgev1.Answer, l *link) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.answer, c.sentOn = answer, l
	return cs.byID[c.info.CallbackID] == c
}

// unsent returns an answer that was sent on a broken link, for the caller to send again; nil when another goroutine
// sends it.
func (cs *calls) unsent(c *call, l *link) *bridgev1.Answer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.sentOn != l {
		return nil
	}
	c.sentOn, c.backoff = nil, nil
	return c.answer
}

// lost sends the answers again that went out on a link that is down, and that the server has not acknowledged.
func (cs *calls) lost(l *link) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byID {
		if c.sentOn == l {
			c.sentOn, c.backoff = nil, nil
			go cs.deliver(c, c.answer)
		}
	}
}

// settle takes the server's reply to an answer.
func (cs *calls) settle(id string, failure *Error) {
	cs.mu.Lock()
	c := cs.byID[id]
	cs.mu.Unlock()
	switch {
	case c == nil:
	case failure == nil:
		cs.drop(c, errAnswered)
	case failure.Reason == bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED,
		failure.Reason == bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND:
		cs.drop(c, &WithdrawnError{})
	default:
		cs.refuse(c, failure)
	}
}

// errAnswered is the cause of the end of a callback's context when the server has the answer.
var errAnswered = &WithdrawnError{Outcome: CallbackAnswered}

// refuse takes the refusal of an answer: it is sent again when the runtime was away, and as an error when the server
// found it invalid, so that the turn goes on.
func (cs *calls) refuse(c *call, refusal *Error) {
	answer := cs.claim(c)
	if answer == nil {
		return // another refusal is being dealt with
	}
	cs.log.Warn("answer refused", "session_id", c.info.SessionID, "callback_id", c.info.CallbackID, "error", refusal)
	switch {
	case refusal.Code == codes.Unavailable:
		go cs.repeat(c, answer, refusal.RetryAfter)
	case refusal.Code == codes.InvalidArgument && answer.GetError() == nil:
		go cs.deliver(c, answerError(refusal.Message))
	default:
		cs.drop(c, nil)
	}
}

// claim returns the answer that was sent last, for the caller to send again; nil when another goroutine sends it.
func (cs *calls) claim(c *call) *bridgev1.Answer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.sentOn == nil {
		return nil
	}
	c.sentOn = nil
	return c.answer
}

// repeat sends an answer again after a pause, or gives up.
func (cs *calls) repeat(c *call, answer *bridgev1.Answer, retryAfter time.Duration) {
	cs.mu.Lock()
	if c.backoff == nil {
		c.backoff = newBackoff(cs.client.reconnect)
	}
	b := c.backoff
	cs.mu.Unlock()
	if b.Wait(c, retryAfter) {
		cs.deliver(c, answer)
	} else {
		cs.drop(c, nil)
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
	if cs.byID[c.info.CallbackID] == c {
		delete(cs.byID, c.info.CallbackID)
	}
	cs.mu.Unlock()
	c.cancel(why)
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
