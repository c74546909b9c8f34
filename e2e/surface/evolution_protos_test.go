package surface

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/gen/schemagen"
)

// newOldProtos are the protos as they would be if the oldest supported CLI were the only one: the CLI's generated from
// its schemas alone, with the committed numbers, and the bridge's without the parts that need anything newer.
func newOldProtos(t *testing.T) *dynamicpb.Types {
	t.Helper()
	schemas := os.Getenv("SCHEMA_DIR")
	if schemas == "" {
		t.Skip("SCHEMA_DIR is not set: make schema-history sets it")
	}
	pins, err := schemagen.Pinned()
	if err != nil {
		t.Fatal(err)
	}
	oldest := pins[0].Version
	model, err := schemagen.Load(filepath.Join(schemas, oldest), oldest, pins)
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := schemagen.ReadLedger("../../internal/gen/schemagen/ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	out, err := schemagen.Generate(schemagen.Config{Schemas: []*schemagen.Model{model}, Ledger: ledger})
	if err != nil {
		t.Fatal(err)
	}
	set := compiled(t, out)
	addBridge(set)
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewTypes(files)
}

// compiled is what buf makes of generated files.
func compiled(t *testing.T, out *schemagen.Output) *descriptorpb.FileDescriptorSet {
	t.Helper()
	dir := t.TempDir()
	if err := out.Write(filepath.Join(dir, "proto")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"buf.yaml", "proto/copilot/json/v1/options.proto"} {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mod, err := filepath.Abs("../../internal/tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	buf, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+mod, "-n", "buf").Output()
	if err != nil {
		t.Fatalf("find buf: %v", err)
	}
	image := filepath.Join(dir, "image.binpb")
	build := exec.CommandContext(t.Context(), strings.TrimSpace(string(buf)), "build", "--as-file-descriptor-set", "-o",
		image)
	build.Dir = dir
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("buf build: %v\n%s", err, said)
	}
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(data, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// addBridge adds the bridge's files without the fields whose types are not in the set. Their imports may have moved to
// another file since: they import everything.
func addBridge(set *descriptorpb.FileDescriptorSet) {
	have := map[string]bool{}
	var all []string
	for _, f := range set.GetFile() {
		have[f.GetName()] = true
		all = append(all, f.GetName())
		for _, m := range f.GetMessageType() {
			have["."+f.GetPackage()+"."+m.GetName()] = true
		}
		for _, e := range f.GetEnumType() {
			have["."+f.GetPackage()+"."+e.GetName()] = true
		}
	}
	for _, f := range bridgeFiles() {
		if have[f.GetName()] {
			continue
		}
		f.Dependency = slices.DeleteFunc(f.Dependency, func(d string) bool {
			return strings.HasPrefix(d, "copilot/cli/") || slices.Contains(all, d)
		})
		f.Dependency = append(f.Dependency, all...)
		for _, m := range f.GetMessageType() {
			m.Field = slices.DeleteFunc(m.Field, func(x *descriptorpb.FieldDescriptorProto) bool {
				return strings.HasPrefix(x.GetTypeName(), ".copilot.cli.") && !have[x.GetTypeName()]
			})
		}
		set.File = append(set.File, f)
	}
}

// bridgeFiles are the files of copilot.bridge.v1 and what they need of others', each after
// what it needs.
func bridgeFiles() []*descriptorpb.FileDescriptorProto {
	var out []*descriptorpb.FileDescriptorProto
	known := map[string]bool{}
	var add func(path string)
	add = func(path string) {
		f, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil || known[path] || strings.HasPrefix(path, "copilot/cli/") ||
			strings.HasPrefix(path, "copilot/json/") {
			return
		}
		known[path] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).Path())
		}
		out = append(out, protodesc.ToFileDescriptorProto(f))
	}
	for _, s := range []string{"session_service", "event_service", "callback_service", "runtime_service"} {
		add(strings.TrimSuffix(bridgev1.File_copilot_bridge_v1_session_proto.Path(), "session.proto") + s + ".proto")
	}
	return out
}
