package passthrough

import (
	"context"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// call is a call of a method of the CLI, whichever service it came by.
type call struct {
	method string
	// id is the session that the call is about, "" if it is about none.
	id string
	// params are the parameters, but for the session's id.
	params jsonobj.Object
	// exact asks for the CLI's own behaviour, where the bridge's would be stricter.
	exact bool
	// typed is false for RawService: its results are the CLI's own, its refusals the
	// bridge's, unless a program has the bridge to itself.
	typed bool
	// profile selects the runtime for calls about no session; nil selects the default runtime.
	profile *runtime.Profile
	// request names a prompt with a request id in the session's outbox; "" for other calls.
	request string
}

// passErrors reports whether the CLI is to refuse a call itself, in its own words.
func (c *call) passErrors(svc *Service) bool { return c.exact && (c.typed || svc.cfg.SingleClient) }

// sessionMethods is what the methods begin with that are about one session.
const sessionMethods = "session."

// CallCLI serves every method of copilot.cli.v1. It translates the request by the method's descriptor, calls
// the runtime that has the session, or the bridge's own function from the table overrides, and translates the
// result. A call about no session goes to the runtime of the profile.
func (svc *Service) CallCLI(
	ctx context.Context, method protoreflect.MethodDescriptor, request []byte, exact bool, requestID string,
	profile *bridgev1.RuntimeProfile,
) ([]byte, error) {
	rules, _ := proto.GetExtension(method.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	c := &call{method: rules.GetMethod(), exact: exact, typed: true}
	if profile != nil {
		p, err := svc.profile(ctx, profile)
		if err != nil {
			return nil, err
		}
		c.profile = &p
	}
	reply, err := svc.callTranslated(ctx, c, method, request, requestID)
	if err != nil && exact {
		return nil, c.exactly(err)
	}
	return reply, err
}

// exactly returns an error with the CLI's own code and text.
func (c *call) exactly(err error) error {
	if fault.ReasonOf(err) == fault.InvalidField && c.id == "" && isString(c.params.Get("sessionId")) {
		err = fault.New(fault.SessionNotFound, "there is no session with an empty id") // for the CLI, no id is missing
	}
	return session.Exactly(err, c.method, c.id)
}

func (svc *Service) callTranslated(
	ctx context.Context, c *call, method protoreflect.MethodDescriptor, request []byte, requestID string,
) ([]byte, error) {
	if err := c.read(svc.cfg.Codec, method, request); err != nil {
		return nil, err
	}
	if reason, ok := dropping[c.method]; ok && !c.exact {
		if err := complete(svc.cfg.Codec, method.Input(), request, reason); err != nil {
			return nil, err
		}
	}
	result, err := svc.callOnce(ctx, c, requestID)
	if err != nil {
		return nil, err
	}
	return c.reply(svc.cfg.Codec, method, result)
}

// read sets the parameters of a call from its request.
func (c *call) read(codec *wire.Codec, method protoreflect.MethodDescriptor, request []byte) error {
	in, err := codec.Table(method.Input())
	if err != nil {
		return fault.Wrap(err, fault.Internal, "compiling a message")
	}
	limits := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: []string{"sessionId"}}
	if c.exact { // the session is read from what comes out
		limits = translate.JSONOptions{}
	}
	limits.MaxDepth, limits.MaxExtraMembers = wire.MaxRequestDepth, wire.MaxExtraMembers
	text, err := in.AppendJSON(nil, request, limits)
	if err != nil {
		return fields.Rename(wire.BadField(err, requestField), requestField+".", "")
	}
	if c.params, err = jsonobj.Parse(text); err != nil {
		return fault.Wrap(err, fault.Internal, "parameters of %s", c.method)
	}
	c.id = c.params.String("sessionId")
	if c.id != "" || !c.exact { // the CLI says what is wrong with another value
		c.params.Set("sessionId", nil)
	}
	return nil
}

// dropping has the methods that take messages with an empty required member, such as a picture without a MIME type, and
// then drop or misread them, with the reason for which the bridge refuses them. All others check what they are given.
var dropping = map[string]fault.Reason{
	"session.send": fault.InvalidField,

	"session.tools.handlePendingToolCall":                    fault.AnswerInvalid,
	"session.permissions.handlePendingPermissionRequest":     fault.AnswerInvalid,
	"session.ui.handlePendingElicitation":                    fault.AnswerInvalid,
	"session.mcp.oauth.handlePendingRequest":                 fault.AnswerInvalid,
	"session.mcp.headers.handlePendingHeadersRefreshRequest": fault.AnswerInvalid,
}

// complete refuses a request with a message that lacks what the CLI needs.
func complete(codec *wire.Codec, in protoreflect.MessageDescriptor, request []byte, reason fault.Reason) error {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(in.FullName())
	if err != nil {
		return fault.Wrap(err, fault.Internal, "finding the type of a request")
	}
	m := kind.New()
	if err := proto.Unmarshal(request, m.Interface()); err != nil {
		return fault.Wrap(err, fault.Internal, "decoding a request")
	}
	if lacking := codec.LackingWithin(m); lacking != "" {
		return fault.New(reason, "%s is required", lacking).WithField(lacking)
	}
	return nil
}

// reply returns the wire form of the CLI's result.
func (c *call) reply(codec *wire.Codec, method protoreflect.MethodDescriptor, result json.RawMessage) ([]byte, error) {
	out, err := codec.Table(method.Output())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "compiling a message")
	}
	fidelity := translate.Tidy
	if c.exact {
		fidelity = translate.Exact
	}
	wire, err := out.AppendWire(nil, result, fidelity)
	if err != nil {
		return nil, fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", c.method).
			With("method", c.method)
	}
	return wire, nil
}

