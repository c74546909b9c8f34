package translate_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// The number of bytes that a call may allocate for each byte of input and output together, and the size of
// reused buffers.
const (
	allocatedPerByte = 64 // a span of 16 bytes for each member of 6, in lists that grow
	allocatedAnyway  = 1 << 20
)

// allocated tells how many bytes f allocates. No other test may run meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestAllocatedBytes: what a translation allocates is in proportion to what it
// reads and writes, be the input good, hostile or cut off.
func TestAllocatedBytes(t *testing.T) { //nolint:paralleltest // it counts what all goroutines allocate
	events := (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor()
	types := []protoreflect.MessageDescriptor{
		events, (*cliv1.SessionConfig)(nil).ProtoReflect().Descriptor(),
		(*cliv1.SessionServiceCreateRequest)(nil).ProtoReflect().Descriptor(),
	}
	for _, name := range testproto.Names {
		types = append(types, testproto.Message(name))
	}
	inputs := map[string]string{}
	for name, make := range hostile {
		inputs[name] = make(1 << 18)
	}
	g := &generator{Rand: rand.New(rand.NewPCG(5, 0))}
	for inputs["events"] = g.message(events, 6); len(inputs["events"]) < 1<<12; inputs["events"] = g.message(events,
		6) {
	}
	for name, text := range inputs {
		for _, md := range types {
			checkAllocated(t, name, table(t, md), text)
		}
	}
}

func checkAllocated(t *testing.T, name string, tb *translate.Table, text string) {
	t.Helper()
	var wire, back []byte
	got := allocated(func() { wire, _ = tb.AppendWire(nil, []byte(text), translate.Exact) })
	if limit := uint64(allocatedPerByte*(len(text)+len(wire)) + allocatedAnyway); got > limit {
		t.Errorf("AppendWire of %s: %d bytes allocated for %d and %d, at most %d", name, got, len(text), len(wire),
			limit)
	}
	if wire == nil {
		return
	}
	got = allocated(func() { back, _ = tb.AppendJSON(nil, wire, translate.JSONOptions{}) })
	if limit := uint64(allocatedPerByte*(len(wire)+len(back)) + allocatedAnyway); got > limit {
		t.Errorf("AppendJSON of %s: %d bytes allocated for %d and %d, at most %d", name, got, len(wire), len(back),
			limit)
	}
}

// nestedTwice is a message that holds itself, levels deep, with a field in two
// places at each level: behind the inner message once more the same field.
func nestedTwice(md protoreflect.MessageDescriptor, levels int) []byte {
	child := md.Fields().ByName("child")
	var wire []byte
	for range levels {
		tag := binary.AppendUvarint(nil, uint64(child.Number())<<3|2)
		outer := binary.AppendUvarint(append([]byte(nil), tag...), uint64(len(wire)))
		outer = append(append(outer, wire...), tag...)
		wire = append(outer, 0)
	}
	return wire
}

// TestNestedTwice: an object that has to be written again does not have those in
// it written twice as often. At 60 levels that would not end.
func TestNestedTwice(t *testing.T) {
	t.Parallel()
	md := testproto.Message(testproto.Names[0])
	if md.Fields().ByName("child") == nil {
		t.Fatalf("%s does not hold itself", md.Name())
	}
	out, err := table(t, md).AppendJSON(nil, nestedTwice(md, 60), translate.JSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), `"child":`); n != 60 {
		t.Errorf("%d levels came out of 60", n)
	}
}

// TestLongKeyInPath: the path of an error shows only the beginning of a key.
func TestLongKeyInPath(t *testing.T) {
	t.Parallel()
	md := testproto.Message(testproto.Names[0])
	text := `{"leafMap":{"` + strings.Repeat("k", 1<<16) + `":{"name":"` + "\xff" + `"}}}`
	_, err := table(t, md).AppendWire(nil, []byte(text), translate.Exact)
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}
