package wire

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ExactReply is Reply for a caller that answers as the CLI's own clients do: what it says
// reaches the CLI as it is.
func (c *Codec) ExactReply(p *callback.Pending, a *bridgev1.Answer, at string) (callback.Reply, error) {
	if answer := a.GetError(); answer != nil && !p.Kind.Event {
		return plainError(answer), nil
	}
	if decision := a.GetPermission(); decision != nil && p.Kind.Method == callback.PermissionRequested {
		text, err := c.ToJSONAs(decision, at+".permission", translate.JSONOptions{})
		return members("result", text), answerInvalid(err)
	}
	if result := a.GetTool().GetResult(); result != nil && p.Kind.Method == callback.ToolRequested {
		text, err := c.ToJSONAs(result, at+".tool.result", translate.JSONOptions{})
		return members("result", text), answerInvalid(err)
	}
	field := c.answerCase(a)
	hook := a.GetHook()
	if field == nil || c.tag(field) != p.Kind.Method || hook != nil && hook.GetVariant() == nil {
		return c.Reply(p, a, at)
	}
	text, err := c.ToJSONAs(a.ProtoReflect().Get(field).Message().Interface(), at, translate.JSONOptions{})
	switch {
	case err != nil:
		return callback.Reply{}, answerInvalid(err)
	case hook != nil:
		return members("output", text), nil
	}
	return typedReply(p, text), nil
}
