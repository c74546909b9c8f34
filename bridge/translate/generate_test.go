package translate_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// generator makes random JSON that a message describes, and spoils some of it.
type generator struct {
	*rand.Rand
	spoil float64 // how often a value is replaced by one that may not fit
}

var odd = []string{
	`null`, `true`, `0`, `-1`, `1.0`, `1e3`, `1.5`, `1152921504606846976`, `9223372036854775808`, `1e400`, `""`, `"x"`,
	`"\ud800"`, `"caf\u00e9 \ud83d\ude00"`, `"é"`, `[]`, `{}`, `[null]`, `["x"]`, `[{}]`, `{"a":1}`, `{"kind":"?"}`,
	`"2026-04-30T00:00:00Z"`, `{"$value":1}`, `{"$absent":[]}`,
}

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func (g *generator) message(md protoreflect.MessageDescriptor, depth int) string {
	if g.chance(g.spoil) {
		return odd[g.IntN(len(odd))]
	}
	rules := proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	switch rules.GetShape() {
	case jsonv1.Shape_SHAPE_NULL:
		return "null"
	case jsonv1.Shape_SHAPE_UNION:
		f := g.alternative(md)
		return g.tagged(f, rules, g.one(f, depth))
	case jsonv1.Shape_SHAPE_LIST, jsonv1.Shape_SHAPE_MAP, jsonv1.Shape_SHAPE_VALUE:
		return g.value(md.Fields().Get(0), depth)
	}
	var members []string
	for _, c := range rules.GetConsts() {
		members = append(members, g.member(c.GetName(), c.GetValueJson())...)
	}
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		name := memberName(f)
		oneof := f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic()
		if f.Number() >= 1000 && f.Number() <= 1001 || oneof || name == rules.GetDiscriminator() {
			continue
		}
		required := rulesOf(f).GetRequired()
		if !required && (depth <= 0 || g.chance(0.5)) {
			continue
		}
		members = append(members, g.member(name, g.value(f, depth))...)
	}
	if rules.GetShape() == jsonv1.Shape_SHAPE_ENVELOPE {
		f := g.alternative(md)
		members = append(members, g.member(rules.GetDataMember(), g.one(f, depth))...)
		members = append(members, g.member(rules.GetDiscriminator(), strconv.Quote(firstTag(f)))...)
	}
	if g.chance(g.spoil) {
		members = append(members, `"unknownMember":`+odd[g.IntN(len(odd))])
	}
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// tagged makes sure that an alternative says which it is: one that several tags
// select does not hold its tag as a const.
func (g *generator) tagged(f protoreflect.FieldDescriptor, rules *jsonv1.MessageRules, text string) string {
	if rules.GetDiscriminator() == "" || firstTag(f) == "" || !strings.HasPrefix(text, "{") ||
		strings.Contains(text, strconv.Quote(rules.GetDiscriminator())+":") {
		return text
	}
	head := `{` + strconv.Quote(rules.GetDiscriminator()) + ":" + strconv.Quote(firstTag(f))
	if text == "{}" {
		return head + "}"
	}
	return head + "," + text[1:]
}

func (g *generator) member(name, text string) []string {
	switch {
	case g.chance(g.spoil / 2):
		return nil
	case g.chance(g.spoil):
		text = odd[g.IntN(len(odd))]
	}
	return []string{strconv.Quote(name) + ":" + text}
}

func (g *generator) alternative(md protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	var cases []protoreflect.FieldDescriptor
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		if f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic() && f.Number() < 1000 {
			cases = append(cases, f)
		}
	}
	return cases[g.IntN(len(cases))]
}

func (g *generator) value(f protoreflect.FieldDescriptor, depth int) string {
	n := 0
	if depth > 0 {
		n = g.IntN(4)
	}
	var parts []string
	switch {
	case rulesOf(f).GetNullable() && g.chance(0.2):
		return "null"
	case f.IsList():
		for range n {
			parts = append(parts, g.one(f, depth))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case f.IsMap():
		for i := range n {
			parts = append(parts, fmt.Sprintf(`"key %d":%s`, i, g.one(f.MapValue(), depth)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return g.one(f, depth)
}

func (g *generator) one(f protoreflect.FieldDescriptor, depth int) string {
	if g.chance(g.spoil) || rulesOf(f).GetRaw() {
		return odd[g.IntN(len(odd))]
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return []string{"true", "false"}[g.IntN(2)]
	case protoreflect.Int64Kind:
		return strconv.FormatInt(int64(g.Uint64())>>g.IntN(64), 10)
	case protoreflect.DoubleKind:
		return strconv.FormatFloat(g.NormFloat64(), 'g', 1+g.IntN(17), 64)
	case protoreflect.StringKind:
		return []string{`""`, `"text"`, `"with \"escapes\"\n\u00e9"`,
			`"plain é text that is somewhat longer"`}[g.IntN(4)]
	case protoreflect.BytesKind:
		return []string{`""`, `"AQID"`, `"AQ=="`}[g.IntN(3)]
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		v := values.Get(1 + g.IntN(values.Len()-1))
		return strconv.Quote(proto.GetExtension(v.Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules).GetValue())
	}
	if f.Message().FullName() == "google.protobuf.Timestamp" {
		return []string{`"2026-01-02T03:04:05.678Z"`, `"1969-12-31T23:59:59.123456Z"`}[g.IntN(2)]
	}
	return g.message(f.Message(), depth-1)
}

func rulesOf(f protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	return proto.GetExtension(f.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
}

func memberName(f protoreflect.FieldDescriptor) string {
	if name := rulesOf(f).GetMember(); name != "" {
		return name
	}
	return f.JSONName()
}

func firstTag(f protoreflect.FieldDescriptor) string {
	tag, _, _ := strings.Cut(rulesOf(f).GetTag(), ",")
	return tag
}
