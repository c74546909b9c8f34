// Package bounds limits how many elements a request has, before it is decoded: a byte or two of a message can become a
// structure of hundreds of bytes. It reads the bytes of a message once, in any encoding, and allocates nothing for its
// elements. The bounds of fields are in their descriptors (copilot.bridge.v1.max_items).
//
// The package has no locks and no goroutines. Malformed messages are none of its business: it counts up to the fault,
// which the decoder then reports.
package bounds

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// MaxFieldItems bounds the elements of a repeated field, and the entries of a map, without a bound of their own.
	MaxFieldItems = 10_000
	// MaxElements bounds the elements of a message altogether: those of all repeated fields, the entries of maps, and
	// the messages in it. Nested fields could otherwise multiply their bounds.
	MaxElements = 200_000
)

// MetadataMaxItems is the metadata key with which an error states the exceeded bound.
const MetadataMaxItems = "max_items"

// What an element uses after decoding in addition to its bytes.
const (
	itemOverhead  = 16  // the header of a string, or a number
	entryOverhead = 64  // of a map
	valueOverhead = 128 // a message without generated code, or a JSON value
)

// maxDepth is the depth at which decoders of protobuf fail.
const maxDepth = 10_000

// Wire checks a message in protobuf's binary format. It returns the memory that decoding adds to its bytes.
func Wire(d protoreflect.MessageDescriptor, data []byte) (memory int, err error) {
	var c counter
	err = c.wire(planOf(d), data, maxDepth)
	return c.memory, c.result(err)
}

// JSON checks a message in the JSON mapping of protobuf. It returns the memory that decoding adds to its bytes.
func JSON(d protoreflect.MessageDescriptor, text []byte) (memory int, err error) {
	c := counter{text: text}
	err = c.json(planOf(d), maxDepth)
	return c.memory, c.result(err)
}

// Of returns the bound of a repeated or map field.
func Of(f protoreflect.FieldDescriptor) int {
	if own, _ := proto.GetExtension(f.Options(), bridgev1.E_MaxItems).(int32); own > 0 {
		return int(own)
	}
	return MaxFieldItems
}

// plan is what has to be known of a message type.
type plan struct {
	// memory is that of a message without its content.
	memory int
	fields map[protoreflect.FieldNumber]*field
	// names has the fields by both of their names in JSON.
	names map[string]*field
	// items is the number of repeated and map fields.
	items int
	// free: in JSON the message is any value.
	free bool
}

// field is a field of a plan.
type field struct {
	desc protoreflect.FieldDescriptor
	name string
	// message is the type of the field's messages, or of a map's entries; nil if it has none.
	message protoreflect.MessageDescriptor
	// many: the field is repeated or a map. item is its index among those, and max its bound.
	many      bool
	item, max int
	// memory is that of an element without its content.
	memory int
}

// plans are the plans by descriptor. There are as many as message types.
var plans sync.Map

func planOf(d protoreflect.MessageDescriptor) *plan {
	if p, ok := plans.Load(d); ok {
		return p.(*plan)
	}
	p := newPlan(d)
	plans.Store(d, p)
	return p
}

func newPlan(d protoreflect.MessageDescriptor) *plan {
	p := &plan{memory: valueOverhead, fields: map[protoreflect.FieldNumber]*field{}, names: map[string]*field{}}
	switch d.FullName() {
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue", "google.protobuf.Any":
		p.free = true
	}
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil && !d.IsMapEntry() {
		p.memory = int(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &field{desc: fd, name: string(fd.Name()), message: fd.Message(), memory: itemOverhead}
		if f.many = fd.IsList() || fd.IsMap(); f.many {
			f.item, f.max = p.items, Of(fd)
			p.items++
		}
		if fd.IsMap() {
			f.memory = entryOverhead
		}
		p.fields[fd.Number()], p.names[fd.JSONName()], p.names[string(fd.Name())] = f, f, f
	}
	return p
}

// counter counts the elements of one message.
type counter struct {
	// counts has the number of elements of each repeated field of the messages that are being read, the innermost
	// last.
	counts           []int
	elements, memory int
	// text is the JSON, and at the place in it.
	text []byte
	at   int
}

// errMalformed ends the reading of a message that the decoder will refuse.
var errMalformed = errors.New("bounds: the message is malformed")

// exceeded is the error for a bound; path is the field's, "" for the bound of the whole message.
type exceeded struct {
	path string
	most int
}

func (e *exceeded) Error() string { return fmt.Sprintf("%s has more than %d elements", e.path, e.most) }

// within adds the name of the field around to the path of an error.
func within(err error, name string) error {
	if e, ok := err.(*exceeded); ok && e.path != "" { //nolint:errorlint // of this package
		if e.path[0] != '[' {
			name += "."
		}
		e.path = name + e.path
	}
	return err
}

// result converts the error of a counter to one for callers.
func (c *counter) result(err error) error {
	e, ok := err.(*exceeded) //nolint:errorlint // of this package
	switch {
	case !ok:
		return nil
	case e.path == "":
		return fault.New(fault.InvalidField, "the request has more than %d elements altogether", e.most).
			With(MetadataMaxItems, fmt.Sprint(e.most))
	}
	return fault.New(fault.InvalidField, "%s has more than %d elements", e.path, e.most).WithField(e.path).
		With(MetadataMaxItems, fmt.Sprint(e.most))
}

// begin makes counts for the repeated fields of a message, and returns where they begin.
func (c *counter) begin(items int) (base int) {
	base = len(c.counts)
	c.counts = append(c.counts, make([]int, items)...)
	return base
}

// end removes the counts of a message.
func (c *counter) end(base int) { c.counts = c.counts[:base] }

// add counts n elements that use so much memory each.
func (c *counter) add(n, memory int) error {
	c.elements += n
	c.memory += n * memory
	if c.elements > MaxElements {
		return &exceeded{most: MaxElements}
	}
	return nil
}

// items counts n elements of a field of the message whose counts begin at base. An element that is a message is counted
// when it is read.
func (c *counter) items(base int, f *field, n int) error {
	if c.counts[base+f.item] += n; c.counts[base+f.item] > f.max {
		return &exceeded{f.name, f.max}
	}
	if f.message != nil {
		return nil
	}
	return c.add(n, f.memory)
}
