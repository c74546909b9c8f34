package codec

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The fields that contain the frames of EventService.Subscribe on other streams.
var (
	attachStream = streamField(new(bridgev1.AttachResponse))
	runStream    = streamField(new(bridgev1.RunResponse))
)

func streamField(m proto.Message) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name("stream")).Number()
}

// SubscribeSink returns a sink that sends SubscribeResponse frames on s.
func SubscribeSink(s grpc.ServerStream) frame.Sink {
	return sink(s, 0, func(m proto.Message) proto.Message {
		if m, ok := m.(*bridgev1.SubscribeResponse); ok {
			return m
		}
		return nil
	})
}

// AttachSink returns a sink that sends AttachResponse frames on s, and
// SubscribeResponse frames and encoded ones inside AttachResponse.stream.
func AttachSink(s grpc.ServerStream) frame.Sink {
	return sink(s, attachStream, func(m proto.Message) proto.Message {
		switch m := m.(type) {
		case *bridgev1.AttachResponse:
			return m
		case *bridgev1.SubscribeResponse:
			return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: m}}
		}
		return nil
	})
}

// RunSink returns a sink that sends RunResponse frames on s, and SubscribeResponse
// frames and encoded ones inside RunResponse.stream.
func RunSink(s grpc.ServerStream) frame.Sink {
	return sink(s, runStream, func(m proto.Message) proto.Message {
		switch m := m.(type) {
		case *bridgev1.RunResponse:
			return m
		case *bridgev1.SubscribeResponse:
			return &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: m}}
		}
		return nil
	})
}

// sink sends frames on s: encoded ones inside the field (0: unwrapped), messages as wrap converts them. One frame
// object serves the whole stream, because gRPC does not use it after SendMsg returns.
func sink(s grpc.ServerStream, field protowire.Number, wrap func(proto.Message) proto.Message) frame.Sink {
	shared := &encoded{field: field}
	return func(f frame.Frame) error {
		switch {
		case f.Message != nil && f.Wire == nil:
			m := wrap(f.Message)
			if m == nil {
				return fmt.Errorf("a %s is not a frame of this stream",
					f.Message.ProtoReflect().Descriptor().FullName())
			}
			return s.SendMsg(m)
		case f.Message == nil && f.Wire != nil:
			shared.pieces, shared.own = f.Wire, f.Own
			err := s.SendMsg(shared)
			shared.pieces, shared.own = nil, nil
			return err
		}
		return errors.New("a frame needs either a message or bytes")
	}
}
