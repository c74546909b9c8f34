package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// requestInput is where the JSON of a call comes from: an argument, a file or stdin.
func requestInput(stdin io.Reader, method protoreflect.MethodDescriptor, args []string) (io.Reader, error) {
	switch {
	case len(args) == 0 && method.IsStreamingClient() || len(args) == 1 && args[0] == "-":
		return stdin, nil
	case len(args) == 0:
		return strings.NewReader("{}"), nil
	}
	name, ok := strings.CutPrefix(args[0], "@")
	if !ok {
		return strings.NewReader(args[0]), nil
	}
	text, err := os.ReadFile(name)
	return bytes.NewReader(text), err
}

// requests returns what to send, io.EOF after the last.
func requests(input io.Reader, d protoreflect.MessageDescriptor) func() (proto.Message, error) {
	decoder := json.NewDecoder(input)
	return func() (proto.Message, error) {
		var text json.RawMessage
		if err := decoder.Decode(&text); err != nil {
			if !errors.Is(err, io.EOF) {
				err = usageError{fmt.Errorf("the request is not JSON: %w", err)}
			}
			return nil, err
		}
		m, err := newMessage(d)
		if err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(text, m); err != nil {
			if named := misnamed(text, d); named != nil {
				return nil, usageError{named}
			}
			return nil, usageError{fmt.Errorf("the request is not a %s: %w", d.FullName(), err)}
		}
		return m, nil
	}
}

// newMessage returns an empty message of the generated type.
func newMessage(d protoreflect.MessageDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// misnamed returns an error about the first member or enum value in the JSON that a message does not have, with the
// name that may have been meant; nil if the names are right.
func misnamed(text []byte, d protoreflect.MessageDescriptor) error {
	var members map[string]json.RawMessage
	if wellKnown(d) || json.Unmarshal(text, &members) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field := fieldNamed(d, name)
		if field == nil {
			return fmt.Errorf("%s has no field %q%s", d.FullName(), name, suggestion(name, fieldNames(d)))
		}
		if err := misnamedIn(members[name], field); err != nil {
			return err
		}
	}
	return nil
}

// misnamedIn does the same for the value of a field: one value, a list or a map.
func misnamedIn(value json.RawMessage, field protoreflect.FieldDescriptor) error {
	values := []json.RawMessage{value}
	switch {
	case field.IsMap():
		var entries map[string]json.RawMessage
		_ = json.Unmarshal(value, &entries) // anything else has no names
		values, field = slices.Collect(maps.Values(entries)), field.MapValue()
	case field.IsList():
		values = nil
		_ = json.Unmarshal(value, &values) // anything else has no names
	}
	for _, one := range values {
		var name string
		switch {
		case field.Message() != nil:
			if err := misnamed(one, field.Message()); err != nil {
				return err
			}
		case field.Enum() != nil && json.Unmarshal(one, &name) == nil:
			if field.Enum().Values().ByName(protoreflect.Name(name)) == nil {
				return fmt.Errorf("%s has no value %q%s", field.Enum().FullName(), name,
					suggestion(name, valueNames(field.Enum())))
			}
		}
	}
	return nil
}

// wellKnown reports whether the JSON of a message is not an object of its fields.
func wellKnown(d protoreflect.MessageDescriptor) bool {
	return d.ParentFile().Package() == "google.protobuf"
}

// fieldNamed is the field with a name, in either of the two forms that JSON may have.
func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := d.Fields().ByJSONName(name); field != nil {
		return field
	}
	return d.Fields().ByTextName(name)
}

func fieldNames(d protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	return names
}

func valueNames(d protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range d.Values().Len() {
		names = append(names, string(d.Values().Get(i).Name()))
	}
	return names
}

// maxListed bounds the names in an error that has no better suggestion.
const maxListed = 8

// suggestion is the end of an error about a name that does not exist: the nearest name, or all if they are few.
func suggestion(name string, names []string) string {
	near := setting.Nearest(name, names)
	switch {
	case near != "":
		return fmt.Sprintf("; did you mean %q?", near)
	case len(names) == 0:
		return "; it has none"
	case len(names) <= maxListed:
		return "; it has " + strings.Join(names, ", ")
	}
	return ""
}
