package testproto

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// Names are the messages, by what they are for.
var Names = []protoreflect.Name{
	"All", "Event", "Choice", "Server", "Mixed", "Items", "Entries", "Truth",
	"MaybeTruth", "Nothing", "AnyValue", "Strict", "Config", "ListValue",
}

// Message returns the descriptor of a message; it panics when there is none.
func Message(name protoreflect.Name) protoreflect.MessageDescriptor {
	md := file().Messages().ByName(name)
	if md == nil {
		panic("testproto: no message " + string(name))
	}
	return md
}

// Build compiles further messages, for tests of what is refused.
func Build(path string, messages ...*descriptorpb.DescriptorProto) (protoreflect.FileDescriptor, error) {
	return protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:        proto.String(path),
		Syntax:      proto.String("proto3"),
		Package:     proto.String(packageName),
		Dependency:  []string{"google/protobuf/timestamp.proto"},
		MessageType: messages,
		EnumType:    []*descriptorpb.EnumDescriptorProto{color()},
	}, protoregistry.GlobalFiles)
}

var file = sync.OnceValue(func() protoreflect.FileDescriptor {
	fd, err := Build("test.proto", messages()...)
	if err != nil {
		panic(err)
	}
	return fd
})

func color() *descriptorpb.EnumDescriptorProto {
	e := &descriptorpb.EnumDescriptorProto{Name: proto.String("Color")}
	for i, v := range []string{"", "red", "needs-auth", "", "application/x+json"} {
		o := &descriptorpb.EnumValueOptions{}
		if v != "" {
			proto.SetExtension(o, jsonv1.E_EnumValue, &jsonv1.EnumValueRules{Value: v})
		}
		e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{
			Name:    proto.String("COLOR_" + string(rune('A'+i))),
			Number:  proto.Int32(int32(i)),
			Options: o,
		})
	}
	return e
}

func messages() []*message {
	return append(unions(), append(bare(), objects()...)...)
}

func objects() []*message {
	return []*message{
		// Every kind of field with every kind of presence.
		object("All",
			has("required_string", "string", required),
			has("optional_string", "string", optional),
			has("nullable_string", "string", optional, required, nullable),
			has("tristate_string", "string", optional, nullable),
			has("flat_nullable", "string", required, nullable),
			has("flat_optional", "string"),
			has("required_int", "int64", required),
			has("optional_int", "int64", optional),
			has("required_bool", "bool", required),
			has("optional_bool", "bool", optional),
			has("required_double", "double", required),
			has("optional_double", "double", optional),
			has("data_bytes", "bytes", optional),
			has("color", "enum Color"),
			has("required_color", "enum Color", required),
			has("nullable_color", "enum Color", required, nullable),
			has("at", "time"),
			has("required_at", "time", required, nullable),
			has("leaf", "Leaf"),
			has("required_leaf", "Leaf", required),
			has("strings", "repeated string"),
			has("required_strings", "repeated string", required),
			has("nullable_strings", "repeated string", required, nullable),
			has("ints", "repeated int64"),
			has("doubles", "repeated double"),
			has("bools", "repeated bool"),
			has("colors", "repeated enum Color"),
			has("times", "repeated time"),
			has("blobs", "repeated bytes"),
			has("leaves", "repeated Leaf"),
			has("choices", "repeated Choice"),
			has("string_map", "map string"),
			has("int_map", "map int64"),
			has("color_map", "map enum Color", required),
			has("leaf_map", "map Leaf"),
			has("list_map", "map StringList"),
			has("time_map", "map time"),
			has("anything_json", "string", text, optional),
			has("required_any_json", "string", text, required),
			has("any_list_json", "repeated string", text),
			has("any_map_json", "map string", text),
			has("tools", "StringList", nullable),
			has("server", "Server"),
			has("mixed", "Mixed"),
			has("child", "All"),
			has("meta", "string", optional, named("_meta")),
			has("tracker", "string", optional, named("origin-tracker \"é\"")),
			hasAt(70000, "far", "repeated string"),
		),
		object("Leaf", has("name", "string", required), has("size", "int64", optional)),
		object("Config",
			constant("kind", `"config"`), constant("version", "2"), constant("on", "true"),
			has("name", "string", optional), has("count", "int64", required)),
		// Nothing can catch what does not fit.
		build("Strict", jsonv1.Shape_SHAPE_OBJECT, has("name", "string", required), has("inner", "Strict"),
			has("color", "enum Color")),
		build("Event", jsonv1.Shape_SHAPE_ENVELOPE,
			func(m *message, r *jsonv1.MessageRules) {
				r.Discriminator, r.DataMember = "type", "data"
				m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("data")})
			},
			has("type", "string", required), has("id", "string", required), has("timestamp", "time", required),
			has("parent_id", "string", optional, required, nullable), has("agent_id", "string", optional),
			has("ephemeral", "bool", optional),
			has("delta", "DeltaData", tag("assistant.message_delta")),
			has("message", "MessageData", tag("assistant.message")),
			has("tool", "ToolData", tag("tool.execution_complete")),
			has("idle", "EmptyData", tag("session.idle,session.idle2")),
			unrecognizedCase, extra),
		object("DeltaData", has("message_id", "string", required), has("delta_content", "string", required),
			has("size", "int64", optional)),
		object("MessageData", has("message_id", "string", required), has("content", "string", required),
			has("tool_requests", "repeated ToolRequest"), has("turn_id", "string", optional)),
		object("ToolRequest", has("tool_call_id", "string", required), has("name", "string", required),
			has("arguments_json", "string", text, optional)),
		object("ToolData", has("tool_call_id", "string", required), has("success", "bool", required),
			has("result", "ToolResult"),
			has("tool_telemetry_json", "string", text, optional)),
		object("ToolResult", has("content", "string", required), has("detailed_content", "string", optional)),
		object("EmptyData"),
	}
}

