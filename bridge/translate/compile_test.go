package translate_test

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// descriptor makes a message of fields given as "name type"; a type that starts
// with "case " puts the field into a oneof.
func descriptor(rules *jsonv1.MessageRules, fields ...string) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String("Bad"), Options: &descriptorpb.MessageOptions{}}
	proto.SetExtension(m.Options, jsonv1.E_Message, rules)
	for i, f := range fields {
		name, kind, _ := strings.Cut(f, " ")
		fd := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(int32(i + 1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: &descriptorpb.FieldOptions{},
		}
		switch name {
		case "json_extra":
			fd.Number = proto.Int32(1000)
		case "unrecognized":
			fd.Number = proto.Int32(1001)
		}
		if rest, ok := strings.CutPrefix(kind, "case "); ok {
			kind = rest
			fd.OneofIndex = proto.Int32(0)
			m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("variant")}}
			proto.SetExtension(fd.Options, jsonv1.E_Field, &jsonv1.FieldRules{Tag: "same"})
		}
		if rest, ok := strings.CutPrefix(kind, "text "); ok {
			kind = rest
			proto.SetExtension(fd.Options, jsonv1.E_Field, &jsonv1.FieldRules{Raw: true})
		}
		if rest, ok := strings.CutPrefix(kind, "as "); ok {
			kind = "string"
			proto.SetExtension(fd.Options, jsonv1.E_Field, &jsonv1.FieldRules{Member: rest})
		}
		fd.Type = descriptorpb.FieldDescriptorProto_Type(descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+
			strings.ToUpper(kind)]).Enum()
		m.Field = append(m.Field, fd)
	}
	return m
}

func TestTableRefuses(t *testing.T) {
	t.Parallel()
	shape := func(s jsonv1.Shape) *jsonv1.MessageRules { return &jsonv1.MessageRules{Shape: s} }
	many := make([]string, 300)
	for i := range many {
		many[i] = "f" + strings.Repeat("x", i) + " string"
	}
	tests := []struct {
		name    string
		message *descriptorpb.DescriptorProto
		want    string
	}{
		{"kind without JSON form", descriptor(shape(0), "a int32"), "has no JSON form"},
		{"JSON text that is no string", descriptor(shape(0), "a text bytes"), "JSON text must be a string"},
		{"catch-all that is no string", descriptor(shape(0), "json_extra bytes"), "catch-all"},
		{"oneof in an object", descriptor(shape(jsonv1.Shape_SHAPE_OBJECT), "a case string"), "do not make"},
		{"field in a union", descriptor(shape(jsonv1.Shape_SHAPE_UNION), "a string", "b case string"), "do not make"},
		{"tag used twice", descriptor(shape(jsonv1.Shape_SHAPE_UNION), "a case string", "b case string"), "used twice"},
		{"list without list", descriptor(shape(jsonv1.Shape_SHAPE_LIST), "a string"), "repeated"},
		{"map without map", descriptor(shape(jsonv1.Shape_SHAPE_MAP), "a string"), "map field"},
		{"two values", descriptor(shape(jsonv1.Shape_SHAPE_VALUE), "a string", "b string"), "do not make"},
		{"null with a field", descriptor(shape(jsonv1.Shape_SHAPE_NULL), "a string"), "do not make"},
		{"envelope without a discriminator", descriptor(shape(jsonv1.Shape_SHAPE_ENVELOPE), "a string"),
			"discriminator"},
		{"envelope without a type",
			descriptor(&jsonv1.MessageRules{Shape: jsonv1.Shape_SHAPE_ENVELOPE, Discriminator: "type",
				DataMember: "data"}, "a string", "unrecognized string"), "no field for the type"},
		{"envelope without unrecognized",
			descriptor(&jsonv1.MessageRules{Shape: jsonv1.Shape_SHAPE_ENVELOPE, Discriminator: "a", DataMember: "data"},
				"a string"), "unrecognized"},
		{"envelope whose type is no string",
			descriptor(&jsonv1.MessageRules{Shape: jsonv1.Shape_SHAPE_ENVELOPE, Discriminator: "a", DataMember: "data"},
				"a bool", "unrecognized string"), "one string"},
		{"member used twice", descriptor(shape(0), "a as x", "b as x"), "used twice"},
		{"reserved member", descriptor(shape(0), "a as $value"), "reserved"},
		{"malformed const",
			descriptor(&jsonv1.MessageRules{Consts: []*jsonv1.ConstMember{{Name: "k", ValueJson: "{"}}}, "a string"),
			"malformed"},
		{"too many members", descriptor(shape(0), many...), "at most"},
		{"unknown shape", descriptor(shape(99), "a string"), "unknown shape"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fd, err := testproto.Build("bad.proto", tt.message)
			if err != nil {
				t.Fatal(err)
			}
			set := translate.NewSet()
			if _, err := set.Table(fd.Messages().Get(0)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTableIsCompiledOnce(t *testing.T) {
	t.Parallel()
	set := translate.NewSet()
	tables := make([]*translate.Table, 8)
	var wg sync.WaitGroup
	for i := range tables {
		wg.Go(func() {
			var err error
			if tables[i], err = set.Table(testproto.Message("All")); err != nil {
				t.Error(err)
			}
			if _, err = set.Table(testproto.Message("Event")); err != nil {
				t.Error(err)
			}
			if _, err = tables[i].AppendWire(nil, []byte(`{"child":{}}`), translate.Tidy); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, table := range tables {
		if table != tables[0] {
			t.Error("a message has two tables")
		}
	}
}

// TestErrorText keeps values, which may be secret, out of error texts.
func TestErrorText(t *testing.T) {
	t.Parallel()
	md := testproto.Message("All")
	_, err := table(t, md).AppendWire(nil, []byte(`{"leaf":{"name":"hunter2`), translate.Tidy)
	want := `copilot.test.v1.All: malformed JSON at "leaf.name" (offset 24)`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	in := message{{"color", uint64(9)}}.wire(t, md)
	_, err = table(t, md).AppendJSON(nil, in, translate.JSONOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), `copilot.test.v1.All: invalid enum value 9 at "color" (offset `) {
		t.Errorf("error = %v", err)
	}
	if translate.Kind(200).String() != "kind 200" || translate.KindEnum.String() != "invalid enum value" {
		t.Errorf("kinds read %q, %q", translate.Kind(200), translate.KindEnum)
	}
}
