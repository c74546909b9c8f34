package protorules

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

func TestCommittedNames(t *testing.T) {
	t.Parallel()
	if err := Names(committed(t)); err != nil {
		t.Errorf("rename these (internal/gen/schemagen/naming.go for generated files), or say in exceptions.txt why "+
			"they stay:\n%v", err)
	}
}

// sample is a file with one name of every kind that languages use.
func sample(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	text := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
	one := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
	many := descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("copilot/x/v1/a.proto"), Package: new("copilot.x.v1"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Runtime"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: new("type"), Number: new(int32(1)), Type: text, Label: one},
			{Name: new("files"), Number: new(int32(2)), Type: text, Label: many},
			{Name: new("files_count"), Number: new(int32(3)), Type: text, Label: one},
			{Name: new("name"), Number: new(int32(4)), Type: text, Label: one},
			{Name: new("name_bytes"), Number: new(int32(5)), Type: text, Label: one},
			{Name: new("name_count"), Number: new(int32(6)), Type: text, Label: one},
		}}},
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: new("Option"),
			Value: []*descriptorpb.EnumValueDescriptorProto{{Name: new("OPTION_UNSPECIFIED"), Number: new(int32(0))}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: new("Connect"), InputType: new(".copilot.x.v1.Runtime"), OutputType: new(".copilot.x.v1.Runtime")},
			{Name: new("Open"), InputType: new(".copilot.x.v1.Runtime"), OutputType: new(".copilot.x.v1.Runtime")}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestClashes(t *testing.T) {
	t.Parallel()
	w, err := parseWords("rpc tonic: Connect\nfield Rust: type ref\nfield TypeScript: type\n# no row: x\n\n" +
		"type java.lang: Runtime\ntype Rust: Option\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Clash{
		{kindRPC, "x.v1.S.Connect", "a word of tonic"},
		{kindType, "x.v1.Option", "a word of Rust"},
		{kindType, "x.v1.Runtime", "a word of java.lang"},
		{kindField, "x.v1.Runtime.type", "a word of Rust, TypeScript"},
		{kindField, "x.v1.Runtime.files_count", "Java has an accessor of this name for files"},
		{kindField, "x.v1.Runtime.name_bytes", "Java has an accessor of this name for name"},
	}
	got := w.clashes(sample(t))
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	exceptions, err := parseExceptions("field *.files_count # r\ntype x.v1.R*time # r\nrpc *.Open # excuses nothing\n")
	if err != nil {
		t.Fatal(err)
	}
	rest := excused(slices.Clone(want), exceptions)
	if left := []Clash{want[0], want[1], want[3], want[5]}; !slices.Equal(rest, left) {
		t.Errorf("with exceptions: got\n%v\nwant\n%v", rest, left)
	}
	if !exceptions[0].used || !exceptions[1].used || exceptions[2].used {
		t.Errorf("used exceptions: got %v", exceptions)
	}
}

// TestNamesReportsBoth: a name that nothing excuses is an error, and so is every committed exception, since this file
// has none of the names that they cover.
func TestNamesReportsBoth(t *testing.T) {
	t.Parallel()
	err := Names(map[string]protoreflect.FileDescriptor{"copilot/x/v1/a.proto": sample(t)})
	for _, want := range []string{
		"copilot/x/v1/a.proto: field x.v1.Runtime.type: a word of Rust", "type bridge.v1.Event excuses nothing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestInvalidRows(t *testing.T) {
	t.Parallel()
	for _, row := range []string{"field type", "verb Rust: type", "field: type"} {
		if _, err := parseWords(row); err == nil {
			t.Errorf("words: %q is accepted", row)
		}
	}
	for _, row := range []string{"field a.b", "field # reason", "field a.b # ", "field a b # reason"} {
		if _, err := parseExceptions(row); err == nil {
			t.Errorf("exceptions: %q is accepted", row)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.bc", false}, {"*.b", "x.a.b", true}, {"a*", "b", false},
		{"a*c*", "abcd", true},
		{"a*c", "abcd", false}, {"*", "", true}, {"a.*", "a.b.c", true}, {"a.*", "b.a.", false},
		{"*.handlePending*", "x.y.handlePendingZ", true}, {"*.handlePending*", "x.handle", false},
		{"*.token", "X.token", true}, {"*.token", "X.tokens", false},
	} {
		if got := Match(tc.pattern, tc.name); got != tc.want {
			t.Errorf("Match(%q, %q) = %v", tc.pattern, tc.name, got)
		}
	}
}
