package reference

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// ErrNoJSON says that a message stands for no JSON value.
var ErrNoJSON = errors.New("message has no JSON form")

// Decode returns the JSON value that a message stands for.
func Decode(m proto.Message) ([]byte, error) {
	s, err := message(m.ProtoReflect())
	return []byte(s), err
}

func message(m protoreflect.Message) (string, error) {
	md := m.Descriptor()
	if isObject(md) {
		return object(m)
	}
	if fd := md.Fields().ByNumber(unrecognizedNumber); fd != nil && m.Has(fd) {
		return jsonText(m.Get(fd).String())
	}
	switch messageRules(md).GetShape() {
	case jsonv1.Shape_SHAPE_NULL:
		return "null", nil
	case jsonv1.Shape_SHAPE_UNION:
		for _, fd := range cases(md) {
			if m.Has(fd) {
				return one(fd, fieldRules(fd).GetRaw(), m.Get(fd))
			}
		}
		return "", ErrNoJSON
	}
	fd := own(md)[0]
	rules := fieldRules(fd)
	if single(fd) && !m.Has(fd) {
		if fd.HasPresence() || rules.GetNullable() || !rules.GetRequired() || fd.Enum() != nil || rules.GetRaw() {
			return "null", nil
		}
	}
	return whole(fd, m.Get(fd))
}

func object(m protoreflect.Message) (string, error) {
	md := m.Descriptor()
	rules := messageRules(md)
	extra, absent, whole, err := catchAll(m)
	if err != nil || whole != "" {
		return whole, err
	}
	out := make(map[string]string)
	for _, c := range rules.GetConsts() {
		if !absent[c.GetName()] {
			out[c.GetName()] = c.GetValueJson()
		}
	}
	for _, fd := range own(md) {
		name := memberName(fd)
		if _, ok := extra[name]; ok {
			continue
		}
		s, err := member(m, fd, absent[name])
		if err != nil {
			return "", err
		}
		if s != "" {
			out[name] = s
		}
	}
	if rules.GetShape() == jsonv1.Shape_SHAPE_ENVELOPE {
		if err := envelope(m, out); err != nil {
			return "", err
		}
	}
	for name, s := range extra {
		out[name] = s
	}
	var parts []string
	for name, s := range out {
		parts = append(parts, quote(name)+":"+s)
	}
	parts = append(parts, extraOdd(m)...)
	return "{" + strings.Join(parts, ",") + "}", nil
}

// catchAll reads json_extra.
func catchAll(m protoreflect.Message) (extra map[string]string, absent map[string]bool, whole string, err error) {
	extra, absent = make(map[string]string), make(map[string]bool)
	v, err := extraTree(m)
	if v == nil || err != nil {
		return extra, absent, "", err
	}
	if x := v.member("$value"); x != nil {
		return extra, absent, x.raw, nil
	}
	for _, p := range v.members {
		name, ok := p.name.text()
		if ok && name != "$absent" {
			extra[name] = p.v.raw
		}
	}
	if x := v.member("$absent"); x != nil {
		if x.kind != 'a' {
			return extra, absent, "", ErrNoJSON
		}
		for _, item := range x.items {
			if item.kind != 's' {
				return extra, absent, "", ErrNoJSON
			}
			name, _ := item.text()
			absent[name] = true
		}
	}
	return extra, absent, "", nil
}

func extraTree(m protoreflect.Message) (*value, error) {
	fd := m.Descriptor().Fields().ByNumber(extraNumber)
	if fd == nil || m.Get(fd).String() == "" {
		return nil, nil
	}
	v, err := parse([]byte(m.Get(fd).String()))
	if err != nil && !errors.Is(err, errRepeated) {
		return nil, err
	}
	if v.kind != 'o' {
		return nil, ErrNoJSON
	}
	return v, nil
}

// extraOdd returns the members of json_extra whose names no Go string can hold.
func extraOdd(m protoreflect.Message) []string {
	v, _ := extraTree(m)
	if v == nil {
		return nil
	}
	var out []string
	for _, p := range v.members {
		if _, ok := p.name.text(); !ok {
			out = append(out, p.raw)
		}
	}
	return out
}

