package server_test

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// TestEveryMethodReachesItsBackend calls each rpc of the contract. The backends answer
// with an error that names the method they were called by.
func TestEveryMethodReachesItsBackend(t *testing.T) {
	t.Parallel()
	var b backend
	r := servertest.Start(t, server.Config{},
		rpc.NewSession(b, b, b, b, b), rpc.NewEvent(b, b), rpc.NewCallback(b, b),
		rpc.NewRuntime(b, b, b), rpc.NewRaw(b))
	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				methods++
				m := service.Methods().Get(j)
				t.Run(string(m.FullName()), func(t *testing.T) {
					t.Parallel()
					st := invoke(t, r.Conn, m)
					if st.Code() != codes.FailedPrecondition || status.Reason(st) != "SESSION_BUSY" ||
						st.Message() != string(m.Name()) {
						t.Errorf("status %v, reason %q", st, status.Reason(st))
					}
				})
			}
		}
		return true
	})
	if methods == 0 {
		t.Error("no method was found")
	}
}

// invoke calls a method with the least request that gets past the server.
func invoke(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) *grpcstatus.Status {
	t.Helper()
	desc := &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}
	stream, err := conn.NewStream(t.Context(), desc, "/"+string(m.Parent().FullName())+"/"+string(m.Name()))
	if err != nil {
		t.Fatal(err)
	}
	req := dynamicpb.NewMessage(m.Input())
	if m.IsStreamingClient() {
		first := m.Input().Oneofs().Get(0).Fields().Get(0)
		req.Set(first, protoreflect.ValueOfMessage(dynamicpb.NewMessage(first.Message())))
	}
	if err := stream.SendMsg(req); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return grpcstatus.Convert(stream.RecvMsg(dynamicpb.NewMessage(m.Output())))
}

func (backend) CreateWebLink(context.Context, *bridgev1.CreateWebLinkRequest) (*bridgev1.CreateWebLinkResponse, error) {
	return called[bridgev1.CreateWebLinkResponse]("CreateWebLink")
}

// backend refuses every call under its own name.
type backend struct{}

func called[T any](name string) (*T, error) { return nil, refusal(name) }

func refusal(name string) error { return fault.New(fault.SessionBusy, "%s", name) }

func (backend) CreateSession(context.Context, *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error) {
	return called[bridgev1.CreateSessionResponse]("CreateSession")
}

func (backend) ResumeSession(context.Context, *bridgev1.ResumeSessionRequest) (*bridgev1.ResumeSessionResponse, error) {
	return called[bridgev1.ResumeSessionResponse]("ResumeSession")
}

func (backend) GetSession(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	return called[bridgev1.GetSessionResponse]("GetSession")
}

func (backend) ListSessions(context.Context, *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error) {
	return called[bridgev1.ListSessionsResponse]("ListSessions")
}

func (backend) PruneSessions(context.Context, *bridgev1.PruneSessionsRequest) (*bridgev1.PruneSessionsResponse, error) {
	return called[bridgev1.PruneSessionsResponse]("PruneSessions")
}

func (backend) DeleteSession(context.Context, *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error) {
	return called[bridgev1.DeleteSessionResponse]("DeleteSession")
}

func (backend) GetLastSession(
	context.Context, *bridgev1.GetLastSessionRequest,
) (*bridgev1.GetLastSessionResponse, error) {
	return called[bridgev1.GetLastSessionResponse]("GetLastSession")
}

func (backend) DisconnectSession(
	context.Context, *bridgev1.DisconnectSessionRequest,
) (*bridgev1.DisconnectSessionResponse, error) {
	return called[bridgev1.DisconnectSessionResponse]("DisconnectSession")
}

func (backend) GetForegroundSession(
	context.Context, *bridgev1.GetForegroundSessionRequest,
) (*bridgev1.GetForegroundSessionResponse, error) {
	return called[bridgev1.GetForegroundSessionResponse]("GetForegroundSession")
}

func (backend) SetForegroundSession(
	context.Context, *bridgev1.SetForegroundSessionRequest,
) (*bridgev1.SetForegroundSessionResponse, error) {
	return called[bridgev1.SetForegroundSessionResponse]("SetForegroundSession")
}

