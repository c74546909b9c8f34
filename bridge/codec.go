package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// codec turns the CLI's JSON into the API's messages and back.
type codec struct {
	set    *translate.Set
	events *translate.Table
	// requests and answers are the oneofs of Callback and Answer; byMethod are the
	// requests' cases.
	requests, answers protoreflect.OneofDescriptor
	byMethod          map[string]protoreflect.FieldDescriptor
	// hooks are the types of hooks whose output has a type.
	hooks map[string]bool
	// scratch has buffers in which events are put together.
	scratch sync.Pool
}

func newCodec() (*codec, error) {
	c := &codec{
		set:      translate.NewSet(),
		requests: (*bridgev1.Callback)(nil).ProtoReflect().Descriptor().Oneofs().ByName("request"),
		answers:  (*bridgev1.Answer)(nil).ProtoReflect().Descriptor().Oneofs().ByName("answer"),
		byMethod: map[string]protoreflect.FieldDescriptor{},
		hooks:    map[string]bool{},
		scratch:  sync.Pool{New: func() any { return new([]byte) }},
	}
	for i := range c.requests.Fields().Len() {
		if field := c.requests.Fields().Get(i); c.tag(field) != "" {
			c.byMethod[c.tag(field)] = field
		}
	}
	outputs := (*cliv1.HookOutput)(nil).ProtoReflect().Descriptor().Oneofs().ByName("variant").Fields()
	for i := range outputs.Len() {
		c.hooks[c.tag(outputs.Get(i))] = true
	}
	var err error
	c.events, err = c.set.Table((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor())
	return c, err
}

// tag is the method, event type or hook type that a case of a oneof is for.
func (*codec) tag(field protoreflect.FieldDescriptor) string {
	rules, _ := proto.GetExtension(field.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return rules.GetTag()
}

// lacking names a field that the CLI requires and a message lacks, or "": an enum without a
// value or a message that is not set would be no member at all. So would a union without
// a case, for which its oneof is named.
func (c *codec) lacking(m protoreflect.Message) (field string) {
	rules, _ := proto.GetExtension(m.Descriptor().Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	if oneofs := m.Descriptor().Oneofs(); rules.GetShape() == jsonv1.Shape_SHAPE_UNION && m.WhichOneof(oneofs.Get(0)) == nil {
		return string(oneofs.Get(0).Name())
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		single := !fd.IsList() && !fd.IsMap()
		switch {
		case m.Has(fd) && single && fd.Message() != nil:
			if inner := c.lacking(m.Get(fd).Message()); inner != "" {
				return string(fd.Name()) + "." + inner
			}
		case !m.Has(fd) && single && rules.GetRequired() && (fd.Enum() != nil || fd.Message() != nil):
			return string(fd.Name())
		}
	}
	return ""
}

// The field numbers that event writes by hand; a test compares them with the descriptor.
const (
	fieldBatchEvents   protowire.Number = 1
	fieldEventPosition protowire.Number = 1
	fieldEventEvent    protowire.Number = 2
	fieldEventOriginal protowire.Number = 3
	fieldEventCause    protowire.Number = 4
	fieldEventCut      protowire.Number = 5
	fieldEpoch         protowire.Number = 1
	fieldSeq           protowire.Number = 2
	fieldType          protowire.Number = 1
	fieldUnrecognized  protowire.Number = 1001
)

// event is the journal's encoder: an element of EventBatch.events, tag and length
// included, so that a frame is made of such pieces as they are. It is put together in a
// buffer that is used again; what is kept is an exact copy.
func (c *codec) event(r *journal.Record, f journal.Form) []byte {
	scratch := c.scratch.Get().(*[]byte)
	out, start := c.putEvent((*scratch)[:0], r, f)
	wire := bytes.Clone(out[start:])
	if cap(out) <= maxScratch {
		*scratch = out
		c.scratch.Put(scratch)
	}
	return wire
}

// appendEvent appends what event returns.
func (c *codec) appendEvent(dst []byte, r *journal.Record, f journal.Form) []byte {
	out, start := c.putEvent(dst, r, f)
	return append(out[:len(dst)], out[start:]...)
}

// putEvent puts an event together behind dst. It begins at start, after room for what comes
// before it and is only known afterwards.
func (c *codec) putEvent(dst []byte, r *journal.Record, f journal.Form) (out []byte, start int) {
	original := f == journal.TidyOriginal || f == journal.ExactOriginal
	limit, fidelity := journal.MaxEventBytes, translate.Tidy
	if original {
		limit /= 2
	}
	if f == journal.Exact || f == journal.ExactOriginal {
		fidelity = translate.Exact
	}
	text, cut := journal.CutEvent(r.JSON, limit)

	room := len(dst) + eventHead
	out = slices.Grow(dst, eventHead+len(text))[:room]
	typed, err := c.events.AppendWire(out, text, fidelity)
	if err != nil {
		typed = protowire.AppendString(protowire.AppendTag(out, fieldType, protowire.BytesType), r.Type)
		typed = protowire.AppendBytes(protowire.AppendTag(typed, fieldUnrecognized, protowire.BytesType), text)
	}
	out = typed
	if original {
		out = protowire.AppendBytes(protowire.AppendTag(out, fieldEventOriginal, protowire.BytesType), text)
	}
	if r.Bridge {
		out = protowire.AppendVarint(protowire.AppendTag(out, fieldEventCause, protowire.VarintType), uint64(bridgev1.EventCause_EVENT_CAUSE_BRIDGE))
	}
	if cut {
		out = protowire.AppendVarint(protowire.AppendTag(out, fieldEventCut, protowire.VarintType), 1)
	}
	return out, len(dst) + putHead(out[len(dst):], r.Pos, len(typed)-room)
}

const (
	// eventHead is room for the tags and lengths of an event and its parts and for its
	// position, all at their longest.
	eventHead = 48
	// maxScratch is the largest buffer that is kept to be used again.
	maxScratch = 1 << 20
)

// putHead writes what comes before an event's typed form, of size bytes, right before
// it, and returns where that begins.
func putHead(out []byte, p journal.Position, size int) int {
	var parts [2][eventHead]byte
	pos := appendPosition(parts[0][:0], p)
	body := protowire.SizeTag(fieldEventPosition) + protowire.SizeBytes(len(pos)) +
		protowire.SizeTag(fieldEventEvent) + protowire.SizeBytes(size) + len(out) - eventHead - size
	head := protowire.AppendVarint(protowire.AppendTag(parts[1][:0], fieldBatchEvents, protowire.BytesType), uint64(body))
	head = protowire.AppendBytes(protowire.AppendTag(head, fieldEventPosition, protowire.BytesType), pos)
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldEventEvent, protowire.BytesType), uint64(size))
	start := eventHead - len(head)
	copy(out[start:], head)
	return start
}

// appendPosition appends a Position message.
func appendPosition(dst []byte, p journal.Position) []byte {
	dst = protowire.AppendVarint(protowire.AppendTag(dst, fieldEpoch, protowire.VarintType), p.Epoch)
	return protowire.AppendVarint(protowire.AppendTag(dst, fieldSeq, protowire.VarintType), p.Seq)
}

// maxRequestDepth is how deeply a message of a caller may be nested, the JSON text in its fields
// included. What the bridge puts around it stays below rpcconn.CLIMaxDepth.
const maxRequestDepth = 100

// toJSON gives a caller's message the CLI's form. field is where the message is in the
// request; json_extra may name neither a declared member nor one of forbidden.
func (c *codec) toJSON(m proto.Message, field string, forbidden ...string) ([]byte, error) {
	return c.toJSONAs(m, field, translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: forbidden})
}

