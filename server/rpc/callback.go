package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CallbackBackend does the work of CallbackService. A is the type of its attachments.
type CallbackBackend[A Attachment] interface {
	// Attach begins a participation. Its first frame, AttachStarted, comes through
	// Attachment.Stream like all others.
	Attach(context.Context, *bridgev1.AttachStart) (A, error)
	ListPending(context.Context, *bridgev1.ListPendingRequest) (*bridgev1.ListPendingResponse, error)
	ReadCallback(
		ctx context.Context, req *bridgev1.ReadCallbackRequest, emit func(*bridgev1.ReadCallbackResponse) error,
	) error
	RespondToModelRequest(
		context.Context, *bridgev1.RespondToModelRequestRequest,
	) (*bridgev1.RespondToModelRequestResponse, error)
	Resolve(context.Context, *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error)
}

// Attachment is one participation, from its start to its end.
//
// It ends in one of three ways: Stream returns nil because the participation is over;
// Leave is called because the caller half-closed its stream or has lost the right to it;
// or Lost is called because the stream broke, so that the participant may come back within its grace time. Of
// Leave and Lost at most one is called, once. Lost is also called when Stream or Handle
// failed, since the caller had no word in that.
type Attachment interface {
	// Handle takes a frame from the participant, any but its start. Frames come one at
	// a time, in their order, while Stream runs. What fails for the caller's own reasons
	// it answers with an AttachFailed frame; an error ends the stream with that error.
	Handle(context.Context, *bridgev1.AttachRequest) error
	// Stream emits AttachResponse messages, and the frames of Subscribe, which are put
	// into AttachResponse.stream, until the participation is over. It returns soon after
	// its context ends and after Leave.
	Stream(ctx context.Context, emit frame.Sink) error
	// Leave ends the participation at once. Stream then returns nil.
	Leave()
	// Lost says that the stream broke. Once the participation is over it does nothing.
	Lost()
}

// callbackService implements bridgev1.CallbackServiceServer.
type callbackService[A Attachment] struct {
	bridgev1.UnsafeCallbackServiceServer // every rpc has a method here or in the backend
	CallbackBackend[A]
}

// NewCallback returns CallbackService.
func NewCallback[A Attachment](b CallbackBackend[A]) Service {
	return &callbackService[A]{CallbackBackend: b}
}

// Register implements Service.
func (s *callbackService[A]) Register(r grpc.ServiceRegistrar) {
	bridgev1.RegisterCallbackServiceServer(r, s)
}

// ReadCallback implements bridgev1.CallbackServiceServer.
func (s *callbackService[A]) ReadCallback(
	req *bridgev1.ReadCallbackRequest, stream grpc.ServerStreamingServer[bridgev1.ReadCallbackResponse],
) error {
	return s.CallbackBackend.ReadCallback(stream.Context(), req, stream.Send)
}
