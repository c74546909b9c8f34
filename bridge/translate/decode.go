package translate

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// decoder turns wire bytes into JSON. Calls reuse it for its buffer.
type decoder struct {
	src    []byte
	dst    []byte
	start  int // of our output in dst
	depth  int // levels that are left
	limits Limits
	opts   JSONOptions
	keys   []span // of the maps being written, each at the end
	// again tells that a message turned out to be not as it is expected, after
	// parts of it were written: the error beside it means nothing, and the whole
	// is to be written again, careful this time. Were only that message written
	// again, then messages within messages would be, each level twice as often as
	// the one above.
	again bool
	// careful tells that src is a merged copy of the input, so that offsets mean
	// nothing, and that objects are looked at before they are written.
	careful bool
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

func (d *decoder) release() {
	if cap(d.keys) > maxKept/16 {
		d.keys = nil
	}
	*d = decoder{keys: d.keys[:0]}
	decoders.Put(d)
}

func (d *decoder) run(t *Table, dst, wire []byte, o JSONOptions) ([]byte, error) {
	if len(wire) > t.limits.MaxInput {
		return dst, &Error{Kind: KindSize, Message: t.name(), Offset: -1}
	}
	d.src, d.opts, d.limits = wire, o, t.limits
	d.dst = slices.Grow(dst, len(wire)+len(wire)/4+64)
	if o.MaxDepth > 0 {
		d.limits.MaxDepth = min(d.limits.MaxDepth, o.MaxDepth)
	}
	d.start, d.depth = len(dst), d.limits.MaxDepth
	err := d.message(t, 0, len(wire), true)
	if d.again {
		d.careful, d.dst, d.depth, d.keys = true, d.dst[:len(dst)], d.limits.MaxDepth, d.keys[:0]
		if d.src, err = merged(t.md, wire); err == nil {
			err = d.message(t, 0, len(d.src), true)
		}
	}
	if err == nil && len(d.dst)-d.start > d.limits.MaxOutput {
		err = fail(KindSize, -1)
	}
	if err != nil {
		err.Message = t.name()
		if d.careful {
			err.Offset = -1
		}
		return dst, err
	}
	return d.dst, nil
}

// merged returns the message in a form in which each field occurs in one place. Of a scalar, and of the cases of a
// oneof, the last one counts; of a message that occurs several times the contents are joined.
func merged(md protoreflect.MessageDescriptor, wire []byte) ([]byte, *Error) {
	m := dynamicpb.NewMessage(md)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(wire, m); err != nil {
		return nil, fail(KindWire, -1)
	}
	out, err := proto.Marshal(m)
	if err != nil {
		return nil, fail(KindWire, -1)
	}
	return out, nil
}

// startOver has the whole message written again, carefully.
func (d *decoder) startOver() *Error {
	d.again = true
	return fail(KindWire, -1)
}

func fail(k Kind, offset int) *Error { return &Error{Kind: k, Offset: offset} }

// varint reads a varint; the index is negative when there is none.
func varint(b []byte, i int) (uint64, int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := b[i]
		i++
		if shift == 63 && c > 1 {
			return 0, -1
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, -1
}

// message writes the message between i and end as the JSON value it stands for.
func (d *decoder) message(t *Table, i, end int, top bool) *Error {
	if d.depth <= 0 {
		return fail(KindDepth, i)
	}
	d.depth--
	var err *Error
	switch t.shape {
	case jsonv1.Shape_SHAPE_OBJECT, jsonv1.Shape_SHAPE_ENVELOPE:
		var hidden mask
		if d.careful {
			hidden, err = d.overridden(t, i, end, top)
		}
		if err == nil {
			err = d.object(t, i, end, top, hidden)
		}
	case jsonv1.Shape_SHAPE_UNION:
		err = d.union(t, i, end, top)
	default:
		err = d.bare(t, i, end, top)
	}
	d.depth++
	return err
}

// record is one field of a message as it stands in wire form. It is small
// enough to stay in registers.
type record struct {
	tag        uint64 // number and wire type
	value, end int    // where the content lies, without a length prefix
	number64   uint64 // what a varint holds
}

func (r record) number() uint64       { return r.tag >> 3 }
func (r record) wire() protowire.Type { return protowire.Type(r.tag & 7) }

// read reads the record at i of a message that ends at end.
func (d *decoder) read(i, end int) (record, *Error) {
	src := d.src[:end]
	tag, value := varint(src, i)
	if value < 0 || tag < 1<<3 || tag >= 1<<32 {
		return record{}, fail(KindWire, i)
	}
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		v, next := varint(src, value)
		if next < 0 {
			return record{}, fail(KindWire, value)
		}
		return record{tag, value, next, v}, nil
	case protowire.BytesType:
		n, start := varint(src, value)
		if start < 0 || n > uint64(end-start) {
			return record{}, fail(KindWire, i)
		}
		return record{tag, start, start + int(n), 0}, nil
	case protowire.Fixed64Type:
		if end-value < 8 {
			return record{}, fail(KindWire, i)
		}
		return record{tag, value, value + 8, 0}, nil
	case protowire.Fixed32Type:
		if end-value < 4 {
			return record{}, fail(KindWire, i)
		}
		return record{tag, value, value + 4, 0}, nil
	case protowire.StartGroupType:
		next, err := d.groupEnd(tag>>3, value, end)
		return record{tag, value, next, 0}, err
	}
	return record{}, fail(KindWire, i)
}

// groupEnd returns the index after a group, which no message of ours declares.
func (d *decoder) groupEnd(number uint64, i, end int) (int, *Error) {
	open := append(make([]uint64, 0, 8), number)
	for len(open) > 0 {
		tag, j := varint(d.src[:end], i)
		kind := protowire.Type(tag & 7)
		switch {
		case j < 0:
			return i, fail(KindWire, i)
		case kind == protowire.StartGroupType && len(open) < d.depth:
			open = append(open, tag>>3)
			i = j
		case kind == protowire.StartGroupType:
			return i, fail(KindDepth, i)
		case kind == protowire.EndGroupType:
			if open[len(open)-1] != tag>>3 {
				return i, fail(KindWire, i)
			}
			open = open[:len(open)-1]
			i = j
		default:
			r, err := d.read(i, end)
			if err != nil {
				return i, err
			}
			i = r.end
		}
	}
	return i, nil
}

// matches tells whether a record has the wire type that its field declares.
func (f *field) matches(r record) bool {
	return r.tag == f.tag || f.packedTag != 0 && r.tag == f.packedTag
}
