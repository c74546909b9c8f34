// Package reference is translation as plainly as it can be written: a tree of
// JSON values and protobuf reflection. It is the measure that the fast
// implementation is tested against, and shares no code with it.
package reference

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// ErrMisfit says that a message cannot stand for a value and has no field to
// keep it.
var ErrMisfit = errors.New("value does not fit")

// Encode returns the message that stands for a JSON value.
func Encode(md protoreflect.MessageDescriptor, text []byte, exact bool) (proto.Message, error) {
	v, err := parse(text)
	if err != nil && !errors.Is(err, errRepeated) {
		return nil, err
	}
	e := encoder{exact: exact}
	m, ok := e.message(md, v)
	if !ok {
		fd := md.Fields().ByNumber(extraNumber)
		if fd == nil {
			return nil, ErrMisfit
		}
		m = dynamicpb.NewMessage(md)
		m.Set(fd, protoreflect.ValueOfString(`{"$value":`+v.raw+`}`))
	}
	return m.Interface(), nil
}

type encoder struct{ exact bool }

// message returns the message of a value, and false when there is none.
func (e encoder) message(md protoreflect.MessageDescriptor, v *value) (protoreflect.Message, bool) {
	m := dynamicpb.NewMessage(md)
	if isObject(md) {
		return m, v.kind == 'o' && e.object(m, v)
	}
	if e.variant(m, v) {
		return m, true
	}
	m = dynamicpb.NewMessage(md)
	fd := md.Fields().ByNumber(unrecognizedNumber)
	if fd == nil {
		return nil, false
	}
	m.Set(fd, protoreflect.ValueOfString(v.raw))
	return m, true
}

// variant fills a message that does not stand for an object.
func (e encoder) variant(m *dynamicpb.Message, v *value) bool {
	md := m.Descriptor()
	switch messageRules(md).GetShape() {
	case jsonv1.Shape_SHAPE_NULL:
		return v.kind == 'n' || v.kind == 'o' && len(v.members) == 0 && !e.exact
	case jsonv1.Shape_SHAPE_UNION:
		return e.union(m, v)
	case jsonv1.Shape_SHAPE_VALUE:
		fd := own(md)[0]
		zeroIsZero := fieldRules(fd).GetRequired() && !fieldRules(fd).GetNullable() && !fd.HasPresence()
		if v.kind == 'n' && single(fd) && !fieldRules(fd).GetRaw() {
			return !zeroIsZero
		}
		if v.kind == 'n' && !single(fd) {
			return false
		}
		return e.set(m, fd, v)
	}
	return v.kind != 'n' && e.set(m, own(md)[0], v)
}

// object fills a message that stands for an object.
func (e encoder) object(m *dynamicpb.Message, v *value) bool {
	md := m.Descriptor()
	rules := messageRules(md)
	catchAll := md.Fields().ByNumber(extraNumber)
	if v.member("$absent") != nil || v.member("$value") != nil {
		if catchAll != nil {
			m.Set(catchAll, protoreflect.ValueOfString(`{"$value":`+v.raw+`}`))
		}
		return catchAll != nil
	}
	fitted := make(map[string]bool)
	var absent []string
	for _, c := range rules.GetConsts() {
		got := v.member(c.GetName())
		if got == nil {
			absent = append(absent, c.GetName())
			continue
		}
		want, err := Canonical([]byte(c.GetValueJson()))
		fitted[c.GetName()] = err == nil && got.canonical() == want
	}
	for _, fd := range own(md) {
		name := memberName(fd)
		got := v.member(name)
		switch {
		case got != nil:
			fitted[name] = e.field(m, fd, got)
		case fieldRules(fd).GetRequired():
			absent = append(absent, name)
		}
	}
	if rules.GetShape() == jsonv1.Shape_SHAPE_ENVELOPE {
		if data := v.member(rules.GetDataMember()); data != nil {
			fitted[rules.GetDataMember()] = e.payload(m, v.member(rules.GetDiscriminator()), data)
		}
	}
	var extra []string
	for _, p := range v.members {
		if name, ok := p.name.text(); !ok || !fitted[name] {
			extra = append(extra, p.raw)
		}
	}
	if catchAll == nil && (len(extra) > 0 || len(absent) > 0 && e.exact) {
		return false
	}
	if len(absent) > 0 {
		names, err := json.Marshal(absent)
		if err != nil {
			panic(err) // strings always marshal
		}
		extra = append(extra, `"$absent":`+string(names))
	}
	if len(extra) > 0 && catchAll != nil {
		m.Set(catchAll, protoreflect.ValueOfString("{"+strings.Join(extra, ",")+"}"))
	}
	return true
}

// field sets a member's field; false sends the member to json_extra.
func (e encoder) field(m *dynamicpb.Message, fd protoreflect.FieldDescriptor, v *value) bool {
	rules := fieldRules(fd)
	if v.kind == 'n' && (!rules.GetRaw() || !single(fd)) {
		if rules.GetRequired() {
			return rules.GetNullable() && single(fd)
		}
		return !e.exact && !rules.GetNullable()
	}
	if !e.set(m, fd, v) {
		return false
	}
	if !single(fd) && !m.Has(fd) {
		return rules.GetRequired() || !e.exact
	}
	return true
}

