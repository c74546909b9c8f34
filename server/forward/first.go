package forward

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// replay is a stream whose first message has been received and is received again.
type replay struct {
	grpc.ServerStream
	// first is the message; err is the error that came in its place.
	first    proto.Message
	err      error
	replayed bool
}

// receiveFirst receives the first message of a call of a method.
func receiveFirst(stream grpc.ServerStream, method string) *replay {
	r := &replay{ServerStream: stream}
	kind, err := requestType(method)
	if err != nil {
		r.err = err
		return r
	}
	r.first = kind.New().Interface()
	r.err = stream.RecvMsg(r.first)
	return r
}

// RecvMsg implements grpc.ServerStream. The first message moves into m, which must be empty.
func (r *replay) RecvMsg(m any) error {
	if r.replayed {
		return r.ServerStream.RecvMsg(m)
	}
	r.replayed = true
	if r.err != nil {
		return r.err
	}
	to, ok := m.(proto.Message)
	if !ok || to.ProtoReflect().Descriptor() != r.first.ProtoReflect().Descriptor() {
		return fmt.Errorf("forward: a %T does not receive a %T", m, r.first)
	}
	from := r.first.ProtoReflect()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		to.ProtoReflect().Set(field, value)
		return true
	})
	to.ProtoReflect().SetUnknown(from.GetUnknown())
	r.first = nil // an idle stream does not need it
	return nil
}

// requestType returns the type of the requests of a method.
func requestType(method string) (protoreflect.MessageType, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, fmt.Errorf("forward: method %q: %w", method, err)
	}
	m, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, errors.New("forward: " + method + " is not a method")
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, fmt.Errorf("forward: method %q: %w", method, err)
	}
	return kind, nil
}
