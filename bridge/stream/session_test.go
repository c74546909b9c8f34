package stream

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The hand-written field numbers of frames equal the descriptor's.
func TestFrameFieldNumbers(t *testing.T) {
	t.Parallel()
	fields := (*bridgev1.SubscribeResponse)(nil).ProtoReflect().Descriptor().Fields()
	for name, want := range map[protoreflect.Name]struct {
		number protowire.Number
		kind   protoreflect.Kind
	}{
		"session_id":   {fieldFrameSession, protoreflect.StringKind},
		"events":       {fieldFrameEvents, protoreflect.MessageKind},
		"resume_after": {fieldFrameResume, protoreflect.MessageKind},
	} {
		if fd := fields.ByName(name); fd == nil || fd.Number() != want.number || fd.Kind() != want.kind || fd.IsList() {
			t.Errorf("%s is %v, not number %d of kind %v", name, fd, want.number, want.kind)
		}
	}
}