// requestField stands for the request itself while its fields get their paths.
const requestField = "request"

// callOnce makes the call, once for each request id. Reads change nothing, and are made again:
// nothing is remembered of them.
func (svc *Service) callOnce(ctx context.Context, c *call, requestID string) (json.RawMessage, error) {
	if requestID == "" || caller.From(ctx).Class == caller.Read {
		return svc.dispatch(ctx, c)
	}
	if beginsTurn[c.method] {
		return svc.promptOnce(ctx, c, requestID)
	}
	reply, err := idempotency.Run(ctx, svc.cfg.Operations, idempotency.Operation[*wrapperspb.BytesValue]{
		Scope: idempotency.On(c.method, c.id), ID: requestID, Request: wrapperspb.Bytes(c.params.JSON()),
		Do: idempotency.Blocking(func(ctx context.Context) (*wrapperspb.BytesValue, error) {
			result, err := svc.dispatch(ctx, c)
			return wrapperspb.Bytes(result), err
		}),
	})
	return reply.GetValue(), err
}

// dispatch makes the call in the way that its row in the table says.
func (svc *Service) dispatch(ctx context.Context, c *call) (json.RawMessage, error) {
	if err := tenancy.CheckMethod(c.method, c.id); err != nil {
		return nil, err
	}
	row := overrideOf(c.method)
	switch {
	case row != nil && row.run == nil:
		return svc.refuse(ctx, c, row)
	case row != nil:
		return row.run(svc, ctx, c)
	}
	return svc.passOn(ctx, c)
}

// aboutSession reports whether a call is about a session that has to be open.
func aboutSession(c *call) bool {
	return strings.HasPrefix(c.method, sessionMethods) && (c.id != "" || !sessionless[c.method])
}

// refusal says why a method is not to be had.
func refusal(method string, row *methodRule) error {
	text := method + " is refused: " + row.why
	if row.instead != "" {
		text += "; call " + row.instead
	}
	return fault.New(fault.MethodRefused, "%s", text).WithField("method").With("method", method)
}

// forward makes the call in the runtime that has the session, loading it if need be.
func (svc *Service) forward(ctx context.Context, c *call) (json.RawMessage, error) {
	s, err := svc.cfg.Sessions.Open(ctx, c.id)
	if c.passErrors(svc) && (c.id == "" || fault.ReasonOf(err) == fault.SessionNotFound) {
		return svc.forwardServer(ctx, c) // the CLI has its own words for that, method by method
	}
	if err != nil {
		return nil, err
	}
	result, at, err := s.Loader().Invoke(ctx, c.method, c.params)
	return recorded(ctx, result, at, err)
}

// recorded notes the position at which a reply stands.
func recorded(ctx context.Context, result json.RawMessage, at journal.Position, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	position.Record(ctx, at)
	return result, nil
}

// forwardServer makes a call that is about the CLI itself, or about a session that need not
// be open: in the runtime of the session if it is, or else in the first one.
func (svc *Service) forwardServer(ctx context.Context, c *call) (json.RawMessage, error) {
	params := c.params
	if c.id != "" {
		if !c.exact {
			if err := tenancy.CheckName(c.id, "session_id"); err != nil {
				return nil, err
			}
		}
		s, err := svc.cfg.Sessions.Open(ctx, c.id)
		if err == nil {
			result, at, err := s.Loader().Invoke(ctx, c.method, params)
			return recorded(ctx, result, at, err)
		}
		if tenancy.IsShared(c.id) { // the tenant's own CLI knows nothing of it
			return nil, err
		}
		params = params.Clone()
		params.SetString("sessionId", c.id)
	}
	rt, err := svc.runtime(ctx, c)
	if err != nil {
		return nil, err
	}
	result, err := rt.Call(ctx, c.method, params.JSON())
	return result, session.Classify(err, c.method)
}
