package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// docs composes the comments of generated elements: text of ours if there is any (see wording.go), then the
// facts of the schemas, such as versions, bounds, defaults and units. An element without either has no comment:
// a comment that repeats the name says nothing. The schemas' texts are not used.
type docs struct {
	plan  *Plan
	words *wording
	cases map[string][]string // by type: the unions and envelopes that contain it, with their tags
}

func newDocs(pl *Plan, w *wording) *docs {
	d := &docs{plan: pl, words: w, cases: map[string][]string{}}
	for _, name := range sortedKeys(pl.Messages) {
		m := pl.Messages[name]
		for _, f := range m.Fields {
			switch {
			case m.Name == eventUnion && f.Case:
				d.cases[f.Type] = append(d.cases[f.Type], fmt.Sprintf("Data of the event %s.", f.Tag))
			case f.Case && f.Tag != "" && m.Discriminator != "" && !m.TopLevel:
				d.cases[f.Type] = append(d.cases[f.Type],
					fmt.Sprintf("A %s with the %s %s.", m.Name, m.Discriminator, f.Tag))
			}
		}
	}
	return d
}

func (d *docs) newest() int { return d.plan.Model.newest() }

// gone reports whether the newest version lacks the element.
func (d *docs) gone(l Life) bool { return l.Last < d.newest() }

// since returns the first version with the element, or an empty string if all versions have it.
func (d *docs) since(l Life) string {
	if l.First == 0 {
		return ""
	}
	return d.plan.Model.Versions[l.First]
}

// last returns the last version with the element, or an empty string if the newest version has it.
func (d *docs) last(l Life) string {
	if !d.gone(l) {
		return ""
	}
	return d.plan.Model.Versions[l.Last]
}

// life names the versions of an element, unless its parent (outer) has the same versions.
func (d *docs) life(l, outer Life) []string {
	var out []string
	if s := d.since(l); s != "" && l.First > outer.First {
		out = append(out, "Since CLI "+s+".")
	}
	if s := d.last(l); s != "" && l.Last < outer.Last {
		out = append(out, "Last in CLI "+s+".")
	}
	return out
}

func sentences(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, " ")
}

func (d *docs) service(s *Service) string {
	what := "methods"
	if s.Root == RootCallback {
		what = "requests and notifications to its client"
	}
	where := "in the namespace " + s.Namespace
	if s.Namespace == "" {
		where = "outside any namespace"
	}
	text := fmt.Sprintf("%s has the CLI's %s %s.", s.Name, what, where)
	if s.Internal {
		text += " They are internal to the CLI, may change without notice, and require the role admin."
	}
	return text
}

func (d *docs) rpc(r *RPC) string {
	x := r.Method
	text := d.words.find(x.Name)
	if text == "" {
		text = x.Doc
	}
	facts := []string{text, "JSON-RPC: " + x.Name + "."}
	if x.Notification {
		facts = append(facts, "A notification, without an answer.")
	}
	if x.Deprecated {
		facts = append(facts, "Deprecated by the CLI.")
	}
	return sentences(append(facts, d.life(x.Life, d.plan.Model.ever())...)...)
}

func (d *docs) message(m *Message) string {
	var facts []string
	if m.TopLevel && m.Shape == ShapeNull {
		facts = append(facts, "The method has no result.")
	}
	text := d.words.find(m.Path)
	if text == "" {
		text = m.Doc
	}
	if text == "" && d.plan.Model.defs[m.Path] != nil {
		text = d.plan.Model.defs[m.Path].Doc
	}
	if text == "" && !m.TopLevel {
		text = d.place(m)
	}
	facts = append(facts, text)
	if m.ParamsOptional {
		facts = append(facts, "The JSON-RPC parameters are optional.")
	}
	if m.Internal && !m.TopLevel {
		facts = append(facts, "Internal to the CLI.")
	}
	if m.Deprecated {
		facts = append(facts, "Deprecated by the CLI.")
	}
	if !m.TopLevel {
		facts = append(facts, d.life(m.Life, d.plan.Model.ever())...)
	}
	return sentences(facts...)
}

// place describes a message by the union that contains it, or by its shape.
func (d *docs) place(m *Message) string {
	if c := d.cases[m.Name]; len(c) > 0 {
		return sentences(c[:min(2, len(c))]...)
	}
	switch m.Shape {
	case ShapeList:
		return "A list. Unlike a repeated field it distinguishes an empty list from an absent one."
	case ShapeMap:
		return "A dictionary in a place for a single value."
	}
	return ""
}

func (d *docs) field(m *Message, f *Field) string {
	if f.Case {
		return d.unionCase(m, f)
	}
	text := d.words.find(m.Path + "." + f.JSON)
	if text == "" {
		text = f.Doc
	}
	if text == "" && f.JSON != "" {
		text = d.words.find("*." + f.JSON)
	}
	if text == "" {
		text = unit(f)
	}
	return sentences(append([]string{text}, d.facts(m, f)...)...)
}

