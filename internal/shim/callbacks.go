package shim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// errResolved ends a request whose answer is no longer needed.
var errResolved = errors.New("the callback was already resolved")

// question is a callback in the CLI's own form.
type question struct {
	id     string
	method string
	params json.RawMessage
	raw    bool
	// typed is the message that has the parameters, nil if none does.
	typed proto.Message
}

// questions are the callbacks that a participant asks its program. A goroutine for each waits for the answer; end
// ends all of them, and wait waits for that.
type questions struct {
	conn    *conn
	session string
	life    context.Context // of the participant
	send    func(context.Context, *bridgev1.AttachRequest) error
	running sync.WaitGroup

	mu    sync.Mutex
	asked map[string]context.CancelFunc // what the program is being asked, by callback
	over  bool
}

// question gives a callback the CLI's form; ok is false for one that an event asks, of
// which the program has learnt by the event.
func (qs *questions) question(c *bridgev1.Callback) (q question, ok bool) {
	q.id = c.GetCallbackId()
	if raw := c.GetRaw(); raw != nil {
		q.method, q.params, q.raw = raw.GetMethod(), json.RawMessage(raw.GetParamsJson()), true
		return q, callback.ForEvent(q.method) == nil
	}
	method, known := callback.MethodOf(c.GetKind())
	if !known || callback.ForEvent(method) != nil {
		return q, false
	}
	field := c.ProtoReflect().WhichOneof(c.ProtoReflect().Descriptor().Oneofs().ByName("request"))
	if field == nil {
		return q, false
	}
	q.method, q.typed = method, c.ProtoReflect().Get(field).Message().Interface()
	text, err := qs.conn.server.tables.write(q.typed)
	if err != nil {
		qs.conn.log.Warn("decoding a callback failed", "session_id", qs.session, "method", method, "error", err)
		return q, false
	}
	q.params = text
	return q, true
}

// pending asks for a callback from before the stream was opened, unless the program is being asked already.
func (qs *questions) pending(c *bridgev1.Callback, participantID string) {
	qs.mu.Lock()
	_, already := qs.asked[c.GetCallbackId()]
	qs.mu.Unlock()
	if !already && slices.Contains(c.GetParticipantIds(), participantID) {
		qs.ask(c)
	}
}

// ask asks the program. It returns when the request has its place among what is written.
func (qs *questions) ask(c *bridgev1.Callback) {
	if method, _ := callback.MethodOf(c.GetKind()); c.GetTotalBytes() > 0 && callback.ForEvent(method) == nil {
		whole, err := qs.readCallback(c.GetCallbackId())
		if err != nil {
			qs.conn.log.Warn("receiving a callback failed", "session_id", qs.session, "callback_id", c.GetCallbackId(),
				"error", err)
			return
		}
		c = whole
	}
	q, ok := qs.question(c)
	if !ok {
		return
	}
	if q.raw {
		qs.conn.server.counter.raw(q.method)
	} else {
		qs.conn.server.counter.typed(q.method)
	}
	over := func() {}
	if provider(q.method) != "" { // every connection in the session speaks for the one provider
		var mine bool
		if over, mine = qs.conn.server.once(qs.life, qs.session, q.id, func() { qs.ask(c) }); !mine {
			return
		}
	}
	ctx, cancel := context.WithCancelCause(qs.life)
	qs.mu.Lock()
	if qs.over || qs.asked[q.id] != nil {
		qs.mu.Unlock()
		cancel(nil)
		over()
		return
	}
	qs.asked[q.id] = func() { cancel(errResolved) }
	qs.running.Add(1)
	qs.mu.Unlock()
	to := qs.conn.providerConn(q, qs.session)
	queued := make(chan struct{})
	go func() {
		defer qs.running.Done()
		defer over()
		defer cancel(nil)
		result, err := to.rpc.Call(ctx, q.method, q.params, rpcconn.OnQueued(func() { close(queued) }))
		select {
		case <-queued:
		default:
			close(queued)
		}
		qs.mu.Lock()
		delete(qs.asked, q.id)
		qs.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		frame := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
			Answer: &bridgev1.CallbackAnswer{CallbackId: q.id, Answer: qs.answer(q, result, err)},
		}}
		if err := qs.send(ctx, frame); err != nil {
			qs.conn.log.Debug("sending an answer failed", "session_id", qs.session, "method", q.method, "error", err)
		}
	}()
	<-queued
}

