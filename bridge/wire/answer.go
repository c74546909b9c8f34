package wire

import (
	"cmp"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Reply gives an answer to a callback the CLI's form. It checks the answer first: the CLI accepts nearly any answer,
// and loses the request if it cannot use it.
func (c *Codec) Reply(p *callback.Pending, a *bridgev1.Answer, at string) (callback.Reply, error) {
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
		return c.toolReply(p, answer.Tool, at+".tool")
	case *bridgev1.Answer_Permission:
		if p.Kind.Type != bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
			return wrong()
		}
		return c.permissionReply(p, answer.Permission, at+".permission")
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
	field := c.answerCase(a)
	if c.tag(field) != p.Kind.Method {
		return wrong()
	}
	answer := a.ProtoReflect().Get(field).Message().Interface()
	at += "." + string(field.Name())
	if hook, ok := answer.(*cliv1.HookOutput); ok {
		return c.hookReply(p, hook, at)
	}
	text, err := c.toJSON(p, answer, at)
	if err != nil {
		return callback.Reply{}, err
	}
	return typedReply(p, text), nil
}

// toJSON gives a message of an answer the CLI's form.
func (c *Codec) toJSON(p *callback.Pending, m proto.Message, at string) (json.RawMessage, error) {
	if err := c.complete(p, m, at); err != nil {
		return nil, err
	}
	text, err := c.ToJSON(m, at)
	return text, answerInvalid(err)
}

// complete refuses a message of an answer without something that the CLI needs.
func (c *Codec) complete(p *callback.Pending, m proto.Message, at string) error {
	lacking := c.Lacking(m.ProtoReflect())
	if lacking == "" {
		return nil
	}
	return fault.New(fault.AnswerInvalid, "%s is required", lacking).WithField(at+"."+lacking).With("callback_id", p.ID)
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
func (c *Codec) hookReply(p *callback.Pending, out *cliv1.HookOutput, at string) (callback.Reply, error) {
	m := out.ProtoReflect()
	variant := m.WhichOneof(m.Descriptor().Oneofs().ByName("variant"))
	switch {
	case variant == nil: // no opinion
		return callback.Reply{Members: json.RawMessage(`{}`)}, nil
	case c.tag(variant) != p.Hook && (c.tag(variant) != "" || c.hooks[p.Hook]):
		return callback.Reply{}, fault.New(fault.AnswerInvalid, "the hook is %q, but the output is for another hook", p.Hook).
			WithField(at).With("callback_id", p.ID)
	}
	text, err := c.toJSON(p, out, at)
	if err != nil {
		return callback.Reply{}, err
	}
	return members("output", text), nil
}

// toolReply has three ways: a result, which may be a failure; an exception; nothing.
func (c *Codec) toolReply(p *callback.Pending, a *bridgev1.ToolAnswer, at string) (callback.Reply, error) {
	switch o := a.GetOutcome().(type) {
	case *bridgev1.ToolAnswer_Text:
		return members("result", quote(o.Text)), nil
	case *bridgev1.ToolAnswer_Result:
		text, err := c.toJSON(p, o.Result, at+".result")
		if err != nil {
			return callback.Reply{}, err
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

// noResult is the result for the model of a tool that returned nothing.
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

func (c *Codec) permissionReply(p *callback.Pending, d *cliv1.PermissionDecision, at string) (callback.Reply, error) {
	text, err := c.ToJSON(d, at)
	if err != nil {
		return callback.Reply{}, answerInvalid(err)
	}
	decision, err := PermissionDecision(p, text, at)
	if err != nil {
		return callback.Reply{}, err
	}
	return members("result", decision), c.complete(p, d, at)
}

// PermissionDecision checks a decision and returns it in the CLI's form. It translates older kinds, and adds
// the approval that an approve-for-session lacks.
func PermissionDecision(p *callback.Pending, text json.RawMessage, at string) (json.RawMessage, error) {
	decision, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.New(fault.AnswerInvalid, "the decision is not an object").WithField(at)
	}
	kind := decision.String("kind")
	if now, ok := older[kind]; ok {
		var translated jsonobj.Object
		translated.SetString("kind", now)
		if feedback := decision.Get("feedback"); now == "reject" && feedback != nil {
			translated.Set("feedback", feedback)
		}
		decision, kind = translated, now
	}
	if !current[kind] {
		return nil, fault.New(fault.AnswerInvalid, "the CLI does not support the decision %q", kind).WithField(at)
	}
	if decision, err = completed(p, decision, at); err != nil {
		return nil, err
	}
	return decision.JSON(), nil
}

// shortReply is a permission's answer in its short form.
func shortReply(a *bridgev1.Answer) callback.Reply {
	var decision jsonobj.Object
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
	if _, err := jsonobj.Parse(text); err != nil && p.Kind.Event && p.Kind.AnswerMember == "" {
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
	return plainError(e)
}

// plainError answers a request with an error of JSON-RPC.
func plainError(e *bridgev1.AnswerError) callback.Reply {
	code := cmp.Or(e.GetCode(), callback.DefaultErrorCode)
	return callback.Reply{Error: &callback.ReplyError{Code: code, Message: e.GetMessage()}}
}

// answerInvalid turns a fault about a field into one about an answer.
func answerInvalid(err error) error {
	if f, ok := fields.AsFault(err); ok && f.Reason == fault.InvalidField {
		return fault.New(fault.AnswerInvalid, "%s", f.Message).WithField(f.Field)
	}
	return err
}

// members is a reply with one member.
func members(key string, value json.RawMessage) callback.Reply {
	var o jsonobj.Object
	o.Set(key, value)
	return callback.Reply{Members: o.JSON()}
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}
