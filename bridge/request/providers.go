package request

import (
	"bytes"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// provider is the member of a session's configuration that names its model provider.
const provider = "provider"

// ParseProviders reads the model providers of the server's configuration.
func ParseProviders(texts map[string][]byte) (session.Providers, error) {
	out := session.Providers{}
	for name, text := range texts {
		o, err := jsonobj.Parse(bytes.TrimSpace(text))
		if err != nil {
			// Not the parser's error: it may quote secrets.
			return nil, fault.New(fault.InvalidField, "provider %q is not a JSON object", name)
		}
		if o.String("baseUrl") == "" {
			return nil, fault.New(fault.InvalidField, "provider %q has no baseUrl", name)
		}
		out[name] = o.JSON()
	}
	return out, nil
}

// named gives an opening the provider that the request names. own reports whether the request has
// a provider too; at is the path of the request.
func (p *Parser) named(c caller.Caller, o *session.Opening, ref string, own bool, at string) error {
	if ref == "" {
		return nil
	}
	at += "provider_ref"
	text, ok := p.cfg.Providers(c.Tenant)[ref]
	switch {
	case !ok: // or not for the tenant: its keys are the host's, and so is the bill
		return fault.New(fault.InvalidField, "the server has no provider %q", ref).WithField(at)
	case own:
		return fault.New(fault.InvalidField, "the provider %q and config.provider exclude each other", ref).WithField(at)
	}
	o.Config = o.Config.Clone()
	o.Config.Set(provider, text)
	o.ProviderRef = ref
	return nil
}

// ProviderChange returns the change that a request makes to a provider.
func (p *Parser) ProviderChange(r *bridgev1.UpdateProviderRequest) (func(jsonobj.Object) jsonobj.Object, error) {
	given := r.GetProvider()
	if given == nil {
		given = &cliv1.ProviderConfig{}
	}
	listed, err := masked(given.ProtoReflect().Descriptor(), r.GetUpdateMask(), "provider", "update_mask")
	if err != nil {
		return nil, err
	}
	text, err := p.cfg.Codec.ToJSON(given, "provider")
	if err != nil {
		return nil, err
	}
	values, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "provider")
	}
	if slices.Equal(r.GetUpdateMask().GetPaths(), []string{allFields}) { // also the members of json_extra
		return func(jsonobj.Object) jsonobj.Object { return values }, nil
	}
	if len(listed) == 0 {
		if given.GetBaseUrl() == "" {
			values.Set("baseUrl", nil) // required, so always written; unset means unchanged
		}
		return func(provider jsonobj.Object) jsonobj.Object { return provider.Merge(values) }, nil
	}
	return func(provider jsonobj.Object) jsonobj.Object {
		for _, field := range listed {
			provider.Set(field.JSONName(), values.Get(field.JSONName()))
		}
		return provider
	}, nil
}

// Credentials returns the members of a provider that are secret.
func (p *Parser) Credentials(provider *cliv1.ProviderConfig) (secrets jsonobj.Object, err error) {
	text, err := p.cfg.Codec.ToJSON(provider, "provider")
	if err != nil {
		return nil, err
	}
	values, err := jsonobj.Parse(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "provider")
	}
	for _, name := range []string{"apiKey", "bearerToken", "headers"} {
		secrets.Set(name, values.Get(name))
	}
	return secrets, nil
}
