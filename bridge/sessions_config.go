package bridge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// maxTimeout bounds the durations callers give.
const maxTimeout = 30 * 24 * time.Hour

// config gives a configuration the CLI's form, with the tools apart. An exact one may say
// anything, but what the bridge sets it still does.
func (b *Bridge) config(c *cliv1.SessionConfig, at string, exact bool) (jsonobj.Object, *[]config.Tool, error) {
	if c == nil {
		return nil, nil, nil
	}
	limits := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: wire.ReservedMembers}
	if exact {
		limits = translate.JSONOptions{}
	}
	text, err := b.codec.ToJSONAs(c, at, limits)
	if err != nil {
		return nil, nil, err
	}
	o, err := jsonobj.Parse(text)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "session configuration")
	}
	for _, own := range wire.ReservedMembers {
		o.Set(own, nil)
	}
	var tools *[]config.Tool
	if array := o.Get("tools"); array != nil {
		list, err := config.ParseTools(array, at+".tools")
		if err != nil {
			return nil, nil, err
		}
		tools = &list
		o.Set("tools", nil)
	}
	return o, tools, nil
}

// withTokens leaves the default provider out where the caller gives GitHub tokens: the CLI
// refuses both, and a token means that no such provider is wanted.
func withTokens(o *session.Opening, given *cliv1.SessionConfig) {
	if given.GetProvider() == nil && (o.AnswersGitHubToken() ||
		o.Config.Get("gitHubToken") != nil || o.Config.Get("gitHubTokenProviderRegistrationId") != nil) {
		o.Config.Set("provider", nil)
	}
}

// handling reads which callbacks a caller answers.
func handling(h *bridgev1.Handlers, at string) (*config.Handling, error) {
	if h == nil {
		return nil, nil
	}
	out := &config.Handling{Methods: slices.Clone(h.GetMethods()), HookTypes: h.GetHookTypes()}
	if h.GetPermission() {
		out.Methods = append(out.Methods, callback.PermissionRequested)
	}
	for i, kind := range h.GetKinds() {
		method, ok := callback.MethodOf(kind)
		if !ok {
			return nil, fault.New(fault.InvalidField, "%v is no kind that can be handled", kind).WithField(fmt.Sprintf("%s.kinds[%d]", at, i))
		}
		out.Methods = append(out.Methods, method)
	}
	return out, nil
}

// creation reads a CreateSessionRequest. at is where it is in the caller's request, with
// its dot, or empty.
func (b *Bridge) creation(ctx context.Context, r *bridgev1.CreateSessionRequest, at string, exact bool) (o session.Opening, err error) {
	if id := r.GetSessionId(); id != "" {
		if err := tenancy.CheckID(id, at+"session_id"); err != nil {
			return o, err
		}
	}
	if o.Config, o.Tools, err = b.config(r.GetConfig(), at+"config", exact); err != nil {
		return o, err
	}
	if o.Config, err = b.underlying(ctx, o.Config); err != nil {
		return o, fields.Within(err, at)
	}
	if err := b.named(ctx, &o, r.GetProviderRef(), r.GetConfig().GetProvider() != nil, at); err != nil {
		return o, err
	}
	if o.Timeout, err = fields.Duration(r.GetCallbackTimeout(), at+"callback_timeout", time.Millisecond, maxTimeout); err != nil {
		return o, err
	}
	if err := fields.Known(r.GetLifetime(), at+"lifetime"); err != nil {
		return o, err
	}
	if cloud := r.GetCloud(); cloud != nil {
		text, err := b.codec.ToJSON(cloud, at+"cloud")
		if err != nil {
			return o, err
		}
		o.Params.Set("cloud", text)
	}
	o.Lifetime = r.GetLifetime()
	o.Handling, err = handling(r.GetHandlers(), at+"handlers")
	withTokens(&o, r.GetConfig())
	return o, err
}