// set sets a field to a value, or leaves it unset and returns false.
func (e encoder) set(m *dynamicpb.Message, fd protoreflect.FieldDescriptor, v *value) bool {
	rules := fieldRules(fd)
	switch {
	case fd.IsList():
		if v.kind != 'a' {
			return false
		}
		list := m.NewField(fd).List()
		for _, item := range v.items {
			x, ok := e.one(fd, rules.GetRaw(), item)
			if !ok {
				return false
			}
			list.Append(x)
		}
		if list.Len() > 0 {
			m.Set(fd, protoreflect.ValueOfList(list))
		}
		return true
	case fd.IsMap():
		if v.kind != 'o' {
			return false
		}
		entries := m.NewField(fd).Map()
		for _, p := range v.members {
			key, ok := p.name.text()
			if !ok {
				return false
			}
			x, ok := e.one(fd.MapValue(), rules.GetRaw(), p.v)
			if !ok {
				return false
			}
			entries.Set(protoreflect.ValueOfString(key).MapKey(), x)
		}
		if entries.Len() > 0 {
			m.Set(fd, protoreflect.ValueOfMap(entries))
		}
		return true
	}
	x, ok := e.one(fd, rules.GetRaw(), v)
	if !ok {
		return false
	}
	if !fd.HasPresence() && isZero(x) {
		return rules.GetRequired() && !rules.GetNullable()
	}
	m.Set(fd, x)
	return true
}

func isZero(x protoreflect.Value) bool {
	switch x := x.Interface().(type) {
	case string:
		return x == ""
	case []byte:
		return len(x) == 0
	case bool:
		return !x
	case int64:
		return x == 0
	case float64:
		return x == 0
	}
	return false
}

// one returns one value of a field.
func (e encoder) one(fd protoreflect.FieldDescriptor, raw bool, v *value) (protoreflect.Value, bool) {
	var none protoreflect.Value
	if raw {
		return protoreflect.ValueOfString(v.raw), true
	}
	s, isText := v.text()
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(v.raw == "true"), v.kind == 'b'
	case protoreflect.Int64Kind:
		i, ok := integer(v)
		return protoreflect.ValueOfInt64(i), ok
	case protoreflect.DoubleKind:
		f, ok := double(v)
		return protoreflect.ValueOfFloat64(f), ok
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(s), isText
	case protoreflect.BytesKind:
		b, err := base64.StdEncoding.DecodeString(s)
		return protoreflect.ValueOfBytes(b), isText && err == nil && base64.StdEncoding.EncodeToString(b) == s
	case protoreflect.EnumKind:
		for i := range fd.Enum().Values().Len() {
			number := fd.Enum().Values().Get(i).Number()
			if text, ok := enumText(fd.Enum(), number); ok && isText && text == s {
				return protoreflect.ValueOfEnum(number), true
			}
		}
		return none, false
	}
	if isTimestamp(fd) {
		t, err := time.Parse(time.RFC3339Nano, s)
		if !isText || err != nil || timeText(t) != s {
			return none, false
		}
		return timestamp(fd, t), t.Year() >= 1
	}
	m, ok := e.message(fd.Message(), v)
	if !ok {
		return none, false
	}
	return protoreflect.ValueOfMessage(m), true
}

// timeText is the one form of a time that is written.
func timeText(t time.Time) string {
	if t.Nanosecond()%1_000_000 == 0 {
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func timestamp(fd protoreflect.FieldDescriptor, t time.Time) protoreflect.Value {
	m := dynamicpb.NewMessage(fd.Message())
	if t.Unix() != 0 {
		m.Set(fd.Message().Fields().ByName("seconds"), protoreflect.ValueOfInt64(t.Unix()))
	}
	if t.Nanosecond() != 0 {
		m.Set(fd.Message().Fields().ByName("nanos"), protoreflect.ValueOfInt32(int32(t.Nanosecond())))
	}
	return protoreflect.ValueOfMessage(m)
}

// integer returns the int64 that a number equals exactly.
func integer(v *value) (int64, bool) {
	if v.kind != '#' {
		return 0, false
	}
	digits, exp, _ := strings.Cut(canonicalNumber(v.raw), "e")
	n, err := strconv.Atoi("0" + exp)
	if err != nil || n > 20 {
		return 0, false // negative, or far too large
	}
	i, ok := new(big.Int).SetString(digits+strings.Repeat("0", n), 10)
	return i.Int64(), ok && i.IsInt64()
}

// double returns the float64 whose shortest decimal form equals a number.
func double(v *value) (float64, bool) {
	if v.kind != '#' {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.raw, 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, false
	}
	return f, canonicalNumber(strconv.FormatFloat(f, 'g', -1, 64)) == canonicalNumber(v.raw)
}

// payload sets an envelope's payload.
func (e encoder) payload(m *dynamicpb.Message, kind, data *value) bool {
	md := m.Descriptor()
	if kind != nil {
		if tag, ok := kind.text(); ok {
			if fd := tagged(md, tag); fd != nil {
				if x, ok := e.one(fd, false, data); ok {
					m.Set(fd, x)
					return true
				}
			}
		}
	}
	fd := md.Fields().ByNumber(unrecognizedNumber)
	if fd == nil {
		return false
	}
	m.Set(fd, protoreflect.ValueOfString(data.raw))
	return true
}

func tagged(md protoreflect.MessageDescriptor, tag string) protoreflect.FieldDescriptor {
	for _, fd := range cases(md) {
		if t := fieldRules(fd).GetTag(); t != "" && slices.Contains(strings.Split(t, ","), tag) {
			return fd
		}
	}
	return nil
}
