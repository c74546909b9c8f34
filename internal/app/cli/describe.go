package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/gen/comments"
)

const describeUsage = `Explains the API: services, methods, messages and enums, with an example of each method's request.

  copilot-grpc describe                           list the services
  copilot-grpc describe SessionService            list the methods of a service
  copilot-grpc describe Run                       a method
  copilot-grpc describe SessionConfig             a message or an enum

NAME is used as in "copilot-grpc call". It calls no server: the command contains the description of this API.`

func setupDescribe(p *program, f *flags) action {
	p.noPagerFlag(f)
	return func(_ context.Context, args []string) error {
		p.page()
		texts, err := readComments()
		if err != nil {
			return err
		}
		d := &describer{out: p.stdout, comments: texts}
		if len(args) == 0 {
			return d.services()
		}
		found, err := findDescriptor(args[0])
		if err != nil {
			return usageError{err}
		}
		return d.describe(found)
	}
}

// readComments returns the comments of the .proto files by the full names of what they are about.
var readComments = sync.OnceValues(func() (map[protoreflect.FullName]string, error) {
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(comments.Compressed)))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(zipped)
	if err != nil {
		return nil, err
	}
	list := map[protoreflect.FullName]string{}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		name, comment, _ := strings.Cut(entry, "\n")
		list[protoreflect.FullName(name)] = comment
	}
	return list, nil
})

// findDescriptor finds a method, a service, a message or an enum by its full or short name.
func findDescriptor(name string) (protoreflect.Descriptor, error) {
	if d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name)); err == nil {
		return d, nil
	}
	for _, pkg := range packages {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(pkg + "." + protoreflect.FullName(name))
		if err == nil {
			return d, nil
		}
	}
	method, err := findMethod(name)
	if err == nil {
		return method, nil
	}
	if strings.Contains(name, "/") {
		return nil, err
	}
	var names []string
	for _, pkg := range packages {
		names = append(names, declared(pkg)...)
	}
	for _, m := range methodsOf(packages[0]) {
		names = append(names, string(m.Name()))
	}
	return nil, fmt.Errorf("there is no service, method, message or enum %q%s", name, suggestion(name, names))
}

// declared are the names of the services, messages and enums of a package, without those inside messages.
func declared(pkg protoreflect.FullName) []string {
	var names []string
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			names = append(names, string(file.Services().Get(i).Name()))
		}
		for i := range file.Messages().Len() {
			names = append(names, string(file.Messages().Get(i).Name()))
		}
		for i := range file.Enums().Len() {
			names = append(names, string(file.Enums().Get(i).Name()))
		}
		return true
	})
	slices.Sort(names)
	return names
}

func completeDescribe(_ context.Context, _ *program, _ *flags, args []string, word string) []cobra.Completion {
	if len(args) > 0 {
		return nil
	}
	names := methodNames(word)
	for _, pkg := range packages {
		for _, name := range declared(pkg) {
			if strings.Contains(word, ".") {
				name = string(pkg) + "." + name
			}
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, word) })
}

type describer struct {
	out      io.Writer
	comments map[protoreflect.FullName]string
	text     strings.Builder
}

func (d *describer) services() error {
	rows := table{columns: []column{{head: "SERVICE"}, {head: "METHODS"}, {head: "MEANING", least: 20}}}
	for _, pkg := range packages {
		for _, s := range services(pkg) {
			rows.add(nil, string(s.FullName()), fmt.Sprint(s.Methods().Len()), d.summary(s))
		}
	}
	return rows.print(d.out)
}

// describe prints what a descriptor is.
func (d *describer) describe(of protoreflect.Descriptor) error {
	var err error
	switch of := of.(type) {
	case protoreflect.ServiceDescriptor:
		d.head("service", of)
		for i := range of.Methods().Len() {
			m := of.Methods().Get(i)
			d.member(signature(m), d.summary(m))
		}
	case protoreflect.MethodDescriptor:
		err = d.method(of)
	case protoreflect.MessageDescriptor:
		d.message(of)
	case protoreflect.EnumDescriptor:
		d.head("enum", of)
		for i := range of.Values().Len() {
			v := of.Values().Get(i)
			d.member(string(v.Name()), d.comments[v.FullName()])
		}
	default: // a field or a value: what it is a part of
		if parent := of.Parent(); parent != nil && parent != of.ParentFile() {
			return d.describe(parent)
		}
		return usageError{fmt.Errorf("%q is not a service, a method, a message or an enum", of.FullName())}
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(d.out, fit(d.text.String(), terminalWidth(d.out)))
	return err
}

func (d *describer) head(kind string, of protoreflect.Descriptor) {
	fmt.Fprintf(&d.text, "%s %s\n\n", kind, of.FullName())
	if comment := d.comments[of.FullName()]; comment != "" {
		d.text.WriteString(indent(comment, "  ") + "\n\n")
	}
}

func (d *describer) member(line, comment string) {
	d.text.WriteString("  " + line + "\n")
	if comment != "" {
		d.text.WriteString(indent(comment, "      ") + "\n")
	}
}

func (d *describer) method(m protoreflect.MethodDescriptor) error {
	d.head("method", m)
	d.text.WriteString(signature(m) + "\n\n")
	d.message(m.Input())
	text, err := exampleRequest(m.Input())
	if err != nil {
		return err
	}
	name := shortName(m)
	if found, err := findMethod(string(m.Name())); err == nil && found == m {
		name = string(m.Name())
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return err
	}
	line := fmt.Sprintf("copilot-grpc call %s %s", name, quote(pretty.String()))
	d.text.WriteString("\nexample\n\n" + indent(line, "  ") + "\n")
	return nil
}

func (d *describer) message(m protoreflect.MessageDescriptor) {
	d.head("message", m)
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		line := f.JSONName() + "  " + typeName(f)
		if oneof := f.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			line += "  (one of " + string(oneof.Name()) + ")"
		}
		d.member(line, d.comments[f.FullName()])
	}
}

// summary is the first sentence of a comment.
func (d *describer) summary(of protoreflect.Descriptor) string {
	text := strings.Join(strings.Fields(d.comments[of.FullName()]), " ")
	first, _, more := strings.Cut(text, ". ")
	if more {
		first += "."
	}
	return first
}

func signature(m protoreflect.MethodDescriptor) string {
	stream := map[bool]string{true: "stream "}
	return fmt.Sprintf("%s(%s%s) returns (%s%s)", m.Name(), stream[m.IsStreamingClient()], m.Input().Name(),
		stream[m.IsStreamingServer()], m.Output().Name())
}

// typeName is the type of a field. Names of the field's own package are short.
func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeName(f.MapKey()), typeName(f.MapValue()))
	case f.IsList():
		return "list of " + elementType(f)
	}
	return elementType(f)
}

func elementType(f protoreflect.FieldDescriptor) string {
	var named protoreflect.Descriptor
	switch {
	case f.Enum() != nil:
		named = f.Enum()
	case f.Message() != nil:
		named = f.Message()
	default:
		return f.Kind().String()
	}
	pkg := string(f.ParentFile().Package()) + "."
	return strings.TrimPrefix(string(named.FullName()), pkg)
}

// indent puts a prefix before each line that is not empty.
func indent(text, prefix string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = prefix + line
		}
	}
	return strings.Join(lines, "\n")
}