func unions() []*message {
	return []*message{
		union("Choice", "kind",
			has("red", "RedCase", tag("red")), has("blue", "BlueCase", tag("blue,azure")),
			has("yes", "YesCase", tag("true")), has("one", "OneCase", tag("1"))),
		object("RedCase", constant("kind", `"red"`), has("depth", "int64", optional)),
		object("BlueCase", has("kind", "enum Color"), has("depth", "int64", optional)),
		object("YesCase", constant("kind", "true"), has("why", "string", optional)),
		object("OneCase", constant("kind", "1"), has("why", "string", optional)),
		union("Server", "",
			has("stdio", "StdioServer", inOneof), has("http", "HttpServer", inOneof),
			has("other", "OtherServer", inOneof)),
		object("StdioServer", has("command", "string", required), has("args", "repeated string"),
			has("type", "string", optional)),
		object("HttpServer", has("url", "string", required), has("headers", "map string"),
			has("type", "string", optional)),
		object("OtherServer", constant("type", `"other"`), has("args", "bool", optional)),
		union("Mixed", "",
			has("string_value", "string", inOneof), has("color", "enum Color", inOneof),
			has("double_value", "double", inOneof),
			has("int_value", "int64", inOneof), has("bool_value", "bool", inOneof), has("list", "StringList", inOneof),
			has("leaf", "Leaf", inOneof), has("nothing", "Nothing", inOneof)),
	}
}

func bare() []*message {
	return []*message{
		build("StringList", jsonv1.Shape_SHAPE_LIST, has("items", "repeated string", required)),
		build("Items", jsonv1.Shape_SHAPE_LIST, has("items", "repeated Leaf", required), unrecognized),
		build("Entries", jsonv1.Shape_SHAPE_MAP, has("entries", "map int64", required), unrecognized),
		build("Truth", jsonv1.Shape_SHAPE_VALUE, has("value", "bool", required), unrecognized),
		build("MaybeTruth", jsonv1.Shape_SHAPE_VALUE, has("value", "bool", optional, nullable), unrecognized),
		build("Nothing", jsonv1.Shape_SHAPE_NULL, unrecognized),
		build("AnyValue", jsonv1.Shape_SHAPE_VALUE, has("value_json", "string", optional, text), unrecognized),
		build("ListValue", jsonv1.Shape_SHAPE_VALUE, has("value", "repeated int64"), unrecognized),
	}
}
