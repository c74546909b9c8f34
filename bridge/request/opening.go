package request

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// MaxTimeout bounds the durations that callers give.
const MaxTimeout = 30 * 24 * time.Hour

// config returns a configuration in the CLI's form, and its tools. An exact configuration may have any member
// except the members that the bridge sets, and is not checked: the CLI says what is wrong.
func (p *Parser) config(c *cliv1.SessionConfig, at string, exact bool) (jsonobj.Object, *[]config.Tool, error) {
	if c == nil {
		return nil, nil, nil
	}
	o, _, err := p.object(c, at, exact)
	if err != nil {
		return nil, nil, err
	}
	array := o.Get("tools")
	o.Set("tools", nil)
	var tools []config.Tool
	if exact {
		tools = config.ToolsAsGiven(array)
	} else if tools, err = p.declared(c, o, array, at); err != nil {
		return nil, nil, err
	}
	if array == nil {
		return o, nil, nil
	}
	return o, &tools, nil
}

// declared checks a configuration, which is o in the CLI's form, and returns its tools.
func (p *Parser) declared(c *cliv1.SessionConfig, o jsonobj.Object, tools json.RawMessage, at string) ([]config.Tool, error) {
	parsed, err := config.ParseTools(tools, at+".tools")
	if err != nil {
		return nil, err
	}
	if err := config.CheckDeclared(o, at+"."); err != nil {
		return nil, err
	}
	return parsed, p.complete(c, at)
}

// complete refuses a message without something that the CLI needs.
func (p *Parser) complete(m proto.Message, at string) error {
	lacking := p.cfg.Codec.Lacking(m.ProtoReflect())
	if lacking == "" {
		return nil
	}
	return fault.New(fault.InvalidField, "%s is required", lacking).WithField(at + "." + lacking)
}

// disableResume is the one reserved member that an exact request may set.
const disableResume = "disableResume"

// object gives a message the CLI's form without the members that the bridge sets. resumeDisabled
// reports whether disableResume was set.
func (p *Parser) object(m proto.Message, at string, exact bool) (o jsonobj.Object, resumeDisabled bool, err error) {
	limits := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: wire.ReservedMembers}
	if exact {
		limits = translate.JSONOptions{}
	}
	text, err := p.cfg.Codec.ToJSONAs(m, at, limits)
	if err != nil {
		return nil, false, err
	}
	if o, err = jsonobj.Parse(text); err != nil {
		return nil, false, fault.Wrap(err, fault.Internal, "%s", at)
	}
	resumeDisabled = o.Bool(disableResume)
	for _, reserved := range wire.ReservedMembers {
		o.Set(reserved, nil)
	}
	return o, resumeDisabled, nil
}

// WithTokens leaves the default provider out where the caller gives GitHub tokens: the CLI
// refuses both, and a token means that no such provider is wanted.
func WithTokens(o *session.Opening, given *cliv1.SessionConfig) {
	if given.GetProvider() == nil && (o.AnswersGitHubToken() ||
		o.Config.Get("gitHubToken") != nil || o.Config.Get("gitHubTokenProviderRegistrationId") != nil) {
		o.Config.Set("provider", nil)
	}
}

// Handling reads which callbacks a caller answers.
func Handling(h *bridgev1.Handlers, at string) (*config.Handling, error) {
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
			return nil, fault.New(fault.InvalidField, "callbacks of the kind %v cannot be handled", kind).
				WithField(fmt.Sprintf("%s.kinds[%d]", at, i))
		}
		out.Methods = append(out.Methods, method)
	}
	return out, nil
}

// Creation reads a CreateSessionRequest. at is its path in the caller's request, with its dot, or
// empty.
func (p *Parser) Creation(
	c caller.Caller, r *bridgev1.CreateSessionRequest, at string, exact bool,
) (o session.Opening, err error) {
	if id := r.GetSessionId(); id != "" {
		if err := tenancy.CheckID(id, at+"session_id"); err != nil {
			return o, err
		}
	}
	o.Exact = exact
	if o.Config, o.Tools, err = p.config(r.GetConfig(), at+"config", exact); err != nil {
		return o, err
	}
	removed, err := clearListed(&o, r.GetUpdateMask(), at+"update_mask")
	if err != nil {
		return o, err
	}
	if o.Config, err = p.Underlying(c, o.Config, removed...); err != nil {
		return o, fields.Within(err, at)
	}
	if err := p.settings(c, &o, r, at); err != nil {
		return o, err
	}
	if cloud := r.GetCloud(); cloud != nil {
		text, err := p.cfg.Codec.ToJSON(cloud, at+"cloud")
		if err != nil {
			return o, err
		}
		o.Params.Set("cloud", text)
	}
	WithTokens(&o, r.GetConfig())
	o.Labels, o.NodeLabels = r.GetLabels(), r.GetNodeLabels()
	if err := sessions.CheckLabels(o.Labels, at+"labels"); err != nil {
		return o, err
	}
	if err := sessions.CheckLabels(o.NodeLabels, at+"node_labels"); err != nil {
		return o, err
	}
	if !sessions.HasLabels(p.cfg.NodeLabels, o.NodeLabels) {
		return o, sessions.NodesUnfit(o.NodeLabels).WithField(at + "node_labels")
	}
	return o, nil
}

