package apidoc

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// page documents a file: its services, then its messages, then its enums.
func (r *reference) page(f *protogen.File) string {
	w := &writer{r: r, page: pageOf(f)}
	w.line("# %s\n", f.Desc.Path())
	methods := ", [all methods of the CLI](../methods.md)"
	if r.options.Package != "" {
		methods = ""
	}
	w.line("Package `%s`. [All services](../README.md)%s.\n", f.Desc.Package(), methods)
	for _, s := range f.Services {
		w.service(s)
	}
	for _, m := range f.Messages {
		w.message(m)
	}
	for _, e := range f.Enums {
		w.enum(e)
	}
	for _, x := range f.Extensions {
		w.line("## Option (%s)\n\n%s Of type %s, number %d.\n", x.Desc.FullName(), prose(x.Comments.Leading),
			w.typeOf(x), x.Desc.Number())
	}
	return w.String()
}

// writer writes one page.
type writer struct {
	strings.Builder
	r    *reference
	page string
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}

func (w *writer) service(s *protogen.Service) {
	w.line("## %s\n\n%s\n", s.Desc.Name(), prose(s.Comments.Leading))
	for _, m := range s.Methods {
		w.line("### %s\n", rpcHeading(m))
		w.line("Takes %s%s, gives %s%s.\n", stream(m.Desc.IsStreamingClient()), w.link(m.Input.Desc),
			stream(m.Desc.IsStreamingServer()), w.link(m.Output.Desc))
		w.line("%s\n", prose(m.Comments.Leading))
	}
}

func rpcHeading(m *protogen.Method) string {
	return fmt.Sprintf("%s.%s", m.Parent.Desc.Name(), m.Desc.Name())
}

func stream(is bool) string {
	if is {
		return "a stream of "
	}
	return ""
}

func (w *writer) message(m *protogen.Message) {
	if m.Desc.IsMapEntry() {
		return
	}
	w.line("## %s\n\n%s\n", nameIn(m.Desc), prose(m.Comments.Leading))
	if len(m.Fields) > 0 {
		w.line("| Field | Type | Number | Meaning |\n|---|---|--:|---|")
		for _, f := range m.Fields {
			w.field(f)
		}
		w.line("")
	}
	for _, n := range m.Messages {
		w.message(n)
	}
	for _, e := range m.Enums {
		w.enum(e)
	}
}

func (w *writer) field(f *protogen.Field) {
	text := cell(f.Comments.Leading)
	if o := f.Oneof; o != nil && !o.Desc.IsSynthetic() {
		text = fmt.Sprintf("One of `%s`. %s", o.Desc.Name(), text)
	}
	opts, _ := f.Desc.Options().(*descriptorpb.FieldOptions)
	if opts.GetDeprecated() {
		text = "**Deprecated.** " + text
	}
	if opts.GetDebugRedact() {
		text += " Secret: left out of logs."
	}
	if most := maxItems(opts); most > 0 {
		text += fmt.Sprintf(" At most %d elements in a request.", most)
	}
	w.line("| `%s` | %s | %d | %s |", f.Desc.Name(), w.typeOf(f), f.Desc.Number(), text)
}

// maxItemsNumber is the number of the option copilot.bridge.v1.max_items. The generator reads the option by its number,
// because its Go code is generated in the same run.
const maxItemsNumber = 51210

// maxItems returns the bound of a repeated or map field; 0 if it has none of its own.
func maxItems(opts *descriptorpb.FieldOptions) uint64 {
	for rest := []byte(opts.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return 0
		}
		if number == maxItemsNumber && kind == protowire.VarintType {
			most, _ := protowire.ConsumeVarint(rest[n:])
			return most
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if size < 0 {
			return 0
		}
		rest = rest[n+size:]
	}
	return 0
}

// typeOf is a field's type, with a link where it has a page.
func (w *writer) typeOf(f *protogen.Field) string {
	switch {
	case f.Desc.IsMap():
		value := f.Message.Fields[1]
		return fmt.Sprintf("map of %s to %s", f.Message.Fields[0].Desc.Kind(), w.single(value))
	case f.Desc.IsList():
		return "repeated " + w.single(f)
	case f.Desc.HasOptionalKeyword():
		return "optional " + w.single(f)
	}
	return w.single(f)
}

func (w *writer) single(f *protogen.Field) string {
	switch {
	case f.Enum != nil:
		return w.link(f.Enum.Desc)
	case f.Message != nil:
		return w.link(f.Message.Desc)
	}
	return f.Desc.Kind().String()
}

// link names a message or an enum, with a link if it is documented here.
func (w *writer) link(d protoreflect.Descriptor) string {
	page, ok := w.r.pages[string(d.FullName())]
	switch source := w.r.options.Source; {
	case !ok && source != "" && strings.HasPrefix(string(d.FullName()), "copilot."):
		return fmt.Sprintf("[%s](%s)", d.FullName(), relative(w.page, path.Join(source, d.ParentFile().Path())))
	case !ok:
		return string(d.FullName())
	}
	target := "#" + anchor(nameIn(d))
	if page != w.page {
		target = relative(w.page, page) + target
	}
	return fmt.Sprintf("[%s](%s)", nameIn(d), target)
}

// relative is the path of a page as seen from another.
func relative(from, to string) string {
	switch dir := path.Dir(from); {
	case dir == ".":
		return to
	case dir == path.Dir(to):
		return path.Base(to)
	}
	return "../" + to
}

// nameIn is a name within its package.
func nameIn(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

func (w *writer) enum(e *protogen.Enum) {
	w.line("## %s\n\n%s\n", nameIn(e.Desc), prose(e.Comments.Leading))
	w.line("| Value | Number | Meaning |\n|---|--:|---|")
	for _, v := range e.Values {
		text := cell(v.Comments.Leading)
		if opts, _ := v.Desc.Options().(*descriptorpb.EnumValueOptions); opts.GetDeprecated() {
			text = "**Deprecated.** " + text
		}
		w.line("| `%s` | %d | %s |", v.Desc.Name(), v.Desc.Number(), text)
	}
	w.line("")
}
