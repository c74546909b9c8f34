package shim

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// wire is a message in wire form.
type wire struct{ bytes []byte }

// codec sends and receives messages in wire form; all others as gRPC's own codec does.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *wire:
		return mem.BufferSlice{mem.SliceBuffer(m.bytes)}, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("shim: cannot marshal a %T", v)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *wire:
		m.bytes = data.Materialize()
		return nil
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), m)
	}
	return fmt.Errorf("shim: cannot unmarshal into a %T", v)
}