// Resumption reads a ResumeSessionRequest, except its session id.
func (p *Parser) Resumption(
	c caller.Caller, r *bridgev1.ResumeSessionRequest, at string, exact bool,
) (o session.Opening, err error) {
	o.Exact = exact
	if o.Config, o.Tools, err = p.config(r.GetConfig(), at+"config", exact); err != nil {
		return o, err
	}
	removed, err := clearListed(&o, r.GetUpdateMask(), at+"update_mask")
	if err != nil {
		return o, err
	}
	if o.Config, err = Restrained(c, o.Config); err != nil {
		return o, fields.Within(err, at)
	}
	p.remove(c, &o, removed)
	if err := p.settings(c, &o, r, at); err != nil {
		return o, err
	}
	o.ContinuePending = r.GetContinuePendingWork()
	if r.GetOptions() != nil {
		if !exact {
			if err := p.complete(r.GetOptions(), at+"options"); err != nil {
				return o, err
			}
		}
		var silent bool
		if o.Params, silent, err = p.object(r.GetOptions(), at+"options", exact); err != nil {
			return o, err
		}
		if exact && silent { // the CLI's own way of joining
			o.Params.SetBool(disableResume, true)
		}
	}
	return o, nil
}

// openRequest is what requests that open a session have in common.
type openRequest interface {
	GetConfig() *cliv1.SessionConfig
	GetProviderRef() string
	GetCallbackTimeout() *durationpb.Duration
	GetLifetime() bridgev1.Lifetime
	GetHandlers() *bridgev1.Handlers
	GetOnInterruption() bridgev1.OnInterruption
}

// settings reads the settings of a request that opens a session.
func (p *Parser) settings(c caller.Caller, o *session.Opening, r openRequest, at string) (err error) {
	if err := p.named(c, o, r.GetProviderRef(), r.GetConfig().GetProvider() != nil, at); err != nil {
		return err
	}
	timeout := at + "callback_timeout"
	if o.Timeout, err = fields.Duration(r.GetCallbackTimeout(), timeout, time.Millisecond, MaxTimeout); err != nil {
		return err
	}
	if err := fields.Known(r.GetLifetime(), at+"lifetime"); err != nil {
		return err
	}
	if err := fields.Known(r.GetOnInterruption(), at+"on_interruption"); err != nil {
		return err
	}
	o.Lifetime, o.OnInterruption = r.GetLifetime(), r.GetOnInterruption()
	o.Handling, err = Handling(r.GetHandlers(), at+"handlers")
	return err
}

// Tools gives tools the CLI's form.
func (p *Parser) Tools(list []*cliv1.ToolDefinition, at string, exact bool) ([]config.Tool, error) {
	_, tools, err := p.config(&cliv1.SessionConfig{Tools: list}, at, exact)
	if err != nil {
		return nil, fields.Rename(err, at+".tools", at)
	}
	if tools == nil {
		return nil, nil
	}
	return *tools, nil
}

// Declared gives the CLI's form to what a participant declares beside its tools: its commands, and
// what is bound to its connection. at is the path of the start, with its dot.
func (p *Parser) Declared(start *bridgev1.AttachStart, at string) ([]config.Command, jsonobj.Object, error) {
	own, _, err := p.config(&cliv1.SessionConfig{
		Commands: start.GetCommands(), Canvases: start.GetCanvases(),
		ExtensionInfo: start.GetExtensionInfo(), CanvasProvider: start.GetCanvasProvider(),
	}, "config", start.GetExact())
	if err != nil {
		return nil, nil, fields.Rename(err, "config.", at)
	}
	commands := config.CommandsAsGiven(own.Get("commands"))
	own.Set("commands", nil)
	if strings.HasPrefix(start.GetCanvasProvider().GetId(), "connection:") {
		err = fault.New(fault.InvalidField, `ids that begin with "connection:" are reserved for the CLI`).
			WithField(at + "canvas_provider.id")
	}
	return commands, own, err
}
