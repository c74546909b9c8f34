// Package contract reads what the descriptors of the API say of callbacks.
package contract

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// HookInvocation is the request that holds the inputs of all hooks.
const HookInvocation = protoreflect.FullName("copilot.cli.v1.HookInvocation")

// Cases is what the descriptors say of callbacks, by the tags that they have: JSON-RPC
// methods, types of events, types of hooks.
type Cases struct {
	Kinds           map[string]bridgev1.CallbackKind
	Requests        map[protoreflect.FullName]string // the tag, by message
	Request, Answer map[string]protoreflect.FieldDescriptor
	Answers         map[protoreflect.FullName]protoreflect.FieldDescriptor
	Inputs          map[protoreflect.FullName]string // the hook, by message
	Input, Output   map[string]protoreflect.FieldDescriptor
	Outputs         map[protoreflect.FullName]protoreflect.FieldDescriptor
}

// Read reads the descriptors, once.
var Read = sync.OnceValue(func() *Cases {
	c := &Cases{Kinds: map[string]bridgev1.CallbackKind{}}
	values := bridgev1.CallbackKind(0).Descriptor().Values()
	for i := range values.Len() {
		rules, _ := proto.GetExtension(values.Get(i).Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules)
		if rules.GetValue() != "" {
			c.Kinds[rules.GetValue()] = bridgev1.CallbackKind(values.Get(i).Number())
		}
	}
	c.Requests, c.Request, _ = tagged((*bridgev1.Callback)(nil), "request")
	_, c.Answer, c.Answers = tagged((*bridgev1.Answer)(nil), "answer")
	c.Inputs, c.Input, _ = tagged((*cliv1.HookInvocation)(nil), "data")
	_, c.Output, c.Outputs = tagged((*cliv1.HookOutput)(nil), "variant")
	return c
})

// tagged lists the cases of a oneof that have a tag.
func tagged(m proto.Message, oneof protoreflect.Name) (
	tags map[protoreflect.FullName]string,
	byTag map[string]protoreflect.FieldDescriptor,
	byMessage map[protoreflect.FullName]protoreflect.FieldDescriptor,
) {
	tags, byTag = map[protoreflect.FullName]string{}, map[string]protoreflect.FieldDescriptor{}
	byMessage = map[protoreflect.FullName]protoreflect.FieldDescriptor{}
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName(oneof).Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		rules, _ := proto.GetExtension(field.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		if rules.GetTag() == "" {
			continue
		}
		name := field.Message().FullName()
		tags[name], byTag[rules.GetTag()], byMessage[name] = rules.GetTag(), field, field
	}
	return tags, byTag, byMessage
}
