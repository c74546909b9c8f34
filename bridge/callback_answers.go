package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Resolve answers a callback.
func (b *Bridge) Resolve(ctx context.Context, r *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	resolve := func(ctx context.Context) (*bridgev1.ResolveResponse, error) {
		s, err := b.asking(ctx, r.GetSessionId())
		if err != nil {
			return nil, err
		}
		form := answerAt{field: "answer", detached: r.GetRequestId() != ""}
		at, err := b.resolve(ctx, s, r.GetCallbackId(), "", r.GetAnswer(), form)
		if err != nil {
			return nil, err
		}
		record(ctx, at)
		return &bridgev1.ResolveResponse{Position: session.Proto(at)}, nil
	}
	return operation.Run(ctx, b.operations, operation.Operation[*bridgev1.ResolveResponse]{
		Scope: idempotency.Resolve, ID: r.GetRequestId(), Request: r, Detach: true, Do: resolve, Settle: b.settleResolve(r, resolve),
	})
}

// answerAt is where an answer is in its request, and whether it is to reach the CLI as it is.
type answerAt struct {
	field string
	exact bool
	// detached: the operation that brings the answer continues without its caller already.
	detached bool
}

// resolve checks an answer and gives it to the CLI.
func (b *Bridge) resolve(ctx context.Context, s *session.Session, id, participant string, a *bridgev1.Answer, at answerAt) (journal.Position, error) {
	by, err := giver(participant, a)
	if err != nil {
		return journal.Position{}, err
	}
	if at, repeated := s.Pending().Repeated(ctx, id, by); repeated {
		return at, nil
	}
	p, err := pendingOf(ctx, s, id)
	if err != nil {
		return journal.Position{}, err
	}
	if a.GetAbstain() != nil {
		return s.Abstain(ctx, id, participant)
	}
	form := b.reply
	if at.exact {
		form = b.exactReply
	}
	reply, err := form(p, a, at.field)
	if err != nil {
		return journal.Position{}, err
	}
	if err := tenancy.CheckAnswer(ctx, s, p, reply, at.field); err != nil {
		return journal.Position{}, err
	}
	// An answer that is on its way comes to its end without its caller, whom a CLI that does
	// not take it must not hold.
	answer := func(ctx context.Context) (journal.Position, error) { return s.Resolve(ctx, id, by, reply) }
	if at.detached {
		return answer(ctx)
	}
	return operation.Detach(ctx, b.operations, answer)
}

// giver is a participant with its answer. Callers of Resolve are nobody in particular: their
// request ids say what is the same.
func giver(participant string, a *bridgev1.Answer) (callback.Giver, error) {
	if participant == "" {
		return callback.Giver{}, nil
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		return callback.Giver{}, fault.Wrap(err, fault.AnswerInvalid, "the answer")
	}
	return callback.Giver{Participant: participant, Digest: sha256.Sum256(text)}, nil
}

// reply gives an answer the CLI's form. The CLI takes nearly anything and burns the
// request on what it cannot use, so everything is checked here.
func (b *Bridge) reply(p *callback.Pending, a *bridgev1.Answer, at string) (callback.Reply, error) {
	wrong := func() (callback.Reply, error) {
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "callback %q is a %s; the answer is of another kind", p.ID, p.Kind.Method).
			WithField(at).With("callback_id", p.ID)
	}
	switch answer := a.GetAnswer().(type) {
	case nil:
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "the answer is empty").WithField(at)
	case *bridgev1.Answer_Tool:
		if p.Kind.Type != bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
			return wrong()
		}
		return b.toolReply(answer.Tool, at+".tool")
	case *bridgev1.Answer_Permission:
		if p.Kind.Type != bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
			return wrong()
		}
		return b.permissionReply(p, answer.Permission, at+".permission")
	case *bridgev1.Answer_Approve, *bridgev1.Answer_Reject:
		if p.Kind.Type != bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
			return wrong()
		}
		return shortReply(a), nil
	case *bridgev1.Answer_Raw:
		if p.Kind.Type == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL || p.Kind.Type == bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
			return wrong()
		}
		return rawReply(p, answer.Raw, at+".raw")
	case *bridgev1.Answer_Error:
		return errorReply(p, answer.Error), nil
	}
	field := b.codec.AnswerCase(a)
	if b.codec.Tag(field) != p.Kind.Method {
		return wrong()
	}
	answer := a.ProtoReflect().Get(field).Message().Interface()
	at += "." + string(field.Name())
	if hook, ok := answer.(*cliv1.HookOutput); ok {
		return b.hookReply(p, hook, at)
	}
	if lacking := b.codec.Lacking(answer.ProtoReflect()); lacking != "" {
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "%s is required", lacking).WithField(at+"."+lacking).With("callback_id", p.ID)
	}
	text, err := b.codec.ToJSON(answer, at)
	if err != nil {
		return callback.Reply{}, answerInvalid(err)
	}
	return typedReply(p, text), nil
}

