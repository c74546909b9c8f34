package corpus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// Why says why a value was not held by a typed field.
type Why string

// The reasons.
const (
	// Null is null for an optional member that may be null: it stays because it differs from absence. Nothing has
	// drifted.
	Null Why = "null"
	// Undeclared is a member that the message does not know.
	Undeclared Why = "undeclared"
	// Misfit is a declared member with a value of another type, an unknown enum value
	// or a form that would not be written back.
	Misfit Why = "misfit"
	// Absent is a required member that was not there.
	Absent Why = "absent"
	// Whole is a value of another kind than the message.
	Whole Why = "whole"
	// Unlisted is a method, an event type or an alternative that nothing describes.
	Unlisted Why = "unlisted"
)

// Place is the location of a value outside of typed fields.
type Place struct {
	// Message is the name of the message, within its package.
	Message string
	// Member is the JSON member, or the event's type; empty where the whole counts.
	Member string
	// Why it is there.
	Why Why
}

// String is the form of a place in the list of known ones.
func (p Place) String() string {
	if p.Member == "" {
		return fmt.Sprintf("%s: %s", p.Message, p.Why)
	}
	return fmt.Sprintf("%s.%s: %s", p.Message, p.Member, p.Why)
}

func comparePlaces(a, b Place) int { return cmp.Compare(a.String(), b.String()) }

const (
	extraNumber        = 1000
	unrecognizedNumber = 1001
)

// mayKeep tells whether a message may have a catch-all field set: whether the bytes
// of such a field's tag are in it anywhere. Most messages need no closer look.
func mayKeep(wire []byte) bool {
	return bytes.Contains(wire, extraTag) || bytes.Contains(wire, unrecognizedTag)
}

var (
	extraTag        = protowire.AppendTag(nil, extraNumber, protowire.BytesType)
	unrecognizedTag = protowire.AppendTag(nil, unrecognizedNumber, protowire.BytesType)
)

// kept finds all that the catch-all fields of a message hold, at any level.
func kept(md protoreflect.MessageDescriptor, wire []byte) ([]Place, error) {
	m := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, m); err != nil {
		return nil, err
	}
	var w walker
	w.message(m)
	return w.places, w.err
}

type walker struct {
	places []Place
	err    error
}

func (w *walker) message(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Number() == extraNumber:
			w.extra(m, v.String())
		case fd.Number() == unrecognizedNumber:
			w.unrecognized(m)
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				w.message(v.Message())
				return w.err == nil
			})
		case fd.IsMap():
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				w.message(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			w.message(v.Message())
		}
		return w.err == nil
	})
}

// unrecognized notes a value that no alternative fits. Of an event the type counts.
func (w *walker) unrecognized(m protoreflect.Message) {
	p := Place{Message: string(m.Descriptor().Name()), Why: Unlisted}
	rules, _ := proto.GetExtension(m.Descriptor().Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	if rules.GetShape() == jsonv1.Shape_SHAPE_ENVELOPE {
		if fd := member(m.Descriptor(), rules.GetDiscriminator()); fd != nil {
			p.Member = m.Get(fd).String()
		}
	}
	w.places = append(w.places, p)
}

// extra notes the members of a json_extra.
func (w *walker) extra(m protoreflect.Message, text string) {
	var members map[string]json.RawMessage
	if w.err = json.Unmarshal([]byte(text), &members); w.err != nil {
		return
	}
	for name, value := range members {
		p := Place{Message: string(m.Descriptor().Name()), Member: name}
		switch name {
		case "$value":
			p.Member, p.Why = "", Whole
		case "$absent":
			w.absent(p, value)
			continue
		default:
			p.Why = why(m.Descriptor(), name, value)
		}
		w.places = append(w.places, p)
	}
}

func (w *walker) absent(p Place, value json.RawMessage) {
	var names []string
	if w.err = json.Unmarshal(value, &names); w.err != nil {
		return
	}
	for _, p.Member = range names {
		p.Why = Absent
		w.places = append(w.places, p)
	}
}

// why tells a member that is not declared from one whose value did not fit.
func why(md protoreflect.MessageDescriptor, name string, value json.RawMessage) Why {
	if fd := member(md, name); fd != nil {
		if rules := fieldRules(fd); strings.TrimSpace(string(value)) == "null" && rules.GetNullable() &&
			!rules.GetRequired() {
			return Null
		}
		return Misfit
	}
	rules, _ := proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	for _, c := range rules.GetConsts() {
		if c.GetName() == name {
			return Misfit
		}
	}
	return Undeclared
}

// member returns the field of a JSON member, nil when there is none.
func member(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if cmp.Or(fieldRules(fd).GetMember(), fd.JSONName()) == name && fd.Number() != extraNumber {
			return fd
		}
	}
	return nil
}

func fieldRules(fd protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return rules
}