// member returns the JSON of a field, "" when it is not a member.
func member(m protoreflect.Message, fd protoreflect.FieldDescriptor, absent bool) (string, error) {
	rules := fieldRules(fd)
	has := m.Has(fd)
	if has && single(fd) && fd.Enum() != nil && m.Get(fd).Enum() == 0 {
		has = false
	}
	switch {
	case has:
		return whole(fd, m.Get(fd))
	case !rules.GetRequired() || absent:
		return "", nil
	case single(fd) && (rules.GetNullable() || rules.GetRaw()):
		return "null", nil
	case single(fd) && (fd.Enum() != nil || fd.Message() != nil):
		return "", nil
	}
	return whole(fd, m.Get(fd))
}

func envelope(m protoreflect.Message, out map[string]string) error {
	md := m.Descriptor()
	rules := messageRules(md)
	for _, fd := range cases(md) {
		if !m.Has(fd) {
			continue
		}
		s, err := one(fd, false, m.Get(fd))
		if err != nil {
			return err
		}
		out[rules.GetDataMember()] = s
		tag, _, _ := strings.Cut(fieldRules(fd).GetTag(), ",")
		for _, t := range own(md) {
			if memberName(t) == rules.GetDiscriminator() && m.Get(t).String() == "" && tag != "" {
				out[rules.GetDiscriminator()] = quote(tag)
			}
		}
	}
	fd := md.Fields().ByNumber(unrecognizedNumber)
	if fd == nil || !m.Has(fd) {
		return nil
	}
	s, err := jsonText(m.Get(fd).String())
	out[rules.GetDataMember()] = s
	return err
}

// whole returns the JSON of all that a field holds.
func whole(fd protoreflect.FieldDescriptor, x protoreflect.Value) (string, error) {
	raw := fieldRules(fd).GetRaw()
	var parts []string
	switch {
	case fd.IsList():
		for i := range x.List().Len() {
			s, err := one(fd, raw, x.List().Get(i))
			if err != nil {
				return "", err
			}
			parts = append(parts, s)
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	case fd.IsMap():
		var failure error
		x.Map().Range(func(k protoreflect.MapKey, x protoreflect.Value) bool {
			s, err := one(fd.MapValue(), raw, x)
			failure = err
			parts = append(parts, quote(k.String())+":"+s)
			return err == nil
		})
		return "{" + strings.Join(parts, ",") + "}", failure
	}
	return one(fd, raw, x)
}

func one(fd protoreflect.FieldDescriptor, raw bool, x protoreflect.Value) (string, error) {
	if raw {
		return jsonText(x.String())
	}
	switch fd.Kind() {
	case protoreflect.BoolKind, protoreflect.Int64Kind:
		return fmt.Sprint(x.Interface()), nil
	case protoreflect.DoubleKind:
		if math.IsNaN(x.Float()) || math.IsInf(x.Float(), 0) {
			return "", ErrNoJSON
		}
		return strconv.FormatFloat(x.Float(), 'g', -1, 64), nil
	case protoreflect.StringKind:
		return quote(x.String()), nil
	case protoreflect.BytesKind:
		return quote(base64.StdEncoding.EncodeToString(x.Bytes())), nil
	case protoreflect.EnumKind:
		s, ok := enumText(fd.Enum(), x.Enum())
		if !ok {
			return "", ErrNoJSON
		}
		return quote(s), nil
	}
	if !isTimestamp(fd) {
		return message(x.Message())
	}
	fields := fd.Message().Fields()
	seconds := x.Message().Get(fields.ByName("seconds")).Int()
	nanos := x.Message().Get(fields.ByName("nanos")).Int()
	t := time.Unix(seconds, nanos).UTC()
	if nanos < 0 || nanos > 999_999_999 || seconds < -62135596800 || seconds > 253402300799 {
		return "", ErrNoJSON
	}
	return quote(timeText(t)), nil
}

func jsonText(s string) (string, error) {
	if !json.Valid([]byte(s)) {
		return "", ErrNoJSON
	}
	return s, nil
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}
