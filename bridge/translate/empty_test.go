package translate_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// strictly is how requests and answers of callers are translated.
var strictly = translate.JSONOptions{RejectDeclaredExtra: true}

func shapeOf(md protoreflect.MessageDescriptor) jsonv1.Shape {
	rules, _ := proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	return rules.GetShape()
}

// isMember reports whether a field is a member of its object.
func isMember(fd protoreflect.FieldDescriptor) bool {
	oneof := fd.ContainingOneof()
	return fd.Number() != 1000 && fd.Number() != 1001 && (oneof == nil || oneof.IsSynthetic())
}

// emptiesOf returns the explicit empty values that a caller can give to a member.
func emptiesOf(fd protoreflect.FieldDescriptor) (values []string) {
	switch {
	case rulesOf(fd).GetRaw() && !fd.IsList() && !fd.IsMap():
		values = []string{`[]`, `{}`, `""`}
	case fd.IsList():
		values = []string{`[]`}
	case fd.IsMap():
		values = []string{`{}`}
	case fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.BytesKind:
		values = []string{`""`}
	case fd.Message() != nil && fd.Message().FullName() != "google.protobuf.Timestamp":
		switch shapeOf(fd.Message()) {
		case jsonv1.Shape_SHAPE_LIST:
			values = []string{`[]`}
		case jsonv1.Shape_SHAPE_UNSPECIFIED, jsonv1.Shape_SHAPE_OBJECT, jsonv1.Shape_SHAPE_ENVELOPE, jsonv1.Shape_SHAPE_MAP:
			values = []string{`{}`}
		case jsonv1.Shape_SHAPE_UNION:
			for i := range fd.Message().Fields().Len() {
				one := fd.Message().Fields().Get(i)
				if one.Number() != 1001 && (one.Message() == nil || shapeOf(one.Message()) == jsonv1.Shape_SHAPE_LIST ||
					shapeOf(one.Message()) == jsonv1.Shape_SHAPE_MAP) {
					values = append(values, emptiesOf(one)...)
				}
			}
		}
	}
	if rulesOf(fd).GetNullable() {
		values = append(values, "null")
	}
	return values
}

// refusedOf returns values near the empty ones that no member may have in json_extra.
func refusedOf(fd protoreflect.FieldDescriptor) (values []string) {
	for _, value := range []string{`[]`, `{}`, `""`, `null`, `[1]`, `{"a":1}`, `"a"`, `0`, `false`, `[[]]`, `[ {}]`} {
		empty := false
		for _, one := range emptiesOf(fd) {
			empty = empty || one == value
		}
		if !empty {
			values = append(values, value)
		}
	}
	return values
}

// extraWire returns a message with nothing but a json_extra.
func extraWire(t *testing.T, md protoreflect.MessageDescriptor, extra string) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(md)
	m.Set(md.Fields().ByNumber(1000), protoreflect.ValueOfString(extra))
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// Every member of every message that callers send, and of the messages within, can be explicitly empty in json_extra
// while its field is unset. Any other value of a declared member is refused.
func TestEveryMemberCanBeEmpty(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, md := range everyMessage() {
		if md.Fields().ByNumber(1000) == nil {
			continue
		}
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if !isMember(fd) {
				continue
			}
			name, _ := json.Marshal(memberName(fd))
			for _, value := range emptiesOf(fd) {
				kinds[value]++
				wantMember(t, md, string(name), value)
				if value != `""` && value != "null" {
					wantMember(t, md, string(name), value[:1]+" \n\t"+value[1:])
				}
			}
			for _, value := range refusedOf(fd) {
				wire := extraWire(t, md, "{"+string(name)+":"+value+"}")
				if out, err := table(t, md).AppendJSON(nil, wire, strictly); err == nil {
					t.Errorf("%s accepts %s in json_extra: %s", fd.FullName(), value, out)
				}
			}
		}
	}
	for _, value := range []string{`[]`, `{}`, `""`, "null"} {
		if kinds[value] < 20 {
			t.Errorf("only %d members were given %s", kinds[value], value)
		}
	}
	t.Logf("members by explicit empty value: %v", kinds)
}

// wantMember checks that an explicit empty value in json_extra reaches the JSON, and that an answer of the CLI with it
// comes back as it is.
func wantMember(t *testing.T, md protoreflect.MessageDescriptor, name, value string) {
	t.Helper()
	out, err := table(t, md).AppendJSON(nil, extraWire(t, md, "{"+name+":"+value+"}"), strictly)
	if err != nil {
		t.Errorf("%s: %s of %s: %v", md.FullName(), value, name, err)
		return
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(out, &members); err != nil {
		t.Fatalf("%s: %q: %v", md.FullName(), out, err)
	}
	var member string
	if err := json.Unmarshal([]byte(name), &member); err != nil {
		t.Fatal(err)
	}
	if string(members[member]) != value {
		t.Errorf("%s: %s of %s became %s", md.FullName(), value, name, members[member])
	}
}

// What an answer in EXACT says in json_extra about explicit empties, a caller may say in a request.
func TestEmptyAnswersCanBeSentBack(t *testing.T) {
	t.Parallel()
	lists := 0
	for _, md := range everyMessage() {
		if md.Fields().ByNumber(1000) == nil || shapeOf(md) > jsonv1.Shape_SHAPE_OBJECT {
			continue
		}
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if !isMember(fd) || rulesOf(fd).GetRequired() {
				continue
			}
			for _, value := range emptiesOf(fd) {
				name, _ := json.Marshal(memberName(fd))
				text := "{" + string(name) + ":" + value + "}"
				wire, err := table(t, md).AppendWire(nil, []byte(text), translate.Exact)
				if err != nil {
					t.Fatalf("%s: %s: %v", md.FullName(), text, err)
				}
				if reserved(t, md, wire) {
					continue // required members are missing
				}
				lists++
				out, err := table(t, md).AppendJSON(nil, wire, strictly)
				if err != nil || !sameMember(out, memberName(fd), value) {
					t.Errorf("%s: %s came back as %s: %v", md.FullName(), text, out, err)
				}
			}
		}
	}
	if lists < 500 {
		t.Errorf("only %d answers were sent back", lists)
	}
}

// reserved reports whether a message says, at any level, what only an EXACT caller may say: that required members are
// absent.
func reserved(t *testing.T, md protoreflect.MessageDescriptor, wire []byte) bool {
	t.Helper()
	m := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	found := false
	var walk func(m protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.Number() == 1000:
				var extra map[string]json.RawMessage
				_ = json.Unmarshal([]byte(v.String()), &extra) // what AppendWire wrote
				found = found || extra["$absent"] != nil
			case fd.Message() != nil && !fd.IsList() && !fd.IsMap():
				walk(v.Message())
			}
			return true
		})
	}
	walk(m)
	return found
}

func sameMember(object []byte, member, value string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(object, &members) == nil && string(members[member]) == value
}
