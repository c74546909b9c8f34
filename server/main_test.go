package server_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sessions is a backend of which a test gives the parts it needs.
type sessions struct {
	rpc.SessionBackend
	rpc.TurnBackend
	get        func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error)
	sendStream func(context.Context, *bridgev1.SendRequest,
		func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error)
	run func(context.Context, *bridgev1.RunRequest, frame.Sink) error
}

func (s *sessions) GetSession(
	ctx context.Context, req *bridgev1.GetSessionRequest,
) (*bridgev1.GetSessionResponse, error) {
	return s.get(ctx, req)
}

func (s *sessions) SendStream(
	ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error),
) (*bridgev1.SendStreamResponse, error) {
	return s.sendStream(ctx, first, next)
}

func (s *sessions) Run(ctx context.Context, req *bridgev1.RunRequest, emit frame.Sink) error {
	return s.run(ctx, req, emit)
}

// Register serves the backend.
func (s *sessions) Register(r grpc.ServiceRegistrar) {
	rpc.NewSession(s, s, nil, nil, nil).Register(r)
}

// events serves a function as EventService.Subscribe.
type events struct {
	rpc.EventBackend
	subscribe func(context.Context, frame.Sink) error
}

func (e *events) Subscribe(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
	return e.subscribe(ctx, emit)
}

// Register serves the backend.
func (e *events) Register(r grpc.ServiceRegistrar) {
	rpc.NewEvent(e, nil).Register(r)
}

// info serves RuntimeService.GetServerInfo.
type info struct{ rpc.RuntimeBackend }

func (info) GetServerInfo(context.Context, *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error) {
	return &bridgev1.GetServerInfoResponse{Version: "v"}, nil
}

// Register serves the backend.
func (i info) Register(r grpc.ServiceRegistrar) {
	rpc.NewRuntime(i, nil, nil).Register(r)
}
