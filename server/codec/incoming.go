package codec

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/bounds"
)

// Incoming is a message of a caller that is to be received: its bounds are checked before it is decoded.
type Incoming struct {
	// Value is what the message is decoded into.
	Value any
	// Account counts the memory that decoding adds.
	Account *account.Account
	// Err is why the message was refused. It is not returned, because gRPC would replace it by INTERNAL.
	Err error
}

// typed is a message whose bytes are decoded later.
type typed interface {
	Ready
	Descriptor() protoreflect.MessageDescriptor
}

// decode checks and decodes a message in the binary format.
func (in *Incoming) decode(c codec, data mem.BufferSlice) error {
	var kind protoreflect.MessageDescriptor
	switch v := in.Value.(type) {
	case typed:
		kind = v.Descriptor()
	case *Raw: // another replica decodes it
		return c.Unmarshal(data, v)
	default:
		m := messageOf(v)
		if m == nil {
			return c.Unmarshal(data, v)
		}
		kind = m.ProtoReflect().Descriptor()
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return DecodeWire(in.Value, kind, buf.ReadOnlyData(), in.Account)
}

// DecodeWire decodes a message of a type, in the binary format, into v, which is a proto.Message or a Ready. It fails
// with INVALID_ARGUMENT if the message is malformed or exceeds a bound. v does not keep data.
func DecodeWire(v any, kind protoreflect.MessageDescriptor, data []byte, a *account.Account) error {
	memory, err := bounds.Wire(kind, data)
	if err != nil {
		return err
	}
	if err := a.Decode(memory); err != nil {
		return err
	}
	if r, ok := v.(Ready); ok {
		r.TakeWire(append([]byte(nil), data...))
		return nil
	}
	if err := proto.Unmarshal(data, messageOf(v)); err != nil {
		return fault.New(fault.InvalidField, "the request is not a valid %s", kind.FullName())
	}
	return nil
}
