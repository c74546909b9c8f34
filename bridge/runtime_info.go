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
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// protocolVersion is the JSON-RPC protocol this bridge speaks.
const protocolVersion = 3

// GetServerInfo tells what this server is and can do.
func (b *Bridge) GetServerInfo(ctx context.Context, _ *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error) {
	tuned, placed := b.tuned.Load(), b.table.Config()
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
	for _, bind := range b.runtimesOf(caller.From(ctx)) {
		if bind.Err() == nil {
			info := bind.runtime().Info()
			out.CliVersion = info.CLIVersion
			out.Capabilities.OwnRuntimes = info.Peer.PID != 0
		}
	}
	return out, nil
}

// ListRuntimes lists the CLI processes.
func (b *Bridge) ListRuntimes(ctx context.Context, _ *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error) {
	bindings := b.runtimesOf(caller.From(ctx))
	out := &bridgev1.ListRuntimesResponse{}
	for _, bind := range bindings {
		out.Runtimes = append(out.Runtimes, bind.proto())
	}
	told := map[string]bool{} // of each profile, the newest
	for i, bind := range slices.Backward(bindings) {
		hash := bind.profile.Hash()
		if retry, ok := b.runtimes.Down(bind.profile); ok && !told[hash] && out.Runtimes[i].State == bridgev1.RuntimeState_RUNTIME_STATE_DOWN {
			out.Runtimes[i].RetryTime = timestamppb.New(retry)
		}
		told[hash] = true
	}
	return out, nil
}

// proto gives a runtime the form of the API.
func (bind *binding) proto() *bridgev1.Runtime {
	rt := bind.runtime()
	info := rt.Info()
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	out := &bridgev1.Runtime{
		RuntimeId: bind.id, State: bridgev1.RuntimeState_RUNTIME_STATE_READY, CliVersion: info.CLIVersion,
		Pid: int64(info.Peer.PID), StartTime: timestamppb.New(info.StartedAt), LoadedSessions: int32(len(bind.sessions)),
		ProfileId: placement.Key(bind.profile), Shard: int32(bind.profile.Shard),
	}
	if bind.lost != nil {
		out.State, out.Cause = bridgev1.RuntimeState_RUNTIME_STATE_DOWN, bind.lost.Error()
		return out
	}
	if bind.leaving || bind.fenced.Load() {
		out.State = bridgev1.RuntimeState_RUNTIME_STATE_STOPPING
	}
	out.RssBytes = rt.RSS()
	return out
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
	bind, err := b.runtimeOf(ctx, p)
	if err != nil { // its start is not the trip's time
		return nil, err
	}
	greeting := &cliv1.InternalServerServiceConnectResponse{}
	if err := b.codec.FromJSONAs(bind.runtime().Info().Greeting, greeting, translate.Exact); err != nil {
		return nil, err
	}
	begin := time.Now()
	var out struct {
		Message         string
		ProtocolVersion int32
	}
	if err := b.callRuntime(ctx, p, "ping", params, &out); err != nil {
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
	if err := b.callRuntime(ctx, p, "auth.getStatus", nil, &out); err != nil {
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
	if err := b.callRuntime(ctx, p, "models.list", params, &list); err != nil {
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

// runtimesOf returns the runtimes that a caller may know of: its tenant's, or all.
func (b *Bridge) runtimesOf(c caller.Caller) []*binding {
	return slices.DeleteFunc(b.fleet.All(), func(bind *binding) bool {
		return bind.profile.Tenant != c.Tenant && !c.May(caller.Operate)
	})
}
