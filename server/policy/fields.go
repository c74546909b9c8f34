package policy

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
)

// fieldClass is the kind of resource that a field names.
type fieldClass string

const (
	fieldHost  fieldClass = "host"
	fieldURL   fieldClass = "url"
	fieldPlain fieldClass = "plain"
)

//go:embed fields.txt
var fieldsText string

// fieldClasses are the rows of fields.txt, by full name.
var fieldClasses = mustTable("fields.txt", fieldsText, fieldName, func(word string) (fieldClass, bool) {
	class := fieldClass(word)
	return class, class == fieldHost || class == fieldURL || class == fieldPlain
})

// fieldName expands a name of fields.txt.
func fieldName(short string) protoreflect.FullName {
	if strings.HasPrefix(short, "bridge.v1.") {
		return protoreflect.FullName("copilot." + short)
	}
	return protoreflect.FullName(cliPackage + "." + short)
}

// updateMask is the field of a request that lists fields of another message of the request.
const updateMask = "update_mask"

// The fields of every CLI message with undeclared content.
const (
	jsonExtra    = "json_extra"
	unrecognized = "unrecognized"
)

// CheckFields refuses a request of a caller without the rights of the class host if it names the host, or an address
// that is not on the tenant's list. An update mask names a field like a value of the field does. Members that the
// contract does not declare cannot be checked and are refused too, so json_extra does not bypass the check.
func (t *Tenant) CheckFields(ctx context.Context, m protoreflect.Message) error {
	return (&fieldCheck{ctx: ctx, lists: []*Tenant{t}}).message(m, "")
}

// fieldCheck checks one message.
type fieldCheck struct {
	ctx context.Context
	// lists are the tenants whose lists must all contain a URL.
	lists []*Tenant
}

func (c *fieldCheck) message(m protoreflect.Message, at string) (err error) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := at + string(f.Name())
		switch class := fieldClasses[f.FullName()]; {
		case f.Name() == jsonExtra || f.Name() == unrecognized:
			err = c.undeclared(m.Descriptor(), v.String(), path)
		case f.Name() == updateMask:
			err = c.masked(m.Descriptor(), v.Message(), path)
		case class == fieldHost && !harmless(f, v):
			err = ofHost(path, path)
		case class == fieldURL:
			err = c.url(v.String(), path)
		default:
			err = c.inside(f, v, path)
		}
		return err == nil
	})
	return err
}

// inside checks the messages in a field.
func (c *fieldCheck) inside(f protoreflect.FieldDescriptor, v protoreflect.Value, path string) (err error) {
	switch {
	case f.IsMap() && f.MapValue().Kind() == protoreflect.MessageKind:
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			err = c.message(v.Message(), fmt.Sprintf("%s[%q].", path, k.String()))
			return err == nil
		})
	case f.IsMap() || f.Kind() != protoreflect.MessageKind:
	case f.IsList():
		for i := 0; i < v.List().Len() && err == nil; i++ {
			err = c.message(v.List().Get(i).Message(), fmt.Sprintf("%s[%d].", path, i))
		}
	default:
		err = c.message(v.Message(), path+".")
	}
	return err
}

// harmless reports whether a field is false, which never requests more than an absent one.
func harmless(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	return f.Kind() == protoreflect.BoolKind && !f.IsList() && !v.Bool()
}

// ofHost is the error for a name that affects the host.
func ofHost(name, path string) error {
	return fault.New(fault.Forbidden, "%s affects the host: only the host's owner or a tenant with a sandbox may use it",
		name).WithField(path)
}

// masked refuses an update mask of a session's configuration that lists a field of the host: the server's own value
// would be cleared. The masks of other messages set only fields that the request has.
func (c *fieldCheck) masked(m protoreflect.MessageDescriptor, mask protoreflect.Message, path string) error {
	config := m.Fields().ByName("config")
	if config == nil {
		return nil
	}
	paths := mask.Get(mask.Descriptor().Fields().ByName("paths")).List()
	for i := range paths.Len() {
		name := paths.Get(i).String()
		field := fields.OfPath(config.Message(), name)
		if name == "*" || field != nil && fieldClasses[field.FullName()] == fieldHost {
			return ofHost(strconv.Quote(name), path)
		}
	}
	return nil
}

// undeclared refuses members that the contract does not declare, except null, and members that it declares unless they
// are empty: an empty value names nothing.
func (c *fieldCheck) undeclared(m protoreflect.MessageDescriptor, text, path string) error {
	if onlyDeclaredEmpty(m, text) {
		return nil
	}
	return fault.New(fault.Forbidden, "%s has members that the contract does not declare, so their effect is "+
		"unknown: only the "+
		"host's owner or a tenant with a sandbox may send them", path).WithField(path)
}

// onlyDeclaredEmpty reports whether a text is an object whose members are null or declared and empty. It ends at the
// first that is not, so that a text with millions of members costs no more memory than its longest one.
func onlyDeclaredEmpty(m protoreflect.MessageDescriptor, text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	var value json.RawMessage
	for d.More() {
		name, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			return false
		}
		if string(value) != "null" && !declaredEmpty(m, name.(string), value) {
			return false
		}
	}
	if _, err := d.Token(); err != nil {
		return false
	}
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// declaredEmpty reports whether a value is empty and its member is one of a message of the CLI that does not affect the
// host.
func declaredEmpty(m protoreflect.MessageDescriptor, name string, value json.RawMessage) bool {
	field := m.Fields().ByJSONName(name)
	if m.ParentFile().Package() != cliPackage || field == nil || fieldClasses[field.FullName()] == fieldHost {
		return false
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, value)
	return err == nil && slices.Contains([]string{`[]`, `{}`, `""`}, compact.String())
}

// url refuses an address that is not on the lists.
func (c *fieldCheck) url(text, path string) error {
	if text == "" {
		return nil
	}
	for _, t := range c.lists {
		if err := t.checkURL(c.ctx, text); err != nil {
			return fault.New(fault.Forbidden, "%s: %v", path, err).WithField(path)
		}
	}
	return nil
}
