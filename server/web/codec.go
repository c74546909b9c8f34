package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/bounds"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// item is a message of a call: a value that package codec can encode and decode, and its type. memory counts it when it
// is received.
type item struct {
	value  any
	kind   protoreflect.MessageDescriptor
	memory *account.Account
}

// wire encodes and decodes values as the gRPC server does.
var wire = codec.New()

// binaryCodec is the connect.Codec for binary protobuf. Values that are already encoded are written as they are.
type binaryCodec struct{}

// Name implements connect.Codec.
func (binaryCodec) Name() string { return connect.CodecNameProto }

// MarshalWrite implements connect.Codec. Connect writes details of errors with it too.
func (binaryCodec) MarshalWrite(_ context.Context, dst io.Writer, msg any) error {
	if i, ok := msg.(*item); ok {
		msg = i.value
	}
	pieces, err := wire.Marshal(msg)
	if err != nil {
		return err
	}
	defer pieces.Free()
	for _, piece := range pieces {
		if _, err := dst.Write(piece.ReadOnlyData()); err != nil {
			return err
		}
	}
	return nil
}

// UnmarshalRead implements connect.Codec.
func (binaryCodec) UnmarshalRead(_ context.Context, src io.Reader, msg any) error {
	i, ok := msg.(*item)
	if !ok {
		return fmt.Errorf("web: cannot decode into a %T", msg)
	}
	data, err := readAll(src)
	if err != nil {
		return err
	}
	if err := i.memory.Unpack(len(data)); err != nil {
		return err
	}
	return codec.DecodeWire(i.value, i.kind, data, i.memory)
}

// readAll returns what is left of src. Connect has whole messages in buffers, whose bytes are not copied.
func readAll(src io.Reader) ([]byte, error) {
	if whole, ok := src.(*bytes.Buffer); ok {
		return whole.Bytes(), nil
	}
	return io.ReadAll(src)
}

// jsonCodec is the connect.Codec for the JSON mapping of protobuf. It refuses unknown fields, because a mistyped name
// would otherwise change the meaning of a request silently.
type jsonCodec struct{}

// Name implements connect.Codec.
func (jsonCodec) Name() string { return connect.CodecNameJSON }

// MarshalWrite implements connect.Codec.
func (jsonCodec) MarshalWrite(_ context.Context, dst io.Writer, msg any) error {
	i, ok := msg.(*item)
	if !ok {
		return fmt.Errorf("web: cannot encode a %T", msg)
	}
	m, err := i.message()
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	_, err = dst.Write(text)
	return err
}

// UnmarshalRead implements connect.Codec.
func (jsonCodec) UnmarshalRead(_ context.Context, src io.Reader, msg any) error {
	i, ok := msg.(*item)
	if !ok {
		return fmt.Errorf("web: cannot decode into a %T", msg)
	}
	data, err := readAll(src)
	if err != nil {
		return err
	}
	return i.parse(data)
}

// message returns the decoded message.
func (i *item) message() (proto.Message, error) {
	if m, ok := i.value.(proto.Message); ok {
		return m, nil
	}
	pieces, err := wire.Marshal(i.value)
	if err != nil {
		return nil, err
	}
	defer pieces.Free()
	m := newMessage(i.kind)
	if err := proto.Unmarshal(pieces.Materialize(), m); err != nil {
		return nil, fmt.Errorf("web: decode a %s: %w", i.kind.FullName(), err)
	}
	return m, nil
}

// parse sets the message from JSON. No text means a message without fields.
func (i *item) parse(text []byte) error {
	if err := i.memory.Unpack(len(text)); err != nil {
		return err
	}
	memory, err := bounds.JSON(i.kind, text)
	if err != nil {
		return err
	}
	if err := i.memory.Decode(memory); err != nil {
		return err
	}
	m, direct := i.value.(proto.Message)
	if !direct {
		m = newMessage(i.kind)
	}
	if len(text) > 0 {
		if err := protojson.Unmarshal(text, m); err != nil {
			return malformed(i.kind, err)
		}
	}
	if direct {
		return nil
	}
	ready, ok := i.value.(codec.Ready)
	if !ok {
		return fmt.Errorf("web: cannot decode into a %T", i.value)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return malformed(i.kind, err)
	}
	ready.TakeWire(data)
	return nil
}

var (
	// prefix is what protojson puts before its errors; the space varies between builds.
	prefix = regexp.MustCompile(`^proto:[\s\x{a0}]+`)
	// named finds the field that an error of protojson names.
	named = regexp.MustCompile(`(?:unknown field|duplicate field|for \S+ field) "?([\w.]+)"?`)
)

// malformed returns the error for JSON that does not fit a message.
func malformed(kind protoreflect.MessageDescriptor, err error) error {
	text := prefix.ReplaceAllString(err.Error(), "")
	e := fault.New(fault.InvalidField, "the JSON is not a valid %s: %s", kind.FullName(), text)
	if found := named.FindStringSubmatch(text); found != nil {
		e = e.WithField(found[1])
	}
	return e
}
