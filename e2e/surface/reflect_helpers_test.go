package surface

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// reflection is what a server says of itself.
type reflection struct {
	files *protoregistry.Files
	// served are the services that the server lists.
	served map[string]bool
	// methods are the rpcs of copilot.cli.v1 by JSON-RPC method.
	methods map[string]protoreflect.MethodDescriptor
}

const cliPackage = "copilot.cli.v1"

// message is a message of copilot.cli.v1.
func (a *reflection) message(name string) protoreflect.MessageDescriptor {
	d, _ := a.files.FindDescriptorByName(protoreflect.FullName(cliPackage + "." + name))
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
}

// reflected asks the live server for everything of copilot.cli.v1. It asks for files by name, since the messages of
// callbacks are in files that no served service needs.
func reflected(t *testing.T, r *harness.Fixture) *reflection {
	t.Helper()
	conn, err := grpc.NewClient(r.Host.Target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(r.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(q *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		a, err := stream.Recv()
		if err == nil && a.GetErrorResponse() != nil {
			err = errors.New(a.GetErrorResponse().GetErrorMessage())
		}
		if err != nil {
			t.Fatalf("reflection: %v: %v", q, err)
		}
		return a
	}
	api := &reflection{served: map[string]bool{}, methods: map[string]protoreflect.MethodDescriptor{}}
	set := &descriptorpb.FileDescriptorSet{}
	have := map[string]bool{}
	take := func(a *reflectionv1.ServerReflectionResponse) {
		for _, raw := range a.GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, f); err != nil {
				t.Fatal(err)
			}
			if !have[f.GetName()] {
				have[f.GetName()] = true
				set.File = append(set.File, f)
			}
		}
	}
	for _, s := range ask(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		api.served[s.GetName()] = true
		take(ask(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.GetName()},
		}))
	}
	for _, name := range cliFiles() {
		take(ask(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name},
		}))
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("end of reflection: %v", err)
	}
	api.build(t, set)
	return api
}

// cliFiles are the names of the files of copilot.cli.v1; the server has their contents.
func cliFiles() []string {
	var out []string
	protoregistry.GlobalFiles.RangeFilesByPackage(cliv1.File_copilot_cli_v1_session_proto.Package(),
		func(f protoreflect.FileDescriptor) bool {
			out = append(out, f.Path())
			return true
		})
	return out
}

func (a *reflection) build(t *testing.T, set *descriptorpb.FileDescriptorSet) {
	t.Helper()
	var err error
	if a.files, err = protodesc.NewFiles(set); err != nil {
		t.Fatal(err)
	}
	a.files.RangeFilesByPackage(cliPackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			rpcs := f.Services().Get(i).Methods()
			for j := range rpcs.Len() {
				rules := methodRules(rpcs.Get(j))
				if old := a.methods[rules.GetMethod()]; old != nil || rules.GetMethod() == "" {
					t.Errorf("%s stands for %q, as %v does", rpcs.Get(j).FullName(), rules.GetMethod(), old)
				}
				a.methods[rules.GetMethod()] = rpcs.Get(j)
			}
		}
		return true
	})
}

func methodRules(m protoreflect.MethodDescriptor) *jsonv1.MethodRules {
	rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	return rules
}

func fieldRules(f protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	rules, _ := proto.GetExtension(f.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return rules
}

func messageRules(m protoreflect.MessageDescriptor) *jsonv1.MessageRules {
	rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	return rules
}

// memberField is the field of a JSON member.
func memberField(m protoreflect.MessageDescriptor, member string) protoreflect.FieldDescriptor {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			continue
		}
		name := fieldRules(f).GetMember()
		if name == "" {
			name = f.JSONName()
		}
		if name == member {
			return f
		}
	}
	return nil
}

// enumValues are the JSON strings that an enum stands for.
func enumValues(e protoreflect.EnumDescriptor) []string {
	var out []string
	for i := range e.Values().Len() {
		rules, _ := proto.GetExtension(e.Values().Get(i).Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules)
		if i > 0 || rules != nil {
			out = append(out, rules.GetValue())
		}
	}
	return out
}
