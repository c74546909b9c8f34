package apidoc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// comments are where a descriptor has its comments, by path.
type comments map[string][]int32

func (c comments) info() *descriptorpb.SourceCodeInfo {
	info := &descriptorpb.SourceCodeInfo{}
	for text, path := range c {
		info.Location = append(info.Location, &descriptorpb.SourceCodeInfo_Location{
			Path: path, Span: []int32{0, 0, 0}, LeadingComments: proto.String(text),
		})
	}
	return info
}

// sample is a service of the CLI with a secret, a oneof, a map and a type elsewhere.
func sample() *descriptorpb.FileDescriptorProto {
	str, msg := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	rule := &descriptorpb.MethodOptions{}
	proto.SetExtension(rule, jsonv1.E_Method,
		&jsonv1.MethodRules{Method: "session.note.take", Since: "1.0.102", Internal: true})
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String("copilot/cli/v1/session_note.proto"), Package: proto.String("copilot.cli.v1"),
		Syntax:     proto.String("proto3"),
		Dependency: []string{"copilot/json/v1/options.proto", "copilot/cli/v1/kind.proto"},
		Options:    &descriptorpb.FileOptions{GoPackage: proto.String("example.com/cli/v1;cliv1")},
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("Note"),
			Field: []*descriptorpb.FieldDescriptorProto{
				{Name: proto.String("text"), Number: proto.Int32(1), Type: &str, Label: &one,
					OneofIndex: proto.Int32(0)},
				{Name: proto.String("parts"), Number: proto.Int32(2), Type: &msg, Label: &many,
					TypeName: proto.String(".copilot.cli.v1.Note")},
				{Name: proto.String("token"), Number: proto.Int32(3), Type: &str, Label: &one,
					Options: &descriptorpb.FieldOptions{DebugRedact: proto.Bool(true), Deprecated: proto.Bool(true)}},
				{Name: proto.String("kind"), Number: proto.Int32(4),
					Type: descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), Label: &one,
					TypeName: proto.String(".copilot.cli.v1.Kind")},
				{Name: proto.String("rules"), Number: proto.Int32(5), Type: &msg, Label: &one,
					TypeName: proto.String(".copilot.json.v1.MethodRules")},
			},
			OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("body")}},
		}},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("InternalSessionNoteService"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Take"), InputType: proto.String(".copilot.cli.v1.Note"),
				OutputType:      proto.String(".copilot.cli.v1.Note"),
				ServerStreaming: proto.Bool(true), Options: rule,
			}},
		}},
		SourceCodeInfo: comments{
			" A note | with <tags>.\n\n See `a|b<c>`.\n": {4, 0},
			" Its text | such as it is.\n":               {4, 0, 2, 0},
			" Takes notes. Many of them.\n":              {6, 0},
			" Takes one.\n":                              {6, 0, 2, 0},
		}.info(),
	}
}

func kind() *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String("copilot/cli/v1/kind.proto"), Package: proto.String("copilot.cli.v1"),
		Syntax:  proto.String("proto3"),
		Options: &descriptorpb.FileOptions{GoPackage: proto.String("example.com/cli/v1;cliv1")},
		EnumType: []*descriptorpb.EnumDescriptorProto{{
			Name: proto.String("Kind"),
			Value: []*descriptorpb.EnumValueDescriptorProto{{Name: proto.String("KIND_UNSPECIFIED"),
				Number: proto.Int32(0)}},
		}},
		SourceCodeInfo: comments{" What it is.\n": {5, 0}, " Unknown.\n": {5, 0, 2, 0}}.info(),
	}
}

func generate(t *testing.T, o Options) map[string]string {
	t.Helper()
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{"copilot/cli/v1/session_note.proto", "copilot/cli/v1/kind.proto"},
		ProtoFile: []*descriptorpb.FileDescriptorProto{
			protodesc.ToFileDescriptorProto(descriptorpb.File_google_protobuf_descriptor_proto),
			protodesc.ToFileDescriptorProto(jsonv1.File_copilot_json_v1_options_proto), kind(), sample(),
		},
	}
	p, err := protogen.Options{}.New(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Generate(p); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range p.Response().GetFile() {
		out[f.GetName()] = f.GetContent()
	}
	return out
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	files := generate(t, Options{})
	if len(files) != 4 {
		t.Errorf("%d files", len(files))
	}
	for name, want := range map[string]string{
		"cli/session_note.md": `# copilot/cli/v1/session_note.proto

Package ` + "`copilot.cli.v1`" + `. [All services](../README.md), [all methods of the CLI](../methods.md).

## InternalSessionNoteService

Takes notes. Many of them.

### InternalSessionNoteService.Take

Takes [Note](#note), gives a stream of [Note](#note).

Takes one.

## Note

A note | with &lt;tags&gt;.

See ` + "`a|b<c>`" + `.

| Field | Type | Number | Meaning |
|---|---|--:|---|
| ` + "`text`" + ` | string | 1 | One of ` + "`body`" + `. Its text \| such as it is. |
| ` + "`parts`" + ` | repeated [Note](#note) | 2 |  |
| ` + "`token`" + ` | string | 3 | **Deprecated.**  Secret: left out of logs. |
| ` + "`kind`" + ` | [Kind](kind.md#kind) | 4 |  |
| ` + "`rules`" + ` | copilot.json.v1.MethodRules | 5 |  |
`,
		"cli/kind.md": "| `KIND_UNSPECIFIED` | 0 | Unknown. |\n",
		"README.md": "| [InternalSessionNoteService](cli/session_note.md#internalsessionnoteservice) | 1 | Takes " +
			"notes. |\n",
		"methods.md": "| `session.note.take` | " +
			"[InternalSessionNoteService.Take](cli/session_note.md#internalsessionnoteservicetake) | 1.0.102 |  | " +
			"internal |\n",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: got\n%s\nwant in it\n%s", name, files[name], want)
		}
	}
	if internal := strings.Index(files["README.md"], "The CLI: internal"); internal > strings.Index(files["README.md"],
		"InternalSessionNoteService") {
		t.Error("the internal service is not listed as internal")
	}
}

// With a package, only its pages are written, and other types link to their .proto files.
func TestGeneratePackage(t *testing.T) {
	t.Parallel()
	files := generate(t, Options{Package: "copilot.cli.v1", Source: "../../proto"})
	page := files["cli/session_note.md"]
	for _, want := range []string{
		"Package `copilot.cli.v1`. [All services](../README.md).\n",
		"| `rules` | [copilot.json.v1.MethodRules](../../../proto/copilot/json/v1/options.proto) | 5 |  |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("got\n%s\nwant in it\n%s", page, want)
		}
	}
	if _, has := files["methods.md"]; has || len(files) != 3 {
		t.Errorf("%d files, the table of methods: %t", len(files), has)
	}
	if files := generate(t, Options{Package: "copilot.bridge.v1"}); len(files) != 1 {
		t.Errorf("another package has %d files", len(files))
	}
}

func TestRelative(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]string{
		{"README.md", "cli/a.md", "cli/a.md"},
		{"cli/a.md", "cli/b.md", "b.md"},
		{"bridge/a.md", "cli/b.md", "../cli/b.md"},
		{"bridge/a.md", "../../proto/c.proto", "../../../proto/c.proto"},
	} {
		if got := relative(tc[0], tc[1]); got != tc[2] {
			t.Errorf("from %s to %s: got %q", tc[0], tc[1], got)
		}
	}
}
