package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ParticipantBackend implements CallbackService.Attach. A is the type of its attachments.
type ParticipantBackend[A Attachment] interface {
	// Attach starts a participation. Its first frame, AttachOpening or AttachStarted, comes through Attachment.Stream.
	Attach(context.Context, *bridgev1.AttachStart) (A, error)
	// Leave ends a participation by its token.
	Leave(context.Context, *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error)
}

// CallbackBackend implements the other calls of CallbackService.
type CallbackBackend interface {
	ListPending(context.Context, *bridgev1.ListPendingRequest) (*bridgev1.ListPendingResponse, error)
	WatchPending(
		ctx context.Context, req *bridgev1.WatchPendingRequest, emit func(*bridgev1.WatchPendingResponse) error,
	) error
	ReadCallback(
		ctx context.Context, req *bridgev1.ReadCallbackRequest, emit func(*bridgev1.ReadCallbackResponse) error,
	) error
	SendModelResponse(
		context.Context, *bridgev1.SendModelResponseRequest,
	) (*bridgev1.SendModelResponseResponse, error)
	Resolve(context.Context, *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error)
}

// Attachment is one participation, from its start to its end.
//
// It ends in one of three ways. Stream returns nil because the participation has ended. Leave is called because the
// caller half-closed its stream or lost its right. Lost is called because the stream broke; the participant may
// return within its grace time. At most one of Leave and Lost is called, once. Lost is also called after Stream or
// Handle failed, since the caller did not choose to leave.
type Attachment interface {
	// Handle processes a frame from the participant other than its start. Frames come one at a time, in order, while
	// Stream runs. Errors that the caller caused are reported in an AttachFailed frame; a returned error ends the
	// stream.
	Handle(context.Context, *bridgev1.AttachRequest) error
	// Stream emits AttachResponse messages, and the frames of Subscribe, which are wrapped in AttachResponse.stream,
	// until the participation ends. It returns soon after its context ends and after Leave.
	Stream(ctx context.Context, emit frame.Sink) error
	// Leave ends the participation at once. Stream then returns nil.
	Leave()
	// Lost reports that the stream broke. After the end of the participation it does nothing.
	Lost()
}

type callbackService[A Attachment] struct {
	bridgev1.UnsafeCallbackServiceServer // all rpcs are methods here or of the backends
	CallbackBackend
	participants ParticipantBackend[A]
}

// NewCallback returns CallbackService.
func NewCallback[A Attachment](b CallbackBackend, p ParticipantBackend[A]) Service {
	return &callbackService[A]{CallbackBackend: b, participants: p}
}

func (s *callbackService[A]) Register(r grpc.ServiceRegistrar) {
	bridgev1.RegisterCallbackServiceServer(r, s)
}

func (s *callbackService[A]) Leave(ctx context.Context, req *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	return s.participants.Leave(ctx, req)
}

func (s *callbackService[A]) WatchPending(
	req *bridgev1.WatchPendingRequest, stream grpc.ServerStreamingServer[bridgev1.WatchPendingResponse],
) error {
	return s.CallbackBackend.WatchPending(stream.Context(), req, stream.Send)
}

func (s *callbackService[A]) ReadCallback(
	req *bridgev1.ReadCallbackRequest, stream grpc.ServerStreamingServer[bridgev1.ReadCallbackResponse],
) error {
	return s.CallbackBackend.ReadCallback(stream.Context(), req, stream.Send)
}
