package protorules

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	// All packages of the API, so that the registry has them.
	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// committed are the descriptors of the .proto files in the tree. A file whose package no test links fails.
func committed(t *testing.T) map[string]protoreflect.FileDescriptor {
	t.Helper()
	root := filepath.Join("..", "..", "..", "proto")
	out := map[string]protoreflect.FileDescriptor{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".proto") {
			return err
		}
		f, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			t.Errorf("%s: import the Go package of this file in this test, or generate it: %v", path, err)
			return nil
		}
		out[path] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("found only %d files", len(out))
	}
	return out
}

func TestCommittedOptions(t *testing.T) {
	t.Parallel()
	classes := map[string]string{}
	for path, f := range committed(t) {
		got, _ := proto.Clone(protodesc.ToFileDescriptorProto(f).GetOptions()).(*descriptorpb.FileOptions)
		if got.GetGoPackage() == "" {
			t.Errorf("%s has no go_package", path)
		}
		got.GoPackage = nil
		if want := Options(path); !proto.Equal(got, want) {
			t.Errorf("%s has the options\n%v\nwant these lines after go_package:\n%s", path, got,
				strings.Join(Lines(path), "\n"))
		}
		class := string(f.Package()) + "." + got.GetJavaOuterClassname()
		if other := classes[class]; other != "" {
			t.Errorf("%s and %s have the same Java class %s", path, other, class)
		}
		classes[class] = path
	}
	for path, f := range committed(t) {
		for _, name := range types(f) {
			if file := classes[string(f.Package())+"."+name]; file != "" {
				t.Errorf("%s: %s has the name of the Java class of %s", path, name, file)
			}
		}
	}
}

// types are the names of everything that Java makes a top-level class of.
func types(f protoreflect.FileDescriptor) []string {
	var names []string
	for i := range f.Messages().Len() {
		names = append(names, string(f.Messages().Get(i).Name()), string(f.Messages().Get(i).Name())+"OrBuilder")
	}
	for i := range f.Enums().Len() {
		names = append(names, string(f.Enums().Get(i).Name()))
	}
	for i := range f.Services().Len() {
		names = append(names, string(f.Services().Get(i).Name()), string(f.Services().Get(i).Name())+"Grpc")
	}
	return names
}

func TestOptions(t *testing.T) {
	t.Parallel()
	got := Lines("copilot/cli/v1/session_github_auth.proto")
	want := []string{
		`option java_package = "io.github.copilotgrpc.cli.v1";`,
		`option java_multiple_files = true;`,
		`option java_outer_classname = "SessionGithubAuthProto";`,
		`option csharp_namespace = "CopilotGrpc.Cli.V1";`,
		`option ruby_package = "CopilotGrpc::Cli::V1";`,
		`option objc_class_prefix = "CGCL";`,
		`option swift_prefix = "CopilotCliV1";`,
		`option php_namespace = "CopilotGrpc\\Cli\\V1";`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