// toJSONAs is toJSON with the caller's json_extra held to o.
func (c *codec) toJSONAs(m proto.Message, field string, o translate.JSONOptions) ([]byte, error) {
	wire, err := proto.Marshal(m)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidField, "encoding %s", field).WithField(field)
	}
	table, err := c.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "compiling a message")
	}
	o.MaxDepth = maxRequestDepth
	out, err := table.AppendJSON(nil, wire, o)
	if err != nil {
		return nil, badField(err, field)
	}
	return out, nil
}

// badField gives an error of the transcoder its reason and its field.
func badField(err error, field string) error {
	reason := fault.InvalidField
	if te, ok := errors.AsType[*translate.Error](err); ok {
		if te.Kind == translate.KindDeclaredExtra || te.Kind == translate.KindForbiddenExtra {
			reason = fault.JSONExtraForbidden
		}
		if te.Path != "" {
			field += "." + te.Path
		}
		text := te.Kind.String()
		if te.Detail != "" {
			text += ": " + te.Detail
		}
		if te.Kind == translate.KindDepth {
			text += fmt.Sprintf(": the CLI reads JSON of at most %d levels, %d of them a caller's", rpcconn.CLIMaxDepth, maxRequestDepth)
		}
		return fault.New(reason, "%s: %s", field, text).WithField(field)
	}
	return fault.Wrap(err, reason, "%s", field).WithField(field)
}

// fromJSON reads the CLI's JSON into a message.
func (c *codec) fromJSON(text json.RawMessage, m proto.Message) error {
	return c.fromJSONAs(text, m, translate.Tidy)
}

// fromJSONAs is fromJSON that keeps as much as f says.
func (c *codec) fromJSONAs(text json.RawMessage, m proto.Message, f translate.Fidelity) error {
	table, err := c.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return fault.Wrap(err, fault.Internal, "compiling a message")
	}
	wire, err := table.AppendWire(nil, text, f)
	if err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading what the CLI sent")
	}
	if err := proto.Unmarshal(wire, m); err != nil {
		return fault.Wrap(err, fault.Internal, "decoding %s", protoreflect.FullName(m.ProtoReflect().Descriptor().FullName()))
	}
	return nil
}