func (backend) Send(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	return called[bridgev1.SendResponse]("Send")
}

func (backend) SendAndWait(context.Context, *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error) {
	return called[bridgev1.SendAndWaitResponse]("SendAndWait")
}

func (backend) Abort(context.Context, *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error) {
	return called[bridgev1.AbortResponse]("Abort")
}

func (backend) ListEvents(context.Context, *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error) {
	return called[bridgev1.ListEventsResponse]("ListEvents")
}

func (backend) SetModel(context.Context, *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error) {
	return called[bridgev1.SetModelResponse]("SetModel")
}

func (backend) WriteLog(context.Context, *bridgev1.WriteLogRequest) (*bridgev1.WriteLogResponse, error) {
	return called[bridgev1.WriteLogResponse]("WriteLog")
}

func (backend) UpdateProvider(
	context.Context, *bridgev1.UpdateProviderRequest,
) (*bridgev1.UpdateProviderResponse, error) {
	return called[bridgev1.UpdateProviderResponse]("UpdateProvider")
}

func (backend) UpdateLabels(
	context.Context, *bridgev1.UpdateLabelsRequest,
) (*bridgev1.UpdateLabelsResponse, error) {
	return called[bridgev1.UpdateLabelsResponse]("UpdateLabels")
}

func (backend) GetUsage(context.Context, *bridgev1.GetUsageRequest) (*bridgev1.GetUsageResponse, error) {
	return called[bridgev1.GetUsageResponse]("GetUsage")
}

func (backend) WatchPending(
	context.Context, *bridgev1.WatchPendingRequest, func(*bridgev1.WatchPendingResponse) error,
) error {
	_, err := called[bridgev1.WatchPendingResponse]("WatchPending")
	return err
}

func (backend) ProvideCredentials(
	context.Context, *bridgev1.ProvideCredentialsRequest,
) (*bridgev1.ProvideCredentialsResponse, error) {
	return called[bridgev1.ProvideCredentialsResponse]("ProvideCredentials")
}

func (backend) ShareSession(context.Context, *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error) {
	return called[bridgev1.ShareSessionResponse]("ShareSession")
}

func (backend) UnshareSession(
	context.Context, *bridgev1.UnshareSessionRequest,
) (*bridgev1.UnshareSessionResponse, error) {
	return called[bridgev1.UnshareSessionResponse]("UnshareSession")
}

func (backend) ListShareOffers(
	context.Context, *bridgev1.ListShareOffersRequest,
) (*bridgev1.ListShareOffersResponse, error) {
	return called[bridgev1.ListShareOffersResponse]("ListShareOffers")
}

func (backend) AcceptShare(context.Context, *bridgev1.AcceptShareRequest) (*bridgev1.AcceptShareResponse, error) {
	return called[bridgev1.AcceptShareResponse]("AcceptShare")
}

func (backend) DeclineShare(context.Context, *bridgev1.DeclineShareRequest) (*bridgev1.DeclineShareResponse, error) {
	return called[bridgev1.DeclineShareResponse]("DeclineShare")
}

func (backend) GetServerInfo(context.Context, *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error) {
	return called[bridgev1.GetServerInfoResponse]("GetServerInfo")
}

func (backend) ListRuntimes(context.Context, *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error) {
	return called[bridgev1.ListRuntimesResponse]("ListRuntimes")
}

func (backend) Ping(context.Context, *bridgev1.PingRequest) (*bridgev1.PingResponse, error) {
	return called[bridgev1.PingResponse]("Ping")
}

func (backend) GetAuthStatus(context.Context, *bridgev1.GetAuthStatusRequest) (*bridgev1.GetAuthStatusResponse, error) {
	return called[bridgev1.GetAuthStatusResponse]("GetAuthStatus")
}

func (backend) ListModels(context.Context, *bridgev1.ListModelsRequest) (*bridgev1.ListModelsResponse, error) {
	return called[bridgev1.ListModelsResponse]("ListModels")
}

func (backend) Invoke(context.Context, *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error) {
	return called[bridgev1.InvokeResponse]("Invoke")
}

