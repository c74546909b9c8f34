package session

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// Send implements bridgev1.SessionServiceServer.
func (s *Service) Send(ctx context.Context, req *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	return s.backend.Send(ctx, req)
}

// SendAndWait implements bridgev1.SessionServiceServer.
func (s *Service) SendAndWait(ctx context.Context, req *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error) {
	return s.backend.SendAndWait(ctx, req)
}

// Abort implements bridgev1.SessionServiceServer.
func (s *Service) Abort(ctx context.Context, req *bridgev1.AbortRequest) (*bridgev1.AbortResponse, error) {
	return s.backend.Abort(ctx, req)
}

// Run implements bridgev1.SessionServiceServer.
func (s *Service) Run(req *bridgev1.RunRequest, stream grpc.ServerStreamingServer[bridgev1.RunResponse]) error {
	return s.backend.Run(stream.Context(), req, codec.RunSink(stream))
}

// SendStream implements bridgev1.SessionServiceServer.
func (s *Service) SendStream(stream grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return unexpectedEnd(err)
	}
	req := first.GetRequest()
	if req == nil {
		return fault.New(fault.InvalidField, "the first message must hold the request").WithField("request")
	}
	resp, err := s.backend.SendStream(stream.Context(), req, func() (*bridgev1.AttachmentChunk, error) {
		return nextChunk(stream)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

// nextChunk returns the next piece of an attachment, and io.EOF after the last.
func nextChunk(stream grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse]) (*bridgev1.AttachmentChunk, error) {
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if chunk := m.GetChunk(); chunk != nil {
		return chunk, nil
	}
	return nil, fault.New(fault.InvalidField, "every message but the first must hold a chunk").WithField("chunk")
}

// unexpectedEnd gives a stream that ended before its request an error that says so.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidField, "the stream ended before its request").WithField("request")
	}
	return err
}