// resumption reads a ResumeSessionRequest.
func (b *Bridge) resumption(ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, exact bool) (o session.Opening, err error) {
	if err := b.checkOwn(ctx, r.GetSessionId(), at+"session_id"); err != nil {
		return o, err
	}
	if o.Config, o.Tools, err = b.config(r.GetConfig(), at+"config", exact); err != nil {
		return o, err
	}
	if o.Config, err = b.restrained(ctx, o.Config); err != nil {
		return o, fields.Within(err, at)
	}
	if o.Timeout, err = fields.Duration(r.GetCallbackTimeout(), at+"callback_timeout", time.Millisecond, maxTimeout); err != nil {
		return o, err
	}
	if err := fields.Known(r.GetLifetime(), at+"lifetime"); err != nil {
		return o, err
	}
	if err := b.named(ctx, &o, r.GetProviderRef(), r.GetConfig().GetProvider() != nil, at); err != nil {
		return o, err
	}
	if r.GetOptions() != nil {
		limits := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: wire.ReservedMembers}
		if exact {
			limits = translate.JSONOptions{}
		}
		text, err := b.codec.ToJSONAs(r.GetOptions(), at+"options", limits)
		if err != nil {
			return o, err
		}
		if o.Params, err = jsonobj.Parse(text); err != nil {
			return o, fault.Wrap(err, fault.Internal, "resume options")
		}
		silent := exact && o.Params.Bool("disableResume")
		for _, own := range wire.ReservedMembers {
			o.Params.Set(own, nil)
		}
		if silent { // the CLI's own way of joining
			o.Params.SetBool("disableResume", true)
		}
	}
	o.Lifetime, o.ContinuePending = r.GetLifetime(), r.GetContinuePendingWork()
	o.Handling, err = handling(r.GetHandlers(), at+"handlers")
	return o, err
}

// prompt reads what a caller says. at is where it is in the request.
func (b *Bridge) prompt(ctx context.Context, p *bridgev1.Prompt, at string) (m sending.Message, err error) {
	if strings.TrimSpace(p.GetText()) == "" && len(p.GetAttachments()) == 0 {
		return m, fault.New(fault.PromptEmpty, "the prompt has neither text nor attachments").WithField(at + ".text")
	}
	if err := b.admission.CheckPrompt(caller.From(ctx).Tenant, len(p.GetText()), at+".text"); err != nil {
		return m, err
	}
	if err := fields.Known(p.GetHeaderStrategy(), at+".header_strategy"); err != nil {
		return m, err
	}
	// The CLI's own request has the same members; it is translated as one.
	send := &cliv1.SessionServiceSendRequest{
		Prompt: p.GetText(), Attachments: p.GetAttachments(), Mode: p.GetMode(), AgentMode: p.GetAgentMode(),
		RequestHeaders: p.GetRequestHeaders(), ResponseFormat: p.GetResponseFormat(), Billable: p.Billable,
		DisplayPrompt: optional(p.GetDisplayText()), RequiredTool: optional(p.GetRequiredTool()), Source: optional(p.GetSource()),
		Traceparent: optional(p.GetTraceparent()), Tracestate: optional(p.GetTracestate()), JsonExtra: p.GetJsonExtra(),
	}
	if p.GetPrepend() {
		send.Prepend = &p.Prepend
	}
	text, err := b.codec.ToJSON(send, at, "sessionId", "wait")
	if err != nil {
		return m, err
	}
	if m.Params, err = jsonobj.Parse(text); err != nil {
		return m, fault.Wrap(err, fault.Internal, "prompt")
	}
	m.Immediate = p.GetMode() == cliv1.SendMode_SEND_MODE_IMMEDIATE
	m.Override = len(p.GetRequestHeaders()) > 0 && p.GetHeaderStrategy() != bridgev1.HeaderStrategy_HEADER_STRATEGY_MERGE
	return m, nil
}

// optional is nil for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// tools gives tools the CLI's form.
func (b *Bridge) tools(list []*cliv1.ToolDefinition, at string, exact bool) ([]config.Tool, error) {
	_, tools, err := b.config(&cliv1.SessionConfig{Tools: list}, at, exact)
	if err != nil {
		return nil, fields.Rename(err, at+".tools", at)
	}
	if tools == nil {
		return nil, nil
	}
	return *tools, nil
}

// declared gives what a participant declares beside its tools the CLI's form: its commands,
// and what is bound to a connection of its own. at is where the start is, with its dot.
func (b *Bridge) declared(start *bridgev1.AttachStart, at string) ([]config.Command, jsonobj.Object, error) {
	own, _, err := b.config(&cliv1.SessionConfig{
		Commands: start.GetCommands(), Canvases: start.GetCanvases(),
		ExtensionInfo: start.GetExtensionInfo(), CanvasProvider: start.GetCanvasProvider(),
	}, "config", start.GetExact())
	if err != nil {
		return nil, nil, fields.Rename(err, "config.", at)
	}
	commands, err := config.ParseCommands(own.Get("commands"), at+"commands")
	own.Set("commands", nil)
	if err == nil && strings.HasPrefix(start.GetCanvasProvider().GetId(), "connection:") {
		err = fault.New(fault.InvalidField, `ids that begin with "connection:" are the CLI's`).WithField(at + "canvas_provider.id")
	}
	return commands, own, err
}
