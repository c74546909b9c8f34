// Package redact makes requests and errors fit for logs: what the contract marks as
// secret, and what looks like one, does not get there.
package redact

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Mark stands where something was left out.
const Mark = "[redacted]"

// maxText is how much of a message is logged.
const maxText = 4 << 10

// Message returns m as JSON without the fields that are marked debug_redact, or that
// carry JSON of which nobody knows what it holds. It is cut after 4 KiB.
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

// scrub takes the secrets out of m and what is in it.
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

// conceal replaces the value of fd by one that tells that there was one.
func conceal(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	if fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated {
		m.Set(fd, protoreflect.ValueOfString(Mark))
		return
	}
	m.Clear(fd)
}

// secrets are the forms in which credentials turn up in error texts.
var secrets = regexp.MustCompile(`\b(?:gh[opsur]_|github_pat_|sk-)[A-Za-z0-9_-]{8,}|(?i:\b(?:bearer|token|basic)\s+)[A-Za-z0-9._~+/=-]{8,}|(?i:\b(?:api[_-]?key|token|secret|password)["']?\s*[:=]\s*["']?)[^\s"',;&]+`)

// Text returns s without what looks like a credential.
func Text(s string) string { return secrets.ReplaceAllString(s, Mark) }
