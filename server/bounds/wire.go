package bounds

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wire counts a message and what is in it.
func (c *counter) wire(p *plan, data []byte, depth int) error {
	if depth == 0 {
		return errMalformed
	}
	if err := c.add(1, p.memory); err != nil {
		return err
	}
	base := c.begin(p.items)
	defer c.end(base)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errMalformed
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return errMalformed
		}
		if f := p.fields[number]; f != nil && (f.many || f.message != nil) {
			if err := c.wireField(base, f, kind, data[:size], depth); err != nil {
				return err
			}
		}
		data = data[size:]
	}
	return nil
}

// wireField counts an occurrence of a field. Values of another wire type than the field's are unknown fields, which stay
// bytes.
func (c *counter) wireField(base int, f *field, kind protowire.Type, value []byte, depth int) error {
	var content []byte
	if kind == protowire.BytesType {
		content, _ = protowire.ConsumeBytes(value)
	}
	switch {
	case f.message != nil && kind != protowire.BytesType:
		return nil
	case f.message != nil:
		if f.many {
			if err := c.items(base, f, 1); err != nil {
				return err
			}
		}
		name := f.name
		err := c.wire(planOf(f.message), content, depth-1)
		if err != nil && f.many {
			name = nthName(f, c.counts[base+f.item]-1)
		}
		return within(err, name)
	case kind == protowire.BytesType && packable(f.desc.Kind()):
		return c.items(base, f, packed(f.desc.Kind(), content))
	}
	return c.items(base, f, 1)
}

// packable reports whether elements of a kind may be packed into one value.
func packable(k protoreflect.Kind) bool {
	return k != protoreflect.StringKind && k != protoreflect.BytesKind
}

// packed returns the number of packed elements.
func packed(k protoreflect.Kind, content []byte) (n int) {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(content) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(content) / 8
	}
	for _, b := range content {
		if b < 0x80 { // the last byte of a varint
			n++
		}
	}
	return n
}
