package reference

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// union sets the alternative that a value fits.
func (e encoder) union(m *dynamicpb.Message, v *value) bool {
	for _, fd := range candidates(m.Descriptor(), v) {
		if x, ok := e.one(fd, fieldRules(fd).GetRaw(), v); ok {
			m.Set(fd, x)
			return true
		}
	}
	return false
}

// candidates returns the alternatives to try, in order.
func candidates(md protoreflect.MessageDescriptor, v *value) []protoreflect.FieldDescriptor {
	discriminator := messageRules(md).GetDiscriminator()
	if v.kind == 'o' && discriminator != "" {
		if fd := byDiscriminator(md, v.member(discriminator)); fd != nil {
			return []protoreflect.FieldDescriptor{fd}
		}
	}
	var out []protoreflect.FieldDescriptor
	for _, fd := range cases(md) {
		if !strings.Contains(kinds(fd), string(v.kind)) {
			continue
		}
		if v.kind == 'o' && discriminator != "" && fieldRules(fd).GetTag() != "" {
			continue
		}
		out = append(out, fd)
	}
	slices.SortStableFunc(out, func(a, b protoreflect.FieldDescriptor) int { return breadth(a) - breadth(b) })
	if v.kind != 'o' || len(out) < 2 {
		return out
	}
	out = slices.DeleteFunc(out, func(fd protoreflect.FieldDescriptor) bool { return score(fd, v) < 0 })
	slices.SortStableFunc(out, func(a, b protoreflect.FieldDescriptor) int { return score(a, v) - score(b, v) })
	return out[:min(len(out), 1)]
}

func byDiscriminator(md protoreflect.MessageDescriptor, v *value) protoreflect.FieldDescriptor {
	if v == nil {
		return nil
	}
	switch v.kind {
	case 's':
		if s, ok := v.text(); ok {
			return tagged(md, s)
		}
	case 'b':
		return tagged(md, v.raw)
	case '#':
		for _, fd := range cases(md) {
			for tag := range strings.SplitSeq(fieldRules(fd).GetTag(), ",") {
				if json.Valid([]byte(tag)) && strings.IndexByte("-0123456789", tag[0]) >= 0 &&
					canonicalNumber(tag) == canonicalNumber(v.raw) {
					return fd
				}
			}
		}
	}
	return nil
}

// score rates an alternative for an object, negative when a const rules it out.
func score(fd protoreflect.FieldDescriptor, v *value) int {
	switch {
	case fieldRules(fd).GetRaw():
		return 1000
	case fd.Message() == nil || !isObject(fd.Message()):
		return 10
	}
	md := fd.Message()
	n, declared := 0, map[string]bool{messageRules(md).GetDataMember(): true}
	for _, c := range messageRules(md).GetConsts() {
		declared[c.GetName()] = true
		got := v.member(c.GetName())
		if got == nil {
			n += 100
		} else if want, err := Canonical([]byte(c.GetValueJson())); err != nil || got.canonical() != want {
			return -1
		}
	}
	for _, fd := range own(md) {
		declared[memberName(fd)] = true
		got := v.member(memberName(fd))
		switch {
		case got == nil && fieldRules(fd).GetRequired():
			n += 100
		case got != nil && got.kind != 'n' && !strings.Contains(kinds(fd), string(got.kind)):
			n++
		}
	}
	for _, p := range v.members {
		if name, ok := p.name.text(); !ok || !declared[name] {
			n++
		}
	}
	return n
}
