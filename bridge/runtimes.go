package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// protocolVersion is the JSON-RPC protocol this bridge speaks.
const protocolVersion = 3

// GetServerInfo tells what this server is and can do.
func (b *Bridge) GetServerInfo(ctx context.Context, _ *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error) {
	tuned, placed := b.tuned.Load(), b.fleet.Placement()
	out := &bridgev1.GetServerInfoResponse{
		Version: b.cfg.Version, ProtocolVersion: protocolVersion,
		CliVersionMin: clibin.OldestVersion, CliVersionMax: clibin.PinnedVersion,
		Capabilities: &bridgev1.Capabilities{RawService: b.cfg.Raw, OwnRuntimes: true, OfflineModel: b.cfg.OfflineModel},
		Limits: &bridgev1.Limits{
			MaxPromptBytes: int64(b.admission.MaxPrompt(caller.From(ctx).Tenant)), MaxAttachmentBytes: int64(tuned.MaxAttachmentBytes),
			MaxRequestBytes: int64(b.cfg.MaxRequestBytes), CallbackTimeout: durationpb.New(tuned.CallbackTimeout),
			MaxEphemeralBytes: int64(b.cfg.MaxEphemeralBytes), MaxRuntimes: int32(placed.MaxRuntimes),
			MaxSessionsPerRuntime: int32(min(placed.MaxSessions, math.MaxInt32)),
		},
	}
	if tenant, ok := b.tenants.Get(caller.From(ctx).Tenant); ok && !b.tenants.Dialed {
		out.Capabilities.RuntimeProfileFields = slices.Sorted(slices.Values(tenant.Fields()))
		out.Capabilities.HomeNames = slices.Sorted(maps.Keys(tenant.Homes))
	}
	for _, rt := range b.fleet.Visible(caller.From(ctx)) {
		if rt.Err() == nil {
			info := rt.Process().Info()
			out.CliVersion = info.CLIVersion
			out.Capabilities.OwnRuntimes = info.Peer.PID != 0
		}
	}
	return out, nil
}

// ListRuntimes lists the CLI processes.
func (b *Bridge) ListRuntimes(ctx context.Context, _ *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error) {
	runtimes := b.fleet.Visible(caller.From(ctx))
	out := &bridgev1.ListRuntimesResponse{}
	for _, rt := range runtimes {
		out.Runtimes = append(out.Runtimes, rt.Proto())
	}
	seen := map[string]bool{} // of each profile, the newest has the time of the next start
	for i, rt := range slices.Backward(runtimes) {
		hash := rt.Profile().Hash()
		if retry, ok := b.fleet.Down(rt); ok && !seen[hash] && out.Runtimes[i].State == bridgev1.RuntimeState_RUNTIME_STATE_DOWN {
			out.Runtimes[i].RetryTime = timestamppb.New(retry)
		}
		seen[hash] = true
	}
	return out, nil
}

// Ping asks a runtime for a sign of life.
func (b *Bridge) Ping(ctx context.Context, r *bridgev1.PingRequest) (*bridgev1.PingResponse, error) {
	var params jsonobj.Object
	if r.GetMessage() != "" {
		params.SetString("message", r.GetMessage())
	}
	p, err := b.tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	rt, err := b.fleet.First(ctx, p)
	if err != nil { // its start is not the trip's time
		return nil, err
	}
	greeting := &cliv1.InternalServerServiceConnectResponse{}
	if err := b.codec.FromJSONAs(rt.Process().Info().Greeting, greeting, translate.Exact); err != nil {
		return nil, err
	}
	begin := time.Now()
	var out struct {
		Message         string
		ProtocolVersion int32
	}
	if err := b.fleet.Call(ctx, p, "ping", params, &out); err != nil {
		return nil, err
	}
	return &bridgev1.PingResponse{
		Message: out.Message, ProtocolVersion: out.ProtocolVersion, RoundTrip: durationpb.New(time.Since(begin)),
		Greeting: greeting,
	}, nil
}

// GetAuthStatus tells whether the CLI is signed in.
func (b *Bridge) GetAuthStatus(ctx context.Context, r *bridgev1.GetAuthStatusRequest) (*bridgev1.GetAuthStatusResponse, error) {
	p, err := b.tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var out struct {
		IsAuthenticated                      bool
		AuthType, Host, Login, StatusMessage string
	}
	if err := b.fleet.Call(ctx, p, "auth.getStatus", nil, &out); err != nil {
		return nil, err
	}
	return &bridgev1.GetAuthStatusResponse{
		Authenticated: out.IsAuthenticated, AuthType: out.AuthType, Host: out.Host, Login: out.Login, StatusMessage: out.StatusMessage,
	}, nil
}

// ListModels lists the models of an account.
func (b *Bridge) ListModels(ctx context.Context, r *bridgev1.ListModelsRequest) (*bridgev1.ListModelsResponse, error) {
	var params jsonobj.Object
	if r.GetGithubToken() != "" {
		params.SetString("gitHubToken", r.GetGithubToken())
	}
	p, err := b.tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var list struct{ Models []json.RawMessage }
	if err := b.fleet.Call(ctx, p, "models.list", params, &list); err != nil {
		return nil, err
	}
	out := &bridgev1.ListModelsResponse{}
	for _, text := range list.Models {
		m := &cliv1.Model{}
		if err := b.codec.FromJSON(text, m); err != nil {
			return nil, err
		}
		out.Models = append(out.Models, m)
	}
	return out, nil
}
