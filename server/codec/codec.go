// Package codec encodes messages. Frames that were encoded before are sent as their bytes, which all streams share.
// All other messages, such as replies of unary calls, reflection and health, are encoded as by gRPC's own codec. The
// package has no locks and no goroutines.
package codec

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
)

// Name is the codec's content subtype: that of gRPC's own.
const Name = "proto"

// inline is the largest number of pieces of a frame that is sent with a single allocation.
const inline = 4

// encoded is a message that is already encoded.
type encoded struct {
	// pieces are the bytes. They are shared and garbage-collected, without reference counts.
	pieces [][]byte
	// own, if set, holds the last piece; it is returned to its pool after gRPC has sent it.
	own *frame.Buffer
	// field, unless it is 0, is the number of the message's only field, of message type, whose encoding is in pieces.
	field protowire.Number
}

// New returns the codec. Servers must force it (grpc.ForceServerCodecV2) and not register it, because clients in the
// same process do not need it.
func New() encoding.CodecV2 { return codec{} }

type codec struct{}

func (codec) Name() string { return Name }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return e.buffers(), nil
	}
	if r, ok := v.(*Raw); ok {
		return r.give(), nil
	}
	if r, ok := v.(Ready); ok {
		return mem.BufferSlice{mem.SliceBuffer(r.Wire())}, nil
	}
	m := messageOf(v)
	if m == nil {
		return nil, fmt.Errorf("codec: cannot marshal a %T", v)
	}
	return marshal(m)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*Incoming); ok {
		in.Err = in.decode(c, data)
		return nil
	}
	if r, ok := v.(*Raw); ok {
		r.take(data)
		return nil
	}
	if r, ok := v.(Ready); ok {
		r.TakeWire(data.Materialize())
		return nil
	}
	m := messageOf(v)
	if m == nil {
		return fmt.Errorf("codec: cannot unmarshal into a %T", v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

// messageOf returns v as a proto.Message; nil if it is none.
func messageOf(v any) proto.Message {
	switch v := v.(type) {
	case proto.Message:
		return v
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(v)
	}
	return nil
}

// marshal encodes m, in a pooled buffer if it is large.
func marshal(m proto.Message) (mem.BufferSlice, error) {
	size := proto.Size(m)
	options := proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		b, err := options.Marshal(m)
		if err != nil {
			return nil, err
		}
		one := &single{bytes: b}
		one.buffers[0] = &one.bytes
		return one.buffers[:], nil
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(size)
	if _, err := options.MarshalAppend((*b)[:0], m); err != nil {
		pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// single is a message in one piece. A pointer to a SliceBuffer is a mem.Buffer without another allocation.
type single struct {
	buffers [1]mem.Buffer
	bytes   mem.SliceBuffer
}

// header is the only allocation for sending a frame of few pieces. The slice headers are copied, because gRPC reads
// them after the frame may have been reused. A pointer to one is a mem.Buffer without another allocation.
type header struct {
	buffers [inline + 1]mem.Buffer
	pieces  [inline + 1]mem.SliceBuffer
	prefix  [1 + binary.MaxVarintLen64]byte
}

// buffers returns the bytes of e without copying them.
func (e *encoded) buffers() mem.BufferSlice {
	h := new(header)
	out, pieces := h.buffers[:0], h.pieces[:0]
	if len(e.pieces) > inline {
		out, pieces = make(mem.BufferSlice, 0, len(e.pieces)+1), make([]mem.SliceBuffer, 0, len(e.pieces)+1)
	}
	if e.field != 0 {
		prefix := protowire.AppendTag(h.prefix[:0], e.field, protowire.BytesType)
		pieces = append(pieces, protowire.AppendVarint(prefix, e.size()))
	}
	for _, p := range e.pieces {
		if len(p) > 0 {
			pieces = append(pieces, p)
		}
	}
	for i := range pieces {
		out = append(out, &pieces[i])
	}
	if e.own != nil && len(e.own.Bytes) > 0 {
		out[len(out)-1] = mem.NewBuffer(&e.own.Bytes, giver{e.own})
	}
	return out
}

// giver is the pool to which gRPC returns the memory of a frame; gRPC counts the references.
type giver struct{ own *frame.Buffer }

// Get implements mem.BufferPool. It is never called.
func (giver) Get(n int) *[]byte { return &frame.Take(n).Bytes }

// Put implements mem.BufferPool.
func (g giver) Put(*[]byte) { g.own.Give() }

// size returns the total size of the pieces.
func (e *encoded) size() uint64 {
	var n uint64
	for _, p := range e.pieces {
		n += uint64(len(p))
	}
	return n
}
