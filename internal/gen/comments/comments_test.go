package comments

import (
	"compress/gzip"
	"encoding/base64"
	"io"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// sample has a commented service with a method, messages, a field, and an enum with a value.
func sample() *descriptorpb.FileDescriptorProto {
	info := &descriptorpb.SourceCodeInfo{}
	for _, c := range []struct {
		text string
		path []int32
	}{
		{" A service.\n", []int32{6, 0}}, {" A method.\n\n  Indented.\n", []int32{6, 0, 2, 0}}, {" A message.\n", []int32{4, 0}},
		{" A field.\n", []int32{4, 0, 2, 0}}, {" Inside.\n", []int32{4, 0, 3, 0}}, {" An enum.\n", []int32{5, 0}},
		{" A value.\n", []int32{5, 0, 2, 0}},
	} {
		info.Location = append(info.Location, &descriptorpb.SourceCodeInfo_Location{Path: c.path, Span: []int32{0, 0, 0},
			LeadingComments: proto.String(c.text)})
	}
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String("a.proto"), Package: proto.String("p"), Syntax: proto.String("proto3"), SourceCodeInfo: info,
		Options: &descriptorpb.FileOptions{GoPackage: proto.String("example.com/p")},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"),
			Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("f"), Number: proto.Int32(1),
				Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
				Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}},
			NestedType: []*descriptorpb.DescriptorProto{{Name: proto.String("N")}}}, {Name: proto.String("Bare")}},
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: proto.String("E"),
			Value: []*descriptorpb.EnumValueDescriptorProto{{Name: proto.String("V"), Number: proto.Int32(0)}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"),
			Method: []*descriptorpb.MethodDescriptorProto{{Name: proto.String("Do"), InputType: proto.String(".p.M"),
				OutputType: proto.String(".p.M")}}}},
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	p, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{FileToGenerate: []string{"a.proto"},
		ProtoFile: []*descriptorpb.FileDescriptorProto{sample()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := Generate(p); err != nil {
		t.Fatal(err)
	}
	file := p.Response().GetFile()[0].GetContent()
	constant := regexp.MustCompile("(?s)const Compressed = `(.*)`\n$").FindStringSubmatch(file)
	if constant == nil {
		t.Fatalf("no constant in\n%s", file)
	}
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(constant[1])))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zipped)
	want := "p.E\nAn enum.\x00p.M\nA message.\x00p.M.N\nInside.\x00p.M.f\nA field.\x00p.S\nA service.\x00" +
		"p.S.Do\nA method.\n\n Indented.\x00p.V\nA value.\x00"
	if err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}
