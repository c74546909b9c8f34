package manage

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// UpdateProvider changes parts of the session's provider.
func (svc *Sessions) UpdateProvider(
	ctx context.Context, r *bridgev1.UpdateProviderRequest,
) (*bridgev1.UpdateProviderResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	over, err := svc.cfg.Parser.ProviderChange(r)
	if err != nil {
		return nil, err
	}
	err = s.Settings().SetProvider(ctx, func(provider jsonobj.Object) (jsonobj.Object, error) {
		if s.Settings().ProviderRef() != "" && caller.From(ctx).Tenant != caller.HostTenant {
			provider = nil // another address would be sent the host's keys
		}
		provider = over(provider)
		if provider.String("baseUrl") == "" {
			return nil, fault.New(fault.InvalidField, "the provider has no base_url").WithField("provider.base_url")
		}
		return provider, nil
	}, r.GetModelId())
	if err != nil {
		return nil, err
	}
	position.Record(ctx, s.Journal().Last())
	return &bridgev1.UpdateProviderResponse{}, nil
}

// ProvideCredentials gives a session the secrets that it lost in a restart.
func (svc *Sessions) ProvideCredentials(
	ctx context.Context, r *bridgev1.ProvideCredentialsRequest,
) (*bridgev1.ProvideCredentialsResponse, error) {
	s, err := svc.cfg.Store.Open(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	secrets, err := svc.cfg.Parser.Credentials(r.GetProvider())
	if err != nil {
		return nil, err
	}
	if len(secrets) == 0 && r.GetGithubToken() == "" {
		return nil, fault.New(fault.InvalidField, "neither a provider's secrets nor a GitHub token").
			WithField("provider")
	}
	if err := s.Settings().SetCredentials(ctx, secrets, r.GetGithubToken()); err != nil {
		return nil, err
	}
	position.Record(ctx, s.Journal().Last())
	return &bridgev1.ProvideCredentialsResponse{Session: s.Snapshot()}, nil
}
