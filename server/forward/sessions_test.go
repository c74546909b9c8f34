package forward_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// TestEverySessionIsFound sets each field of a request that names a session, and expects the session to be found.
func TestEverySessionIsFound(t *testing.T) {
	t.Parallel()
	found := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				kind, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(j).Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range paths(methods.Get(j).Input(), 3) {
					found++
					m := kind.New()
					set(m, path, "this one")
					if got := forward.SessionsOf(m.Interface()); !slices.Equal(got, []string{"this one"}) {
						t.Errorf("%s with %v: sessions %q", methods.Get(j).FullName(), path, got)
					}
					if got := forward.SessionsOf(proto.Message(kind.New().Interface())); len(got) > 0 {
						t.Errorf("%s, empty: sessions %q", methods.Get(j).FullName(), got)
					}
				}
			}
		}
		return true
	})
	if found < 30 {
		t.Errorf("%d fields name sessions", found)
	}
}

// paths returns the fields that name sessions, down to a depth.
func paths(d protoreflect.MessageDescriptor, depth int) (out [][]protoreflect.FieldDescriptor) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.Kind() == protoreflect.StringKind && strings.HasSuffix(string(f.Name()), "session_id"):
			out = append(out, []protoreflect.FieldDescriptor{f})
		case f.Message() != nil && !f.IsMap() && depth > 0 &&
			strings.HasPrefix(string(f.Message().FullName()), "copilot.bridge.v1."):
			for _, rest := range paths(f.Message(), depth-1) {
				out = append(out, append([]protoreflect.FieldDescriptor{f}, rest...))
			}
		}
	}
	return out
}

// set sets the text at a path.
func set(m protoreflect.Message, path []protoreflect.FieldDescriptor, text string) {
	f := path[0]
	switch {
	case len(path) == 1:
		m.Set(f, protoreflect.ValueOfString(text))
	case f.IsList():
		set(m.Mutable(f).List().AppendMutable().Message(), path[1:], text)
	default:
		set(m.Mutable(f).Message(), path[1:], text)
	}
}
