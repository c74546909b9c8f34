package shim

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// method is a method of the CLI that has an rpc.
type method struct {
	// rpc is the rpc's full name, as gRPC writes it.
	rpc     string
	in, out *translate.Table
}

// tables are the descriptors of the API, compiled.
type tables struct {
	set     *translate.Set
	methods map[string]*method
	event   *translate.Table
	// answers has the case of Answer that answers a callback, by the callback's JSON-RPC method.
	answers map[string]protoreflect.FieldDescriptor
	// hooks are the outputs of hooks by their type.
	hooks map[string]protoreflect.FieldDescriptor
}

// newTables compiles what is needed from the start.
func newTables() (*tables, error) {
	t := &tables{
		set: translate.NewSet(), methods: map[string]*method{},
		answers: cases((*bridgev1.Answer)(nil), "answer"),
		hooks:   cases((*cliv1.HookOutput)(nil), "variant"),
	}
	var err error
	if t.event, err = t.set.Table((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor()); err != nil {
		return nil, err
	}
	protoregistry.GlobalFiles.RangeFilesByPackage(cliv1.File_copilot_cli_v1_session_proto.Package(),
		func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				if err = t.addService(f.Services().Get(i)); err != nil {
					return false
				}
			}
			return true
		})
	return t, err
}

// addService adds the methods of a service that programs call.
func (t *tables) addService(service protoreflect.ServiceDescriptor) error {
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
		if rules.GetCallback() || rules.GetMethod() == "" {
			continue
		}
		in, err := t.set.Table(m.Input())
		if err != nil {
			return fmt.Errorf("compiling %s: %w", m.FullName(), err)
		}
		out, err := t.set.Table(m.Output())
		if err != nil {
			return fmt.Errorf("compiling %s: %w", m.FullName(), err)
		}
		t.methods[rules.GetMethod()] = &method{
			rpc: fmt.Sprintf("/%s/%s", service.FullName(), m.Name()), in: in, out: out}
	}
	return nil
}

// cases are the cases of a oneof by their tag.
func cases(m proto.Message, oneof protoreflect.Name) map[string]protoreflect.FieldDescriptor {
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName(oneof).Fields()
	out := map[string]protoreflect.FieldDescriptor{}
	for i := range fields.Len() {
		rules, _ := proto.GetExtension(fields.Get(i).Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		if rules.GetTag() != "" {
			out[rules.GetTag()] = fields.Get(i)
		}
	}
	return out
}

// read makes a message of JSON; nothing is lost.
func (t *tables) read(text []byte, m proto.Message) error {
	table, err := t.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	bytes, err := table.AppendWire(nil, text, translate.Exact)
	if err != nil {
		return err
	}
	return proto.Unmarshal(bytes, m)
}

// write makes JSON of a message.
func (t *tables) write(m proto.Message) ([]byte, error) {
	table, err := t.set.Table(m.ProtoReflect().Descriptor())
	if err != nil {
		return nil, err
	}
	bytes, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return table.AppendJSON(nil, bytes, translate.JSONOptions{})
}