func (backend) DrainRuntime(context.Context, *bridgev1.DrainRuntimeRequest) (*bridgev1.DrainRuntimeResponse, error) {
	return called[bridgev1.DrainRuntimeResponse]("DrainRuntime")
}

func (backend) ListNodes(context.Context, *bridgev1.ListNodesRequest) (*bridgev1.ListNodesResponse, error) {
	return called[bridgev1.ListNodesResponse]("ListNodes")
}

func (backend) DrainNode(context.Context, *bridgev1.DrainNodeRequest) (*bridgev1.DrainNodeResponse, error) {
	return called[bridgev1.DrainNodeResponse]("DrainNode")
}

func (backend) MoveSession(context.Context, *bridgev1.MoveSessionRequest) (*bridgev1.MoveSessionResponse, error) {
	return called[bridgev1.MoveSessionResponse]("MoveSession")
}

func (backend) RecycleRuntime(
	context.Context, *bridgev1.RecycleRuntimeRequest,
) (*bridgev1.RecycleRuntimeResponse, error) {
	return called[bridgev1.RecycleRuntimeResponse]("RecycleRuntime")
}

func (backend) WatchServerLog(
	context.Context, *bridgev1.WatchServerLogRequest, func() error, func(*bridgev1.WatchServerLogResponse) error,
) error {
	return refusal("WatchServerLog")
}

func (backend) WatchHostEvents(
	context.Context, *bridgev1.WatchHostEventsRequest, func(*bridgev1.WatchHostEventsResponse) error,
) error {
	return refusal("WatchHostEvents")
}

func (backend) WatchTelemetry(
	context.Context, *bridgev1.WatchTelemetryRequest, func(*bridgev1.WatchTelemetryResponse) error,
) error {
	return refusal("WatchTelemetry")
}

func (backend) SendModelResponse(
	context.Context, *bridgev1.SendModelResponseRequest,
) (*bridgev1.SendModelResponseResponse, error) {
	return called[bridgev1.SendModelResponseResponse]("SendModelResponse")
}

func (backend) ListPending(context.Context, *bridgev1.ListPendingRequest) (*bridgev1.ListPendingResponse, error) {
	return called[bridgev1.ListPendingResponse]("ListPending")
}

func (backend) Resolve(context.Context, *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	return called[bridgev1.ResolveResponse]("Resolve")
}

func (backend) SendStream(
	context.Context, *bridgev1.SendRequest, func() (*bridgev1.AttachmentChunk, error),
) (*bridgev1.SendStreamResponse, error) {
	return called[bridgev1.SendStreamResponse]("SendStream")
}

func (backend) Run(context.Context, *bridgev1.RunRequest, frame.Sink) error { return refusal("Run") }

func (backend) ReadCallback(
	context.Context, *bridgev1.ReadCallbackRequest, func(*bridgev1.ReadCallbackResponse) error,
) error {
	return refusal("ReadCallback")
}

func (backend) ReadEvent(context.Context, *bridgev1.ReadEventRequest, func(*bridgev1.ReadEventResponse) error) error {
	return refusal("ReadEvent")
}

func (backend) ExportSession(
	context.Context, *bridgev1.ExportSessionRequest, func(*bridgev1.ExportSessionResponse) error,
) error {
	return refusal("ExportSession")
}

func (backend) ImportSession(
	context.Context, *bridgev1.ImportSessionHeader, func() ([]byte, error),
) (*bridgev1.ImportSessionResponse, error) {
	return called[bridgev1.ImportSessionResponse]("ImportSession")
}

func (backend) Subscribe(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error {
	return refusal("Subscribe")
}

func (backend) WatchSessions(
	context.Context, *bridgev1.WatchSessionsRequest, func() error, func(*bridgev1.WatchSessionsResponse) error,
) error {
	return refusal("WatchSessions")
}

func (backend) Attach(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error) {
	return nil, refusal("Attach")
}

func (backend) Leave(context.Context, *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	return called[bridgev1.LeaveResponse]("Leave")
}

func (backend) RunShell(context.Context, *bridgev1.RunShellRequest, func(*bridgev1.RunShellResponse) error) error {
	return refusal("RunShell")
}