// typedReply puts an answer where its kind wants it.
func typedReply(p *callback.Pending, text json.RawMessage) callback.Reply {
	if p.Kind.Event && p.Kind.AnswerMember != "" {
		return members(p.Kind.AnswerMember, text)
	}
	return callback.Reply{Members: text}
}

// hookReply is the output of a hook, which must be of the hook's own type; only where that
// has no output here is JSON taken.
func (b *Bridge) hookReply(p *callback.Pending, out *cliv1.HookOutput, at string) (callback.Reply, error) {
	m := out.ProtoReflect()
	variant := m.WhichOneof(m.Descriptor().Oneofs().ByName("variant"))
	switch {
	case variant == nil: // no opinion
		return callback.Reply{Members: json.RawMessage(`{}`)}, nil
	case b.codec.Tag(variant) != p.Hook && (b.codec.Tag(variant) != "" || b.codec.HookTyped(p.Hook)):
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "the hook is a %q, the output is of another", p.Hook).
			WithField(at).With("callback_id", p.ID)
	}
	text, err := b.codec.ToJSON(out, at)
	if err != nil {
		return callback.Reply{}, answerInvalid(err)
	}
	return members("output", text), nil
}

// toolReply has three ways: a result, which may be a failure; an exception; nothing.
func (b *Bridge) toolReply(a *bridgev1.ToolAnswer, at string) (callback.Reply, error) {
	switch o := a.GetOutcome().(type) {
	case *bridgev1.ToolAnswer_Text:
		return members("result", quote(o.Text)), nil
	case *bridgev1.ToolAnswer_Result:
		text, err := b.codec.ToJSON(o.Result, at+".result")
		if err != nil {
			return callback.Reply{}, answerInvalid(err)
		}
		return members("result", text), nil
	case *bridgev1.ToolAnswer_Exception:
		return members("error", quote(o.Exception)), nil
	case *bridgev1.ToolAnswer_NoResult:
		return members("result", json.RawMessage(noResult)), nil
	default:
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "the tool's outcome is empty").WithField(at)
	}
}

// noResult is what the model is told of a tool that returned nothing.
const noResult = `{"textResultForLlm":"Tool returned no result.","resultType":"failure","error":"tool returned no result"}`

// older translates the words of older SDKs, which the CLI would take and then fail on.
var older = map[string]string{
	"approved":                     "approve-once",
	"denied-interactively-by-user": "reject",
	"denied-no-approval-rule-and-could-not-request-from-user": "user-not-available",
}

// current are the kinds that the CLI acts on.
var current = map[string]bool{
	"approve-once": true, "approve-for-session": true, "approve-for-location": true, "approve-permanently": true,
	"approve-read-only-for-session": true, "reject": true, "user-not-available": true,
}

