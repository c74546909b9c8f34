package corpus

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// method is how a JSON-RPC method is typed.
type method struct {
	params, result protoreflect.MessageDescriptor
	optional       bool // params may be absent or null
}

// methods returns all methods that copilot.cli.v1 describes, the CLI's and its clients', by JSON-RPC name: no name is
// of both kinds.
func methods() map[string]method {
	out := make(map[string]method)
	protoregistry.GlobalFiles.RangeFilesByPackage(eventType.ParentFile().Package(),
		func(fd protoreflect.FileDescriptor) bool {
			for i := range fd.Services().Len() {
				rpcs := fd.Services().Get(i).Methods()
				for j := range rpcs.Len() {
					rules, _ := proto.GetExtension(rpcs.Get(j).Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
					if rules.GetMethod() == "" {
						continue
					}
					in := rpcs.Get(j).Input()
					params, _ := proto.GetExtension(in.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
					out[rules.GetMethod()] = method{params: in, result: rpcs.Get(j).Output(),
						optional: params.GetParamsOptional()}
				}
			}
			return true
		})
	return out
}

var eventType = (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor()
