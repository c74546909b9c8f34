// Package climethods lists the methods of copilot.cli.v1 for tests.
package climethods

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// All returns the methods of copilot.cli.v1 that callers call, by their JSON-RPC names.
func All() map[string]protoreflect.MethodDescriptor {
	methods := map[string]protoreflect.MethodDescriptor{}
	pkg := cliv1.File_copilot_cli_v1_session_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				if rules := proto.GetExtension(m.Options(),
					jsonv1.E_Method).(*jsonv1.MethodRules); !rules.GetCallback() {
					methods[rules.GetMethod()] = m
				}
			}
		}
		return true
	})
	return methods
}
