// Package redact removes secrets from requests and errors for logs: fields that the contract marks as secret, and
// text that looks like a credential. It has no state.
package redact

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Mark replaces removed text.
const Mark = "[redacted]"

// maxText bounds the logged part of a message.
const maxText = 4 << 10

// Message returns m as JSON, without the fields that are marked debug_redact or that carry opaque JSON. It is
// truncated after 4 KiB.
func Message(m proto.Message) string {
	c := proto.Clone(m)
	scrub(c.ProtoReflect())
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c)
	if err != nil {
		return Mark
	}
	if len(b) > maxText {
		return strings.ToValidUTF8(string(b[:maxText]), "") + "…"
	}
	return string(b)
}

// scrub removes the secrets from m and its submessages.
func scrub(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case secret(fd):
			conceal(m, fd)
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					scrub(v.Message())
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				scrub(v.List().Get(i).Message())
			}
		default:
			scrub(v.Message())
		}
		return true
	})
}

// secret reports that the contract marks fd as secret, or that it is opaque JSON.
func secret(fd protoreflect.FieldDescriptor) bool {
	if o, ok := fd.Options().(*descriptorpb.FieldOptions); ok && o.GetDebugRedact() {
		return true
	}
	name := string(fd.Name())
	return name == "json_extra" || name == "unrecognized" || strings.HasSuffix(name, "_json")
}

// conceal replaces the value of fd by one that shows that there was a value.
func conceal(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	if fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated {
		m.Set(fd, protoreflect.ValueOfString(Mark))
		return
	}
	m.Clear(fd)
}

// secrets matches the forms of credentials in error texts.
var secrets = regexp.MustCompile(`\b(?:gh[opsur]_|github_pat_|sk-)[A-Za-z0-9_-]{8,}|(?i:\b(?:bearer|token|basic)\s+)[A-Za-z0-9._~+/=-]{8,}|(?i:\b(?:api[_-]?key|token|secret|password)["']?\s*[:=]\s*["']?)[^\s"',;&]+`)

// Text returns s without text that looks like a credential.
func Text(s string) string { return secrets.ReplaceAllString(s, Mark) }
