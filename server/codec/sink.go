package codec

import (
	"errors"
	"fmt"
	"sync"

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

// kind is a kind of stream with the frames of EventService.Subscribe.
type kind struct {
	// field is the field that contains these frames; 0 if they are not wrapped.
	field protowire.Number
	// own reports whether a message is one of the stream itself.
	own func(proto.Message) bool
}

// The kinds of streams. Each stream has only a pointer to its kind, because most streams are idle.
var (
	subscribeKind = &kind{0, is[*bridgev1.SubscribeResponse]}
	attachKind    = &kind{attachStream, is[*bridgev1.AttachResponse]}
	runKind       = &kind{runStream, is[*bridgev1.RunResponse]}
)

func is[T proto.Message](m proto.Message) bool {
	_, ok := m.(T)
	return ok
}

// SubscribeSink returns a sink that sends SubscribeResponse frames on s.
func SubscribeSink(s grpc.ServerStream) frame.Sink { return subscribeKind.sink(s) }

// AttachSink returns a sink that sends AttachResponse frames on s, and
// SubscribeResponse frames and encoded ones inside AttachResponse.stream.
func AttachSink(s grpc.ServerStream) frame.Sink { return attachKind.sink(s) }

// RunSink returns a sink that sends RunResponse frames on s, and SubscribeResponse
// frames and encoded ones inside RunResponse.stream.
func RunSink(s grpc.ServerStream) frame.Sink { return runKind.sink(s) }

// sink sends frames on s.
func (k *kind) sink(s grpc.ServerStream) frame.Sink {
	return func(f frame.Frame) error {
		switch {
		case (f.Message == nil) == (f.Wire == nil):
			return errors.New("a frame needs either a message or bytes")
		case f.Wire != nil:
			return k.send(s, f)
		case k.own(f.Message):
			return s.SendMsg(f.Message)
		case !subscribeKind.own(f.Message):
			return fmt.Errorf("a %s is not a frame of this stream", f.Message.ProtoReflect().Descriptor().FullName())
		}
		wire, err := proto.Marshal(f.Message)
		if err != nil {
			return err
		}
		return k.send(s, frame.Frame{Wire: [][]byte{wire}})
	}
}

// unused has encoded messages for the next frame of any stream. gRPC does not use them after SendMsg has returned.
var unused = sync.Pool{New: func() any { return new(encoded) }}

// send sends an encoded frame.
func (k *kind) send(s grpc.ServerStream, f frame.Frame) error {
	e := unused.Get().(*encoded)
	*e = encoded{pieces: f.Wire, own: f.Own, field: k.field}
	err := s.SendMsg(e)
	*e = encoded{}
	unused.Put(e)
	return err
}
