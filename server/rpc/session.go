package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// SessionBackend opens, lists and ends sessions, and changes their settings.
type SessionBackend interface {
	CreateSession(context.Context, *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error)
	ResumeSession(context.Context, *bridgev1.ResumeSessionRequest) (*bridgev1.ResumeSessionResponse, error)
	GetSession(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error)
	ListSessions(context.Context, *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error)
	DeleteSession(context.Context, *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error)
	PruneSessions(context.Context, *bridgev1.PruneSessionsRequest) (*bridgev1.PruneSessionsResponse, error)
	GetLastSession(context.Context, *bridgev1.GetLastSessionRequest) (*bridgev1.GetLastSessionResponse, error)
	DisconnectSession(
		context.Context, *bridgev1.DisconnectSessionRequest,
	) (*bridgev1.DisconnectSessionResponse, error)
	GetForegroundSession(
		context.Context, *bridgev1.GetForegroundSessionRequest,
	) (*bridgev1.GetForegroundSessionResponse, error)
	SetForegroundSession(
		context.Context, *bridgev1.SetForegroundSessionRequest,
	) (*bridgev1.SetForegroundSessionResponse, error)

	Abort(context.Context, *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error)
	SetModel(context.Context, *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error)
	WriteLog(context.Context, *bridgev1.WriteLogRequest) (*bridgev1.WriteLogResponse, error)
	GetUsage(context.Context, *bridgev1.GetUsageRequest) (*bridgev1.GetUsageResponse, error)
	UpdateLabels(context.Context, *bridgev1.UpdateLabelsRequest) (*bridgev1.UpdateLabelsResponse, error)
	UpdateProvider(context.Context, *bridgev1.UpdateProviderRequest) (*bridgev1.UpdateProviderResponse, error)
	ProvideCredentials(
		context.Context, *bridgev1.ProvideCredentialsRequest,
	) (*bridgev1.ProvideCredentialsResponse, error)
}

// TurnBackend sends prompts.
type TurnBackend interface {
	Send(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error)
	SendAndWait(context.Context, *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error)
	// SendStream receives the request and then its attachments' bytes: next returns them in order, and io.EOF after
	// the last.
	SendStream(
		ctx context.Context, first *bridgev1.SendRequest, next func() (*bridgev1.AttachmentChunk, error),
	) (*bridgev1.SendStreamResponse, error)
	// Run emits RunResponse messages, and the frames of Subscribe, which are wrapped in RunResponse.stream.
	Run(ctx context.Context, req *bridgev1.RunRequest, emit frame.Sink) error
}

// HistoryBackend reads the journals of sessions.
type HistoryBackend interface {
	ListEvents(context.Context, *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error)
	ReadEvent(ctx context.Context, req *bridgev1.ReadEventRequest, emit func(*bridgev1.ReadEventResponse) error) error
}

// ShareBackend shares sessions with other tenants.
type ShareBackend interface {
	ShareSession(context.Context, *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error)
	UnshareSession(context.Context, *bridgev1.UnshareSessionRequest) (*bridgev1.UnshareSessionResponse, error)
	ListShareOffers(context.Context, *bridgev1.ListShareOffersRequest) (*bridgev1.ListShareOffersResponse, error)
	AcceptShare(context.Context, *bridgev1.AcceptShareRequest) (*bridgev1.AcceptShareResponse, error)
	DeclineShare(context.Context, *bridgev1.DeclineShareRequest) (*bridgev1.DeclineShareResponse, error)
}

// TransferBackend carries sessions between servers.
type TransferBackend interface {
	// ExportSession emits a header and then chunks.
	ExportSession(
		ctx context.Context, req *bridgev1.ExportSessionRequest, emit func(*bridgev1.ExportSessionResponse) error,
	) error
	// ImportSession receives the header and then the chunks: next returns them in order, and io.EOF after the last.
	ImportSession(
		ctx context.Context, header *bridgev1.ImportSessionHeader, next func() ([]byte, error),
	) (*bridgev1.ImportSessionResponse, error)
}

type sessionService struct {
	bridgev1.UnsafeSessionServiceServer // all rpcs are methods here or of the backends
	SessionBackend
	TurnBackend
	HistoryBackend
	ShareBackend
	TransferBackend
}

// NewSession returns SessionService.
func NewSession(
	b SessionBackend, turns TurnBackend, history HistoryBackend, shares ShareBackend, transfers TransferBackend,
) Service {
	return &sessionService{
		SessionBackend: b, TurnBackend: turns, HistoryBackend: history, ShareBackend: shares,
		TransferBackend: transfers,
	}
}

func (s *sessionService) Register(r grpc.ServiceRegistrar) {
	bridgev1.RegisterSessionServiceServer(r, s)
}

func (s *sessionService) ReadEvent(
	req *bridgev1.ReadEventRequest, stream grpc.ServerStreamingServer[bridgev1.ReadEventResponse],
) error {
	return s.HistoryBackend.ReadEvent(stream.Context(), req, stream.Send)
}

func (s *sessionService) Run(
	req *bridgev1.RunRequest, stream grpc.ServerStreamingServer[bridgev1.RunResponse],
) error {
	return s.TurnBackend.Run(stream.Context(), req, codec.RunSink(stream))
}

func (s *sessionService) SendStream(
	stream grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse],
) error {
	first, err := stream.Recv()
	if err != nil {
		return streamEnded(err, "request")
	}
	req := first.GetRequest()
	if req == nil {
		return fault.New(fault.InvalidField, "the first message must hold the request").WithField("request")
	}
	resp, err := s.TurnBackend.SendStream(stream.Context(), req, func() (*bridgev1.AttachmentChunk, error) {
		return nextChunk(stream)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

func (s *sessionService) ExportSession(
	req *bridgev1.ExportSessionRequest, stream grpc.ServerStreamingServer[bridgev1.ExportSessionResponse],
) error {
	return s.TransferBackend.ExportSession(stream.Context(), req, stream.Send)
}

func (s *sessionService) ImportSession(
	stream grpc.ClientStreamingServer[bridgev1.ImportSessionRequest, bridgev1.ImportSessionResponse],
) error {
	first, err := stream.Recv()
	if err != nil {
		return streamEnded(err, "header")
	}
	header := first.GetHeader()
	if header == nil {
		return fault.New(fault.InvalidField, "the first message must hold the header").WithField("header")
	}
	resp, err := s.TransferBackend.ImportSession(stream.Context(), header, func() ([]byte, error) {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if _, ok := m.GetPiece().(*bridgev1.ImportSessionRequest_Chunk); !ok {
			return nil, fault.New(fault.InvalidField, "every message after the header must hold a chunk").
				WithField("chunk")
		}
		return m.GetChunk(), nil
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

// nextChunk returns the next piece of an attachment; io.EOF after the last.
func nextChunk(
	stream grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse],
) (*bridgev1.AttachmentChunk, error) {
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if chunk := m.GetChunk(); chunk != nil {
		return chunk, nil
	}
	return nil, fault.New(fault.InvalidField, "every message but the first must hold a chunk").WithField("chunk")
}

// streamEnded converts the error of a stream that ended before its first message, which has a field.
func streamEnded(err error, field string) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidField, "the stream ended before its %s", field).WithField(field)
	}
	return err
}
