package copilot

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/contract"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Handler answers the callbacks of one kind, or the hooks of one type. [Handle] makes
// one.
type Handler struct {
	kind bridgev1.CallbackKind
	// hook is the hook's type; empty for all of them, and for what is no hook.
	hook string
	// request and answer are the cases of Callback and Answer; input and output those
	// within a hook's, where the handler is for one type.
	request, answer, input, output protoreflect.FieldDescriptor

	run func(ctx context.Context, req proto.Message) (proto.Message, error)
	err error
}

// Handle makes a handler of a function. Which kind of callback it answers follows from
// its request, which is a case of [bridgev1.Callback]; its answer is the case of
// [bridgev1.Answer] of the same name. For hooks of one type, the two are that type's
// input and output: *cliv1.HookPreToolUseInput and *cliv1.HookPreToolUseOutput.
//
// An error, a panic and a nil answer are sent as an error, from which the CLI makes the
// most cautious answer that the kind has; a hook may well give nil, which is no opinion.
// [ErrAbstain] leaves the callback to others. ctx ends when the answer is no longer
// wanted. Functions whose types do not fit make CreateSession, ResumeSession or
// JoinSession fail.
func Handle[Req, Answer proto.Message](fn func(context.Context, Req) (Answer, error)) Handler {
	var req Req
	var answer Answer
	if any(req) == nil || any(answer) == nil {
		return Handler{err: errors.New("copilot: a handler needs the types of its messages")}
	}
	h := newHandler(req.ProtoReflect().Descriptor(), answer.ProtoReflect().Descriptor())
	h.run = func(ctx context.Context, m proto.Message) (proto.Message, error) {
		req, ok := m.(Req)
		if !ok {
			return nil, fmt.Errorf("the request is a %T", m)
		}
		out, err := fn(ctx, req)
		if err != nil || !out.ProtoReflect().IsValid() {
			return nil, err
		}
		return out, nil
	}
	return h
}

// newHandler finds the kind that a pair of messages is for.
func newHandler(req, answer protoreflect.MessageDescriptor) Handler {
	c := contract.Read()
	tag, h := c.Requests[req.FullName()], Handler{}
	if tag == "" {
		if h.hook = c.Inputs[req.FullName()]; h.hook == "" {
			return Handler{err: fmt.Errorf("copilot: no callback has the request %s", req.FullName())}
		}
		tag = c.Requests[contract.HookInvocation]
		h.input, h.output = c.Input[h.hook], c.Output[h.hook]
	}
	h.kind, h.request, h.answer = c.Kinds[tag], c.Request[tag], c.Answer[tag]
	want := h.answer // a hook without a separate output may answer with any
	if h.output != nil {
		want = h.output
	}
	switch {
	case want == nil:
		h.err = fmt.Errorf("copilot: %s is handled by the session's tools and OnPermission", tag)
	case want.Message().FullName() != answer.FullName():
		h.err = fmt.Errorf("copilot: the answer to %s is a %s, not a %s", req.FullName(), want.Message().FullName(),
			answer.FullName())
	}
	return h
}

// message is the request that the handler takes; nil if the callback has it not.
func (h Handler) message(cb *bridgev1.Callback) proto.Message {
	m := cb.ProtoReflect()
	if !m.Has(h.request) {
		return nil
	}
	m = m.Get(h.request).Message()
	if h.input != nil {
		if !m.Has(h.input) {
			return nil
		}
		m = m.Get(h.input).Message()
	}
	return m.Interface()
}

// wrap makes an answer of what the handler's function gave.
func (h Handler) wrap(m proto.Message) *bridgev1.Answer {
	if h.kind == bridgev1.CallbackKind_CALLBACK_KIND_HOOK && m == nil {
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Hook{Hook: &cliv1.HookOutput{}}}
	}
	if h.output != nil {
		hook := &cliv1.HookOutput{}
		hook.ProtoReflect().Set(h.output, protoreflect.ValueOfMessage(m.ProtoReflect()))
		m = hook
	}
	a := &bridgev1.Answer{}
	a.ProtoReflect().Set(h.answer, protoreflect.ValueOfMessage(m.ProtoReflect()))
	return a
}

// handlerKey is what there can be one handler for.
type handlerKey struct {
	kind bridgev1.CallbackKind
	hook string
}

// handlerFor finds the handler of a callback: that of a hook's type before that of all.
func (hs *handlers) handlerFor(cb *bridgev1.Callback) (Handler, bool) {
	if hook := cb.GetHook().GetHookType(); hook != "" {
		if h, ok := hs.byKind[handlerKey{cb.GetKind(), hook}]; ok {
			return h, true
		}
	}
	h, ok := hs.byKind[handlerKey{kind: cb.GetKind()}]
	return h, ok
}

// answerWith has a handler answer a callback.
func (hs *handlers) answerWith(ctx context.Context, cb *bridgev1.Callback, h Handler) (answer *bridgev1.Answer) {
	defer func() {
		if r := recover(); r != nil {
			answer = handlerFailed(cb, hs.panicked(cb, r))
		}
	}()
	req := h.message(cb)
	if req == nil {
		return answerError("the request has a form that its handler does not know")
	}
	out, err := h.run(ctx, req)
	switch {
	case errors.Is(err, ErrAbstain):
		return abstain()
	case err == nil && out == nil && h.kind != bridgev1.CallbackKind_CALLBACK_KIND_HOOK:
		err = errNoAnswer
	}
	if err != nil {
		hs.failed(cb, err)
		return handlerFailed(cb, err.Error())
	}
	return h.wrap(out)
}

// AnswerWith is the answer that a message is, for [Session.Resolve]: a case of
// [bridgev1.Answer], or of [cliv1.HookOutput].
func AnswerWith(m proto.Message) (*bridgev1.Answer, error) {
	c, name := contract.Read(), m.ProtoReflect().Descriptor().FullName()
	if field := c.Outputs[name]; field != nil {
		return Handler{answer: c.Answer[c.Requests[contract.HookInvocation]], output: field}.wrap(m), nil
	}
	if field := c.Answers[name]; field != nil {
		return Handler{answer: field}.wrap(m), nil
	}
	return nil, fmt.Errorf("copilot: no callback is answered with a %s", name)
}