func (b *Bridge) permissionReply(p *callback.Pending, d *cliv1.PermissionDecision, at string) (callback.Reply, error) {
	text, err := b.codec.ToJSON(d, at)
	if err != nil {
		return callback.Reply{}, answerInvalid(err)
	}
	decision, err := permissionDecision(p, text, at)
	if err != nil {
		return callback.Reply{}, err
	}
	return members("result", decision), nil
}

// permissionDecision checks a decision, and gives it the words that the CLI acts on: those for
// older ones, and those that it lacks.
func permissionDecision(p *callback.Pending, text json.RawMessage, at string) (json.RawMessage, error) {
	decision, err := session.ParseObject(text)
	if err != nil {
		return nil, fault.New(fault.AnswerInvalid, "the decision is not an object").WithField(at)
	}
	kind := decision.String("kind")
	if now, ok := older[kind]; ok {
		var translated session.Object
		translated.SetString("kind", now)
		if feedback := decision.Get("feedback"); now == "reject" && feedback != nil {
			translated.Set("feedback", feedback)
		}
		decision, kind = translated, now
	}
	if !current[kind] {
		return nil, fault.New(fault.AnswerInvalid, "permission kind %q is not one the CLI acts on", kind).WithField(at)
	}
	if decision, err = completed(p, decision, at); err != nil {
		return nil, err
	}
	return decision.JSON(), nil
}

// shortReply is a permission's answer in its short form.
func shortReply(a *bridgev1.Answer) callback.Reply {
	var decision session.Object
	decision.SetString("kind", "approve-once")
	if reject := a.GetReject(); reject != nil {
		decision.SetString("kind", "reject")
		if reject.GetFeedback() != "" {
			decision.SetString("feedback", reject.GetFeedback())
		}
	}
	return members("result", decision.JSON())
}

// rawReply is an answer as JSON: a request's result, or what the event's answering call
// takes.
func rawReply(p *callback.Pending, a *bridgev1.RawAnswer, at string) (callback.Reply, error) {
	text := json.RawMessage(a.GetResultJson())
	if !json.Valid(text) {
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "result_json is not JSON").WithField(at + ".result_json")
	}
	if _, err := session.ParseObject(text); err != nil && p.Kind.Event && p.Kind.AnswerMember == "" {
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "result_json is not a JSON object").WithField(at + ".result_json")
	}
	return typedReply(p, text), nil
}

// errorReply answers with an error in the way that the kind has.
func errorReply(p *callback.Pending, e *bridgev1.AnswerError) callback.Reply {
	switch {
	case p.Kind.Method == callback.ToolRequested || p.Kind.Method == callback.CommandExecute:
		return members("error", quote(e.GetMessage()))
	case p.Kind.Method == callback.PermissionRequested:
		return members("result", json.RawMessage(fmt.Sprintf(`{"kind":"reject","feedback":%s}`, quote(e.GetMessage()))))
	case p.Kind.Method == callback.HooksInvoke:
		return callback.HookFailure(p, e.GetMessage())
	case p.Kind.Event:
		return p.Kind.Fallback(p, callback.Unhandled)
	}
	code := e.GetCode()
	if code == 0 {
		code = callback.DefaultErrorCode
	}
	return callback.Reply{Error: &callback.ReplyError{Code: code, Message: e.GetMessage()}}
}

// answerInvalid turns a fault about a field into one about an answer.
func answerInvalid(err error) error {
	if f, ok := fields.AsFault(err); ok && f.Reason == fault.InvalidField {
		return fault.New(fault.AnswerInvalid, "%s", f.Message).WithField(f.Field)
	}
	return err
}

// members is a reply with one member, or none.
func members(key string, value json.RawMessage) callback.Reply {
	var o session.Object
	if key != "" {
		o.Set(key, value)
	}
	return callback.Reply{Members: o.JSON()}
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}

// asking returns a session whose callbacks can be answered.
func (b *Bridge) asking(ctx context.Context, id string) (*session.Session, error) {
	if err := checkName(id, "session_id"); err != nil {
		return nil, err
	}
	s, err := b.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s, s.Asking()
}
