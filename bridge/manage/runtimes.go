package manage

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// protocolVersion is the JSON-RPC protocol this bridge speaks.
const protocolVersion = 3

// RuntimesConfig has the parts that Runtimes uses, and what it says of the server.
type RuntimesConfig struct {
	Fleet    *fleet.Fleet
	Tenants  *tenancy.Tenants
	Codec    *wire.Codec
	Shutdown *shutdown.Coordinator
	// Audit receives the drains and replacements of runtimes.
	Audit audit.Sink
	// Limits returns the limits for a tenant's calls; the service adds the limits of the runtimes.
	Limits func(tenant string) *bridgev1.Limits
	// Warnings has the server's log of warnings; nil if it is not recorded.
	Warnings *Warnings
	// Version is the version of the server.
	Version string
	// Durable says that journals survive a restart.
	Durable bool
	// Raw says that RawService is on, OfflineModel that a scripted model takes the place of real ones.
	Raw, OfflineModel bool
	// SingleClient says that the server serves one program, to which the payload of every host event is sent.
	SingleClient bool
}

// Runtimes serves RuntimeService: the server, its CLI processes, and their telemetry and host events. It is safe for concurrent use.
type Runtimes struct{ cfg RuntimesConfig }

// NewRuntimes returns a Runtimes.
func NewRuntimes(c RuntimesConfig) *Runtimes { return &Runtimes{cfg: c} }

// GetServerInfo describes the server and its limits.
func (svc *Runtimes) GetServerInfo(
	ctx context.Context, _ *bridgev1.GetServerInfoRequest,
) (*bridgev1.GetServerInfoResponse, error) {
	c := caller.From(ctx)
	out := &bridgev1.GetServerInfoResponse{
		Version: svc.cfg.Version, ProtocolVersion: protocolVersion,
		CliVersionMin: clibin.OldestVersion, CliVersionMax: clibin.PinnedVersion,
		Capabilities: &bridgev1.Capabilities{
			RawService: svc.cfg.Raw, OwnRuntimes: true, DurableJournal: svc.cfg.Durable, OfflineModel: svc.cfg.OfflineModel,
		},
		Limits: svc.cfg.Limits(c.Tenant),
	}
	placed := svc.cfg.Fleet.Placement()
	out.Limits.MaxRuntimes = int32(placed.MaxRuntimes)
	out.Limits.MaxSessionsPerRuntime = int32(min(placed.MaxSessions, math.MaxInt32))
	if tenant, ok := svc.cfg.Tenants.Get(c.Tenant); ok && !svc.cfg.Tenants.Dialed {
		out.Capabilities.RuntimeProfileFields = slices.Sorted(slices.Values(tenant.Fields()))
		out.Capabilities.HomeNames = slices.Sorted(maps.Keys(tenant.Homes))
	}
	for _, rt := range svc.cfg.Fleet.Visible(c) {
		if rt.Err() == nil {
			info := rt.Process().Info()
			out.CliVersion, out.CliWarnings = info.CLIVersion, nil
			for _, w := range info.Warnings {
				out.CliWarnings = append(out.CliWarnings, w.Text+"; "+w.Remedy)
			}
			out.Capabilities.OwnRuntimes = info.Peer.PID != 0
		}
	}
	return out, nil
}

// ListRuntimes lists the CLI processes.
func (svc *Runtimes) ListRuntimes(
	ctx context.Context, _ *bridgev1.ListRuntimesRequest,
) (*bridgev1.ListRuntimesResponse, error) {
	runtimes := svc.cfg.Fleet.Visible(caller.From(ctx))
	out := &bridgev1.ListRuntimesResponse{}
	for _, rt := range runtimes {
		out.Runtimes = append(out.Runtimes, described(ctx, rt))
	}
	seen := map[string]bool{} // of each profile, the newest has the time of the next start
	for i, rt := range slices.Backward(runtimes) {
		hash := rt.Profile().Hash()
		down := !seen[hash] && out.Runtimes[i].State == bridgev1.RuntimeState_RUNTIME_STATE_DOWN
		if retry, ok := svc.cfg.Fleet.Down(rt); ok && down {
			out.Runtimes[i].RetryTime = timestamppb.New(retry)
		}
		seen[hash] = true
	}
	return out, nil
}

// described describes a runtime to the caller.
func described(ctx context.Context, rt *fleet.Runtime) *bridgev1.RuntimeInfo {
	out := rt.Proto()
	if tenant := rt.Profile().Tenant; tenant != caller.From(ctx).Tenant {
		out.Tenant = tenancy.PublicTenant(tenant)
	}
	return out
}

// Ping measures the round trip to a runtime.
func (svc *Runtimes) Ping(ctx context.Context, r *bridgev1.PingRequest) (*bridgev1.PingResponse, error) {
	var params jsonobj.Object
	if r.GetMessage() != "" {
		params.SetString("message", r.GetMessage())
	}
	p, err := svc.cfg.Tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	rt, err := svc.cfg.Fleet.First(ctx, p)
	if err != nil { // the round trip does not include its start
		return nil, err
	}
	greeting := &cliv1.InternalServerServiceConnectServerResponse{}
	if err := svc.cfg.Codec.FromJSONAs(rt.Process().Info().Greeting, greeting, translate.Exact); err != nil {
		return nil, err
	}
	begin := time.Now()
	var out struct {
		Message         string
		ProtocolVersion int32
	}
	if err := svc.cfg.Fleet.Call(ctx, p, "ping", params, &out); err != nil {
		return nil, err
	}
	return &bridgev1.PingResponse{
		Message: out.Message, ProtocolVersion: out.ProtocolVersion, RoundTrip: durationpb.New(time.Since(begin)),
		Greeting: greeting,
	}, nil
}

// GetAuthStatus reports whether the CLI is signed in.
func (svc *Runtimes) GetAuthStatus(
	ctx context.Context, r *bridgev1.GetAuthStatusRequest,
) (*bridgev1.GetAuthStatusResponse, error) {
	p, err := svc.cfg.Tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var out struct {
		IsAuthenticated                      bool
		AuthType, Host, Login, StatusMessage string
	}
	if err := svc.cfg.Fleet.Call(ctx, p, "auth.getStatus", nil, &out); err != nil {
		return nil, err
	}
	return &bridgev1.GetAuthStatusResponse{
		Authenticated: out.IsAuthenticated, AuthType: out.AuthType, Host: out.Host, Login: out.Login,
		StatusMessage: out.StatusMessage,
	}, nil
}

// ListModels lists the models of an account.
func (svc *Runtimes) ListModels(
	ctx context.Context, r *bridgev1.ListModelsRequest,
) (*bridgev1.ListModelsResponse, error) {
	var params jsonobj.Object
	if r.GetGithubToken() != "" {
		params.SetString("gitHubToken", r.GetGithubToken())
	}
	p, err := svc.cfg.Tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var list struct{ Models []json.RawMessage }
	if err := svc.cfg.Fleet.Call(ctx, p, "models.list", params, &list); err != nil {
		return nil, err
	}
	out := &bridgev1.ListModelsResponse{}
	for _, text := range list.Models {
		m := &cliv1.Model{}
		if err := svc.cfg.Codec.FromJSON(text, m); err != nil {
			return nil, err
		}
		out.Models = append(out.Models, m)
	}
	return out, nil
}
