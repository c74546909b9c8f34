package bridge

import (
	"bytes"
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// provider is the member of a session's configuration that names its model provider.
const provider = "provider"

// parseProviders reads the providers of the bridge's own configuration.
func parseProviders(texts map[string][]byte) (session.Providers, error) {
	out := session.Providers{}
	for name, text := range texts {
		o, err := jsonobj.Parse(bytes.TrimSpace(text))
		if err != nil {
			// Not the parser's error: it may quote secrets.
			return nil, fault.New(fault.InvalidField, "provider %q is no JSON object", name)
		}
		if o.String("baseUrl") == "" {
			return nil, fault.New(fault.InvalidField, "provider %q has no baseUrl", name)
		}
		out[name] = o.JSON()
	}
	return out, nil
}

// named gives an opening the provider that the request names. at is where the request is.
func (b *Bridge) named(ctx context.Context, o *session.Opening, ref string, own bool, at string) error {
	if ref == "" {
		return nil
	}
	at += "provider_ref"
	text, ok := b.tuned.Load().providers[ref]
	switch {
	case !ok || !b.tenants.MayName(caller.From(ctx).Tenant, ref): // its keys are the host's, and so is the bill
		return fault.New(fault.InvalidField, "the server has no provider %q", ref).WithField(at)
	case own:
		return fault.New(fault.InvalidField, "provider %q, and config.provider too", ref).WithField(at)
	}
	o.Config = o.Config.Clone()
	o.Config.Set(provider, text)
	o.ProviderRef = ref
	return nil
}

// providersOf are the providers of the bridge's own that a tenant may name now.
func (b *Bridge) providersOf(tenant string) session.Providers {
	out := session.Providers{}
	for name, text := range b.tuned.Load().providers {
		if b.tenants.MayName(tenant, name) {
			out[name] = text
		}
	}
	return out
}
