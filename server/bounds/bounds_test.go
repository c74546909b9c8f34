package bounds_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/bounds"
)

// form checks messages in one encoding.
type form struct {
	encode func(proto.Message) ([]byte, error)
	check  func(protoreflect.MessageDescriptor, []byte) (int, error)
}

var forms = map[string]form{
	"wire": {proto.Marshal, bounds.Wire},
	"JSON": {protojson.Marshal, bounds.JSON},
}

func many[T any](n int, one T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = one
	}
	return list
}

func mapOf(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = ""
	}
	return m
}

func TestBounds(t *testing.T) {
	t.Parallel()
	cursors := func(n, types int) *bridgev1.SubscribeRequest {
		return &bridgev1.SubscribeRequest{Sessions: many(n, &bridgev1.SessionCursor{SessionId: "s",
			Filter: &bridgev1.EventFilter{Types: many(types, "x")}})}
	}
	free := func(n int) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: many(n, structpb.NewBoolValue(true))})
	}
	for name, tc := range map[string]struct {
		message proto.Message
		// field is the one that the error names, "-" stands for that of the whole message; "" accepts the message.
		field string
		most  int
	}{
		"nothing":                {&bridgev1.SubscribeRequest{}, "", 0},
		"messages, as many":      {cursors(10_000, 0), "", 0},
		"messages, one more":     {cursors(10_001, 0), "sessions", 10_000},
		"nested, as many":        {cursors(3, 1_000), "", 0},
		"nested, one more":       {cursors(3, 1_001), "sessions[0].filter.types", 1_000},
		"nested, multiplied":     {cursors(1_000, 1_000), "-", bounds.MaxElements},
		"map, as many":           {&bridgev1.UpdateLabelsRequest{Set: mapOf(64)}, "", 0},
		"map, one more":          {&bridgev1.UpdateLabelsRequest{Set: mapOf(65)}, "set", 64},
		"enums, one more":        {&bridgev1.PendingFilter{Kinds: many(101, bridgev1.CallbackKind(1))}, "kinds", 100},
		"default, as many":       {&descriptorpb.FileDescriptorProto{Dependency: many(bounds.MaxFieldItems, "x")}, "", 0},
		"default, one more":      {&descriptorpb.FileDescriptorProto{Dependency: many(bounds.MaxFieldItems+1, "x")}, "dependency", bounds.MaxFieldItems},
		"list of values":         {free(bounds.MaxFieldItems), "", 0},
		"list of too many":       {free(bounds.MaxFieldItems + 1), "values", bounds.MaxFieldItems},
		"strings that look like": {&bridgev1.SessionCursor{SessionId: strings.Repeat(`{},[],"\`, 100_000)}, "", 0},
	} {
		for kind, f := range forms {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				data, err := f.encode(tc.message)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.check(tc.message.ProtoReflect().Descriptor(), data)
				wantBound(t, err, tc.field, tc.most)
			})
		}
	}
}

func wantBound(t *testing.T, err error, field string, most int) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Reason != fault.InvalidField || f.Field != strings.TrimPrefix(field, "-") && !strings.HasSuffix(f.Field, field) ||
		f.Metadata[bounds.MetadataMaxItems] != fmt.Sprint(most) || !strings.Contains(f.Message, fmt.Sprint(most)) {
		t.Errorf("error %v, want the field %q and the bound %d", err, field, most)
	}
}

// Elements may come in pieces, packed, and with names of either kind.
func TestForms(t *testing.T) {
	t.Parallel()
	kinds := (&bridgev1.PendingFilter{}).ProtoReflect().Descriptor()
	packed := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte{0x81, 1}, 60))
	single := bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), 60)
	_, err := bounds.Wire(kinds, append(bytes.Clone(packed), single...))
	wantBound(t, err, "kinds", 100)
	_, err = bounds.Wire(kinds, append(bytes.Clone(packed), packed[:2]...))
	wantBound(t, err, "", 0)

	filter := (&bridgev1.EventFilter{}).ProtoReflect().Descriptor()
	for _, name := range []string{"excludeTypes", "exclude_types", `exclude\u0054ypes`} {
		_, err = bounds.JSON(filter, []byte(`{"`+name+`" : [ "x"`+strings.Repeat(` , "x"`, 1_000)+` ] }`))
		wantBound(t, err, "exclude_types", 1_000)
	}
	// A field that is no list, over and over.
	request := (&bridgev1.SubscribeRequest{}).ProtoReflect().Descriptor()
	cursor := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
		bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil), bounds.MaxElements))
	_, err = bounds.Wire(request, cursor)
	wantBound(t, err, "-", bounds.MaxElements)
}

// Bytes that no decoder accepts are left to it.
func TestMalformed(t *testing.T) {
	t.Parallel()
	d := (&bridgev1.SubscribeRequest{}).ProtoReflect().Descriptor()
	for _, text := range []string{"", "{", "[", `{"sessions"`, `{"sessions":`, `{"sessions":[`, `{"sessions":[{]}`, `{"x":1}`, `"`,
		`{"sessions":{"a":1}}`, `{"sessions":[,]}`, strings.Repeat(`{"sessions":[`, 20_000), strings.Repeat("[", 20_000)} {
		if _, err := bounds.JSON(d, []byte(text)); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, data := range [][]byte{{0x0a}, {0x0a, 5}, {0xff, 0xff}, {0x0b}, {0x0a, 1, 0x0a}} {
		if _, err := bounds.Wire(d, data); err != nil {
			t.Errorf("%x: %v", data, err)
		}
	}
}

// Refusing a large message uses little memory, and accepting one allocates nothing for its elements.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures the process
	request := (&bridgev1.SubscribeRequest{}).ProtoReflect().Descriptor()
	text := []byte(`{"sessions":[{}` + strings.Repeat(",{}", 5<<20) + `]}`)
	wire := bytes.Repeat([]byte{0x0a, 0}, 8<<20)
	for name, check := range map[string]func() (int, error){
		"JSON": func() (int, error) { return bounds.JSON(request, text) },
		"wire": func() (int, error) { return bounds.Wire(request, wire) },
	} {
		_, _ = check()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := check()
		runtime.ReadMemStats(&after)
		wantBound(t, err, "sessions", 10_000)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<10 {
			t.Errorf("%s: refusing %d MiB allocates %d bytes", name, len(text)>>20, used)
		}
	}
	small, _ := proto.Marshal(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{}, {}}})
	if n := testing.AllocsPerRun(100, func() { _, _ = bounds.Wire(request, small) }); n > 1 {
		t.Errorf("a small message: %v allocations", n)
	}
}

// The stated memory is at least what decoding uses in addition to the bytes.
func TestStatedMemory(t *testing.T) { //nolint:paralleltest // it measures the process
	for name, m := range map[string]proto.Message{
		"messages": &bridgev1.SubscribeRequest{Sessions: many(10_000, &bridgev1.SessionCursor{Filter: &bridgev1.EventFilter{}})},
		"strings":  &bridgev1.EventFilter{Types: many(1_000, "")},
	} {
		data, _ := proto.Marshal(m)
		stated, err := bounds.Wire(m.ProtoReflect().Descriptor(), data)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		decoded := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data, decoded); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if used := int(after.HeapAlloc) - int(before.HeapAlloc); used > 2*(stated+len(data)) || stated > 4*used+1<<12 { //nolint:gosec // small
			t.Errorf("%s: %d bytes are stated for %d", name, stated, used)
		}
		runtime.KeepAlive(decoded)
	}
}

// Every repeated and map field that a caller can send has a bound; those of copilot.bridge.v1 have their own.
func TestEveryFieldHasABound(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			own, _ := proto.GetExtension(f.Options(), bridgev1.E_MaxItems).(int32)
			many := f.IsList() || f.IsMap()
			switch ours := f.ParentFile().Package() == "copilot.bridge.v1"; {
			case !many && own != 0:
				t.Errorf("%s has a bound and is no list", f.FullName())
			case many && ours && own <= 0:
				t.Errorf("%s has no max_items", f.FullName())
			case many && (bounds.Of(f) <= 0 || bounds.Of(f) > bounds.MaxFieldItems):
				t.Errorf("%s has the bound %d", f.FullName(), bounds.Of(f))
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "copilot.") {
			for i := range f.Services().Len() {
				methods := f.Services().Get(i).Methods()
				for j := range methods.Len() {
					walk(methods.Get(j).Input())
				}
			}
		}
		return true
	})
	if len(seen) < 100 {
		t.Errorf("only %d messages were found", len(seen))
	}
}

// The elements that are counted are at least those that are decoded, in each field and altogether.
func FuzzBounds(f *testing.F) {
	f.Add([]byte(`{"sessions":[{"sessionId":"a","filter":{"types":["x","y"]}}]}`))
	f.Add([]byte("\x0a\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind, decode := range map[string]func([]byte, proto.Message) error{"JSON": protojson.Unmarshal, "wire": proto.Unmarshal} {
			m := &bridgev1.AttachRequest{}
			stated, err := forms[kind].check(m.ProtoReflect().Descriptor(), data)
			if err != nil || decode(data, m) != nil {
				continue
			}
			elements := elementsOf(t, kind, m.ProtoReflect())
			if elements > bounds.MaxElements || stated < 16*elements {
				t.Errorf("%s: %d bytes were stated for %d elements", kind, stated, elements)
			}
		}
	})
}

// elementsOf returns how many elements a decoded message has, and reports fields with more than their bound.
func elementsOf(t *testing.T, kind string, m protoreflect.Message) (total int) {
	t.Helper()
	for fd, v := range m.Range {
		n := 0
		switch {
		case fd.IsMap():
			n = v.Map().Len()
			for _, value := range v.Map().Range {
				if fd.MapValue().Message() != nil {
					total += elementsOf(t, kind, value.Message())
				}
			}
		case fd.IsList():
			n = v.List().Len()
			for i := range n {
				if fd.Message() != nil {
					total += elementsOf(t, kind, v.List().Get(i).Message())
				}
			}
		case fd.Message() != nil:
			total += 1 + elementsOf(t, kind, v.Message())
		}
		if n > bounds.Of(fd) {
			t.Errorf("%s: %s has %d elements", kind, fd.FullName(), n)
		}
		total += n
	}
	return total
}
