package request

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// allFields is the path of a mask that lists all fields.
const allFields = "*"

// masked returns the fields of a message that an update mask lists. what names the message in errors, and at is the
// path of the mask.
func masked(
	m protoreflect.MessageDescriptor, mask *fieldmaskpb.FieldMask, what, at string,
) (listed []protoreflect.FieldDescriptor, err error) {
	paths := mask.GetPaths()
	if slices.Equal(paths, []string{allFields}) {
		paths = nil
		for i := range m.Fields().Len() {
			if m.Fields().Get(i).Name() != jsonExtra {
				listed = append(listed, m.Fields().Get(i))
			}
		}
	}
	for _, path := range paths {
		field := fields.OfPath(m, path)
		// json_extra is not a member of the CLI's object: it holds several.
		if field == nil || path == jsonExtra {
			return nil, fault.New(fault.InvalidField, "the %s has no field %q", what, path).WithField(at)
		}
		listed = append(listed, field)
	}
	return listed, nil
}

// jsonExtra is the field of every message of the CLI with members that the contract does not declare.
const jsonExtra = "json_extra"

// clearListed gives the listed lists and maps without a value the value [] or {}, and returns the other listed members
// without a value. at is the path of the mask.
func clearListed(o *session.Opening, mask *fieldmaskpb.FieldMask, at string) (removed []string, err error) {
	listed, err := masked((*cliv1.SessionConfig)(nil).ProtoReflect().Descriptor(), mask, "configuration", at)
	if err != nil {
		return nil, err
	}
	for _, field := range listed {
		name := field.JSONName()
		switch {
		case name == tools:
			if o.Tools == nil {
				o.Tools = &[]config.Tool{}
			}
		case o.Config.Get(name) != nil:
		case field.IsList():
			o.Config.Set(name, json.RawMessage(`[]`))
		case field.IsMap():
			o.Config.Set(name, json.RawMessage(`{}`))
		default:
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// tools is the member of a configuration that an Opening has apart.
const tools = "tools"

// remove removes members from the configuration of a session that an Opening resumes. Sessions of tenants that begin
// with the empty session's configuration return to its values.
func (p *Parser) remove(c caller.Caller, o *session.Opening, removed []string) {
	for _, name := range removed {
		if value := p.initial(c, name); value != nil {
			o.Config = o.Config.Clone()
			o.Config.Set(name, value)
		} else {
			o.Removed = append(o.Removed, name)
		}
	}
}

// initial returns the value of a member in the empty session of the caller's tenant; nil if the empty session does not
// have the member, or if the tenant's sessions do not begin empty.
func (p *Parser) initial(c caller.Caller, name string) json.RawMessage {
	switch {
	case p.cfg.Ambient(c.Tenant):
		return nil
	case name == systemMessage:
		return withoutEnvironment(nil)
	}
	return emptyConfig.Get(name)
}
