package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// RuntimeBackend carries out the calls of RuntimeService.
type RuntimeBackend interface {
	GetServerInfo(context.Context, *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error)
	ListRuntimes(context.Context, *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error)
	Ping(context.Context, *bridgev1.PingRequest) (*bridgev1.PingResponse, error)
	GetAuthStatus(context.Context, *bridgev1.GetAuthStatusRequest) (*bridgev1.GetAuthStatusResponse, error)
	ListModels(context.Context, *bridgev1.ListModelsRequest) (*bridgev1.ListModelsResponse, error)
	DrainRuntime(context.Context, *bridgev1.DrainRuntimeRequest) (*bridgev1.DrainRuntimeResponse, error)
	RecycleRuntime(context.Context, *bridgev1.RecycleRuntimeRequest) (*bridgev1.RecycleRuntimeResponse, error)
	// WatchServerLog calls open when it has registered the watch, and then emit.
	WatchServerLog(
		ctx context.Context, req *bridgev1.WatchServerLogRequest, open func() error,
		emit func(*bridgev1.WatchServerLogResponse) error,
	) error
	WatchHostEvents(
		context.Context, *bridgev1.WatchHostEventsRequest, func(*bridgev1.WatchHostEventsResponse) error,
	) error
	WatchTelemetry(
		context.Context, *bridgev1.WatchTelemetryRequest, func(*bridgev1.WatchTelemetryResponse) error,
	) error
}

// WebLinkBackend creates links by which browsers log in.
type WebLinkBackend interface {
	CreateWebLink(context.Context, *bridgev1.CreateWebLinkRequest) (*bridgev1.CreateWebLinkResponse, error)
}

// NodeBackend knows the replicas of the server's cluster.
type NodeBackend interface {
	ListNodes(context.Context, *bridgev1.ListNodesRequest) (*bridgev1.ListNodesResponse, error)
	DrainNode(context.Context, *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error)
	MoveSession(context.Context, *bridgev1.MoveSessionRequest) (*bridgev1.MoveSessionResponse, error)
}

type runtimeService struct {
	bridgev1.UnsafeRuntimeServiceServer // all rpcs are methods here or of the backends
	RuntimeBackend
	NodeBackend
	links WebLinkBackend
}

// NewRuntime returns RuntimeService for its backends. Without links, CreateWebLink is disabled; without nodes, so are
// the calls of a cluster.
func NewRuntime(b RuntimeBackend, links WebLinkBackend, nodes NodeBackend) Service {
	if nodes == nil {
		nodes = alone{}
	}
	return &runtimeService{RuntimeBackend: b, NodeBackend: nodes, links: links}
}

// alone is the NodeBackend of a server that is no replica.
type alone struct{}

var errAlone error = fault.New(fault.FeatureDisabled, "the server is not a replica of a cluster (cluster)")

func (alone) ListNodes(context.Context, *bridgev1.ListNodesRequest) (*bridgev1.ListNodesResponse, error) {
	return nil, errAlone
}

func (alone) DrainNode(context.Context, *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error) {
	return nil, errAlone
}

func (alone) MoveSession(context.Context, *bridgev1.MoveSessionRequest) (*bridgev1.MoveSessionResponse, error) {
	return nil, errAlone
}

func (s *runtimeService) CreateWebLink(ctx context.Context, req *bridgev1.CreateWebLinkRequest) (
	*bridgev1.CreateWebLinkResponse, error,
) {
	if s.links == nil {
		return nil, fault.New(fault.FeatureDisabled, "the server has no listener for browsers (web)")
	}
	return s.links.CreateWebLink(ctx, req)
}

func (s *runtimeService) Register(r grpc.ServiceRegistrar) {
	bridgev1.RegisterRuntimeServiceServer(r, s)
}

func (s *runtimeService) WatchServerLog(
	req *bridgev1.WatchServerLogRequest, stream grpc.ServerStreamingServer[bridgev1.WatchServerLogResponse],
) error {
	open := func() error { return stream.SendHeader(nil) }
	return s.RuntimeBackend.WatchServerLog(stream.Context(), req, open, stream.Send)
}

func (s *runtimeService) WatchHostEvents(
	req *bridgev1.WatchHostEventsRequest, stream grpc.ServerStreamingServer[bridgev1.WatchHostEventsResponse],
) error {
	return s.RuntimeBackend.WatchHostEvents(stream.Context(), req, stream.Send)
}

func (s *runtimeService) WatchTelemetry(
	req *bridgev1.WatchTelemetryRequest, stream grpc.ServerStreamingServer[bridgev1.WatchTelemetryResponse],
) error {
	return s.RuntimeBackend.WatchTelemetry(stream.Context(), req, stream.Send)
}
