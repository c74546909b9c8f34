package translate_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestNames: no field's json_name is the name of another of its message. Python's and C++'s
// implementations of protobuf refuse such a file as a whole; Go's does not.
func TestNames(t *testing.T) {
	t.Parallel()
	n := 0
	var check func(protoreflect.MessageDescriptors)
	check = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				n++
				f := fields.Get(j)
				if other := fields.ByName(protoreflect.Name(f.JSONName())); other != nil && other != f {
					t.Errorf("the json_name of %s is the name of %s", f.FullName(), other.FullName())
				}
			}
			check(messages.Get(i).Messages())
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(file.Package()), "copilot.") {
			check(file.Messages())
		}
		return true
	})
	if n < 5000 {
		t.Errorf("only %d fields were looked at", n)
	}
}
