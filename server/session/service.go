// Package session serves copilot.bridge.v1.SessionService: it moves requests, replies and frames
// between gRPC and a Backend, and decides nothing. What a request must be, the backend
// checks; what its errors become, package server does.
package session

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
)

// Backend does the work. Its methods are the rpcs of the service; they return the domain
// errors of package fault.
type Backend interface {
	CreateSession(context.Context, *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error)
	ResumeSession(context.Context, *bridgev1.ResumeSessionRequest) (*bridgev1.ResumeSessionResponse, error)
	GetSession(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error)
	ListSessions(context.Context, *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error)
	DeleteSession(context.Context, *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error)
	GetLastSession(context.Context, *bridgev1.GetLastSessionRequest) (*bridgev1.GetLastSessionResponse, error)
	DisconnectSession(context.Context, *bridgev1.DisconnectSessionRequest) (*bridgev1.DisconnectSessionResponse, error)
	GetForegroundSession(context.Context, *bridgev1.GetForegroundSessionRequest) (*bridgev1.GetForegroundSessionResponse, error)
	SetForegroundSession(context.Context, *bridgev1.SetForegroundSessionRequest) (*bridgev1.SetForegroundSessionResponse, error)

	Send(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error)
	SendAndWait(context.Context, *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error)
	Abort(context.Context, *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error)
	// SendStream takes the request and then its attachments' bytes: next returns them
	// in order and io.EOF after the last.
	SendStream(ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error)
	// Run emits RunResponse messages, and the frames of Subscribe, which are put into
	// RunResponse.stream.
	Run(ctx context.Context, req *bridgev1.RunRequest, emit frame.Sink) error

	ListEvents(context.Context, *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error)
	ReadEvent(ctx context.Context, req *bridgev1.ReadEventRequest, emit func(*bridgev1.ReadEventResponse) error) error

	SetModel(context.Context, *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error)
	Log(context.Context, *bridgev1.LogRequest) (*bridgev1.LogResponse, error)
	UpdateProvider(context.Context, *bridgev1.UpdateProviderRequest) (*bridgev1.UpdateProviderResponse, error)
	ProvideCredentials(context.Context, *bridgev1.ProvideCredentialsRequest) (*bridgev1.ProvideCredentialsResponse, error)

	ShareSession(context.Context, *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error)
	UnshareSession(context.Context, *bridgev1.UnshareSessionRequest) (*bridgev1.UnshareSessionResponse, error)
	ListShareOffers(context.Context, *bridgev1.ListShareOffersRequest) (*bridgev1.ListShareOffersResponse, error)
	AcceptShare(context.Context, *bridgev1.AcceptShareRequest) (*bridgev1.AcceptShareResponse, error)
	DeclineShare(context.Context, *bridgev1.DeclineShareRequest) (*bridgev1.DeclineShareResponse, error)
}

// Config is what a Service needs.
type Config struct {
	// Backend does the work; required.
	Backend Backend
}

// Service implements bridgev1.SessionServiceServer.
type Service struct {
	bridgev1.UnimplementedSessionServiceServer

	backend Backend
}

// New returns a service. It panics without a backend: that is a mistake of the program.
func New(c Config) *Service {
	if c.Backend == nil {
		panic("session: no backend")
	}
	return &Service{backend: c.Backend}
}

// Register makes r serve the service.
func (s *Service) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterSessionServiceServer(r, s) }
