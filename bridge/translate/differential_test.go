package translate_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// shared keeps the tables of all tests.
var shared = translate.NewSet()

func table(tb testing.TB, md protoreflect.MessageDescriptor) *translate.Table {
	tb.Helper()
	t, err := shared.Table(md)
	if err != nil {
		tb.Fatalf("Table(%q): %v", md.FullName(), err)
	}
	return t
}

// checkBoth translates text both ways by both implementations and demands that
// they agree and that nothing is lost.
func checkBoth(tb testing.TB, md protoreflect.MessageDescriptor, text []byte, f translate.Fidelity) {
	tb.Helper()
	fast := table(tb, md)
	want, refErr := reference.Encode(md, text, f == translate.Exact)
	wire, err := fast.AppendWire(nil, text, f)
	if (err == nil) != (refErr == nil) {
		tb.Fatalf("%s: AppendWire(%q) error = %v, reference %v", md.Name(), text, err, refErr)
	}
	if err != nil {
		if !errors.As(err, new(*translate.Error)) {
			tb.Fatalf("AppendWire(%q) error is %T", text, err)
		}
		return
	}
	got := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, got); err != nil {
		tb.Fatalf("%s: AppendWire(%q) = %x: %v", md.Name(), text, wire, err)
	}
	// With repeated members the two may differ in what they make of the ones that
	// do not count.
	if !reference.Repeats(text) {
		same(tb, md, text, got, want)
	}
	checkBack(tb, md, text, wire, got, f)
}

func same(tb testing.TB, md protoreflect.MessageDescriptor, text []byte, got, want proto.Message) {
	tb.Helper()
	normalise(tb, got.ProtoReflect())
	normalise(tb, want.ProtoReflect())
	if !proto.Equal(got, want) {
		tb.Fatalf("%s: AppendWire(%q):\n got %v\nwant %v", md.Name(), text, got, want)
	}
}

func checkBack(
	tb testing.TB, md protoreflect.MessageDescriptor, text, wire []byte, _ proto.Message, f translate.Fidelity,
) {
	tb.Helper()
	back, err := table(tb, md).AppendJSON(nil, wire, translate.JSONOptions{})
	if err != nil {
		tb.Fatalf("%s: AppendJSON after %q: %v", md.Name(), text, err)
	}
	backCanonical := canonical(tb, back)
	if f == translate.Exact && canonical(tb, text) != backCanonical {
		tb.Fatalf("%s: there and back:\n was %q\n got %q", md.Name(), text, back)
	}
	again := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, again); err != nil {
		tb.Fatal(err)
	}
	ref, err := reference.Decode(again)
	if err != nil {
		tb.Fatalf("%s: reference.Decode(%v): %v", md.Name(), again, err)
	}
	if canonical(tb, ref) != backCanonical {
		tb.Fatalf("%s: AppendJSON after %q:\n got %q\nwant %q", md.Name(), text, back, ref)
	}
}

func canonical(tb testing.TB, text []byte) string {
	tb.Helper()
	s, err := reference.Canonical(text)
	if err != nil {
		tb.Fatalf("Canonical(%q): %v", text, err)
	}
	return s
}

// normalise brings json_extra, at every level, into a form that can be compared.
func normalise(tb testing.TB, m protoreflect.Message) {
	tb.Helper()
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Number() == 1000:
			m.Set(fd, protoreflect.ValueOfString(canonical(tb, []byte(v.String()))))
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				normalise(tb, v.Message())
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				normalise(tb, v.List().Get(i).Message())
			}
		case !fd.IsMap() && fd.Message() != nil:
			normalise(tb, v.Message())
		}
		return true
	})
}

// TestBothImplementationsAgree runs the seeds of the fuzz tests through every
// message, whether they are made for it or not.
func TestBothImplementationsAgree(t *testing.T) {
	t.Parallel()
	for _, name := range testproto.Names {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			for _, seed := range seeds {
				checkBoth(t, testproto.Message(name), []byte(seed), translate.Exact)
				checkBoth(t, testproto.Message(name), []byte(seed), translate.Tidy)
			}
		})
	}
}
