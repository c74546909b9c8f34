// Package wire converts between the CLI's JSON and the messages of the API: events, callbacks and their answers,
// requests and results.
//
// A Codec is immutable but for a pool of buffers, and safe for concurrent use. The package starts
// no goroutine.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// ReservedMembers are the members of a session's configuration that the bridge sets. Callers may
// not set them as extra members.
var ReservedMembers = []string{"sessionId", "disableResume", "continuePendingWork", "requestPermission", "cloud"}

// Codec turns the CLI's JSON into the API's messages and back.
type Codec struct {
	log *slog.Logger
	set *translate.Set
	// events returns the table of events; nil if it cannot be made, which a test excludes.
	events func() *translate.Table
	// requests and answers are the oneofs of Callback and Answer; byMethod are the
	// requests' cases.
	requests, answers protoreflect.OneofDescriptor
	byMethod          map[string]protoreflect.FieldDescriptor
	// hooks are the types of hooks whose output has a type.
	hooks map[string]bool
	// scratch has buffers in which events are put together.
	scratch sync.Pool
}

// New returns a codec. It logs callbacks that it cannot read.
func New(log *slog.Logger) *Codec {
	c := &Codec{
		log:      log,
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
	c.events = sync.OnceValue(func() *translate.Table {
		table, err := c.set.Table((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor())
		if err != nil {
			log.Error("events cannot be translated", slog.Any("error", err))
		}
		return table
	})
	return c
}

// Prepare compiles the table of events, which takes some milliseconds. The first event waits for it otherwise.
func (c *Codec) Prepare() { c.events() }

// tag is the method, event type or hook type that a case of a oneof is for.
func (*Codec) tag(field protoreflect.FieldDescriptor) string {
	rules, _ := proto.GetExtension(field.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return rules.GetTag()
}

// Table returns the translation table of a message.
func (c *Codec) Table(m protoreflect.MessageDescriptor) (*translate.Table, error) {
	return c.set.Table(m)
}

// answerCase returns the case of an answer that is set; nil if none is.
func (c *Codec) answerCase(a *bridgev1.Answer) protoreflect.FieldDescriptor {
	return a.ProtoReflect().WhichOneof(c.answers)
}

// MaxRequestDepth is the permitted nesting of a caller's message, including the JSON text in its fields. With
// the levels that the bridge adds, it stays below rpcconn.CLIMaxDepth.
const MaxRequestDepth = 100

// MaxExtraMembers is how many members each json_extra of a caller's message may have. A member has 7 bytes of text or
// more, and costs its readers ten times that.
const MaxExtraMembers = 10_000

// ToJSON gives a caller's message the CLI's form. field is where the message is in the
// request; json_extra may name neither a declared member nor one of forbidden.
func (c *Codec) ToJSON(m proto.Message, field string, forbidden ...string) ([]byte, error) {
	return c.ToJSONAs(m, field, translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: forbidden})
}

// ToJSONAs is ToJSON with the caller's json_extra held to o.
func (c *Codec) ToJSONAs(m proto.Message, field string, o translate.JSONOptions) ([]byte, error) {
	wire, err := proto.Marshal(m)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidField, "encoding %s", field).WithField(field)
	}
	table, err := c.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "compiling a message")
	}
	o.MaxDepth, o.MaxExtraMembers = MaxRequestDepth, MaxExtraMembers
	out, err := table.AppendJSON(nil, wire, o)
	if err != nil {
		return nil, BadField(err, field)
	}
	return out, nil
}

// BadField gives an error of the transcoder its reason and its field.
func BadField(err error, field string) error {
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
			text += fmt.Sprintf(": the CLI accepts JSON of at most %d levels, and callers may use %d of them", rpcconn.CLIMaxDepth, MaxRequestDepth)
		}
		return fault.New(reason, "%s: %s", field, text).WithField(field)
	}
	return fault.Wrap(err, reason, "%s", field).WithField(field)
}

// FromJSON reads the CLI's JSON into a message.
func (c *Codec) FromJSON(text json.RawMessage, m proto.Message) error {
	return c.FromJSONAs(text, m, translate.Tidy)
}

// FromJSONAs is FromJSON that keeps as much as f says.
func (c *Codec) FromJSONAs(text json.RawMessage, m proto.Message, f translate.Fidelity) error {
	table, err := c.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return fault.Wrap(err, fault.Internal, "compiling a message")
	}
	wire, err := table.AppendWire(nil, text, f)
	if err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading a message of the CLI")
	}
	if err := proto.Unmarshal(wire, m); err != nil {
		return fault.Wrap(err, fault.Internal, "decoding %s", protoreflect.FullName(m.ProtoReflect().Descriptor().FullName()))
	}
	return nil
}