// readCallback reads a callback whose request is too long for a frame.
func (qs *questions) readCallback(id string) (*bridgev1.Callback, error) {
	ctx, cancel := context.WithCancel(qs.life)
	defer cancel()
	stream, err := bridgev1.NewCallbackServiceClient(qs.conn.server.config.Bridge).ReadCallback(ctx,
		&bridgev1.ReadCallbackRequest{
			SessionId: qs.session, CallbackId: id, Fidelity: bridgev1.Fidelity_FIDELITY_EXACT,
		})
	var whole []byte
	err = each(stream, err, func(r *bridgev1.ReadCallbackResponse) error {
		whole = append(whole, r.GetChunk()...)
		return nil
	})
	if !isEOF(err) {
		return nil, err
	}
	c := &bridgev1.Callback{}
	return c, proto.Unmarshal(whole, c)
}

// settle ends a request that another participant has answered, or that needs no answer.
func (qs *questions) settle(id string) {
	qs.mu.Lock()
	cancel := qs.asked[id]
	qs.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// end cancels all questions, and later ones.
func (qs *questions) end() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.over = true
	for _, cancel := range qs.asked {
		cancel()
	}
}

// wait waits until no question is under way.
func (qs *questions) wait() { qs.running.Wait() }

// answer is a program's answer.
func (qs *questions) answer(q question, result json.RawMessage, err error) *bridgev1.Answer {
	if err != nil {
		failed := &bridgev1.AnswerError{Message: err.Error()}
		if rpc, ok := errors.AsType[*rpcconn.Error](err); ok {
			failed.Message, failed.Code = rpc.Message, int32(rpc.Code)
		}
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: failed}}
	}
	if a := qs.conn.server.tables.answer(q, result); a != nil {
		return a
	}
	if q.typed != nil {
		qs.conn.server.counter.raw(q.method + " (answer)")
	}
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Raw{Raw: &bridgev1.RawAnswer{ResultJson: string(result)}}}
}

// answer puts a result into the message that is for it; nil if there is none.
func (t *tables) answer(q question, result json.RawMessage) *bridgev1.Answer {
	field := t.answers[q.method]
	if field == nil {
		return nil
	}
	if q.method == callback.HooksInvoke {
		return t.hookAnswer(q, result)
	}
	a := &bridgev1.Answer{}
	m := a.ProtoReflect().NewField(field)
	if t.read(result, m.Message().Interface()) != nil {
		return nil
	}
	a.ProtoReflect().Set(field, m)
	return a
}

// hookAnswer is the answer of a hook: its output, in the case of its type.
func (t *tables) hookAnswer(q question, result json.RawMessage) *bridgev1.Answer {
	var r map[string]json.RawMessage
	var call struct{ HookType string }
	if json.Unmarshal(q.params, &call) != nil || json.Unmarshal(result, &r) != nil || len(r) > 1 || len(r) == 1 &&
		r["output"] == nil {
		return nil
	}
	out := &cliv1.HookOutput{}
	if output := r["output"]; len(r) == 1 {
		field := t.hooks[call.HookType]
		if field == nil || string(output) == "null" {
			return nil
		}
		var variant protoreflect.Value = out.ProtoReflect().NewField(field)
		if t.read(output, variant.Message().Interface()) != nil {
			return nil
		}
		out.ProtoReflect().Set(field, variant)
	}
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Hook{Hook: out}}
}

// provider names what a method asks of that one program provides for the whole process, ""
// for others.
func provider(method string) string {
	family, _, _ := strings.Cut(method, ".")
	if family == "sessionFs" || family == "llmInference" {
		return family
	}
	return ""
}