// units are the units that the last word of a field's name may give.
var units = map[string]string{
	"ms": "In milliseconds.", "seconds": "In seconds.", "minutes": "In minutes.", "bytes": "In bytes.",
	"percentage": "In percent.",
}

// unit returns the unit of a number, if its name has one.
func unit(f *Field) string {
	if f.Type == "bool" || f.Type == timestampType {
		return ""
	}
	return units[f.Name[strings.LastIndexByte(f.Name, '_')+1:]]
}

// facts are the schemas' statements about a member besides its type.
func (d *docs) facts(m *Message, f *Field) []string {
	var out []string
	if f.Raw && f.JSON != "" {
		out = append(out, fmt.Sprintf("The member %s, as JSON text.", f.JSON))
	}
	if t := f.Source; t != nil {
		switch t.Format {
		case "uuid":
			out = append(out, "A UUID.")
		case "uri":
			out = append(out, "A URI.")
		}
		out = append(out, bounds(t))
		if s := t.DefaultJSON; s != "" && len(s) < 24 && s[0] != '{' && s[0] != '[' {
			out = append(out, "Default: "+s+".")
		}
	}
	switch {
	case f.Nullable && (f.Required || m.Shape == ShapeValue):
		out = append(out, "Unset means null.")
	case f.Nullable:
		out = append(out, "An explicit null is in json_extra; it differs from an absent member.")
	}
	if f.Internal && !m.Internal {
		out = append(out, "Internal to the CLI.")
	}
	if f.Deprecated {
		out = append(out, "Deprecated by the CLI.")
	}
	return append(out, d.life(f.Life, m.Life)...)
}

func bounds(t *Type) string {
	if t.Kind != KindInt && t.Kind != KindNumber {
		return ""
	}
	switch {
	case t.Min != "" && t.Max != "":
		return fmt.Sprintf("From %s to %s.", t.Min, t.Max)
	case t.Min != "" && t.Min != "0":
		return fmt.Sprintf("At least %s.", t.Min)
	case t.Max != "":
		return fmt.Sprintf("At most %s.", t.Max)
	}
	return ""
}

// unionCase documents an alternative by the text of its message.
func (d *docs) unionCase(m *Message, f *Field) string {
	text := ""
	if cm := d.plan.Messages[f.Type]; cm != nil {
		if text = d.words.find(cm.Path); text == "" {
			text = cm.Doc
		}
	}
	if text == "" {
		text = scalarCase(f)
	}
	switch {
	case f.Tag == "":
	case m.Discriminator != "":
		text = sentences(text, fmt.Sprintf("JSON %s: %s.", m.Discriminator, strings.ReplaceAll(f.Tag, ",", ", ")))
	default:
		text = sentences(text, fmt.Sprintf("For %s.", f.Tag))
	}
	return sentences(append([]string{text}, d.life(f.Life, m.Life)...)...)
}

func scalarCase(f *Field) string {
	switch f.Type {
	case "string":
		return "A string."
	case "bool":
		return "A boolean."
	case "double", "int64":
		return "A number."
	}
	switch f.Name {
	case "list":
		return "An array."
	case "map":
		return "A dictionary."
	}
	return ""
}

func (d *docs) oneof(m *Message) string {
	if m.Shape == ShapeEnvelope {
		return fmt.Sprintf("The member %s; the member %s determines its type.", m.DataMember, m.Discriminator)
	}
	if m.Discriminator != "" {
		return fmt.Sprintf("The member %s selects the alternative.", m.Discriminator)
	}
	if slices.ContainsFunc(m.Fields, func(f *Field) bool { return f.Tag != "" }) {
		return "The JSON does not contain the alternative; the message that contains it does."
	}
	return "The form of the JSON selects the alternative."
}

func (d *docs) unrecognizedCase(m *Message) string {
	if m.Shape == ShapeEnvelope {
		return fmt.Sprintf("The member %s for an unknown %s or an unexpected form, as JSON text.", m.DataMember,
			m.Discriminator)
	}
	return "A value that matches no alternative, as JSON text."
}

func (d *docs) enum(e *Enum) string {
	text := d.words.find(e.Path)
	if text == "" {
		text = e.Doc
	}
	facts := []string{text}
	if e.Open {
		facts = append(facts, "Newer CLIs may add values.")
	}
	return sentences(append(facts, d.life(e.Life, d.plan.Model.ever())...)...)
}

func (d *docs) enumValue(e *Enum, v *EnumValue) string {
	text := d.words.find(e.Path + "=" + v.JSON)
	if text == "" {
		text = v.Doc
	}
	return sentences(append([]string{text, fmt.Sprintf("JSON: %q.", v.JSON)}, d.life(v.Life, e.Life)...)...)
}
