package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// docs composes the comments of generated elements: our own words where there
// are some (see wording.go), else a phrase made from the name; then the facts
// that the schemas give. The schemas' texts are not used.
type docs struct {
	plan  *Plan
	words *wording
	users map[string][]string // by type: the fields that have it
	cases map[string][]string // by type: what selects it in unions and envelopes
}

func newDocs(pl *Plan, w *wording) *docs {
	d := &docs{plan: pl, words: w, users: map[string][]string{}, cases: map[string][]string{}}
	for _, name := range sortedKeys(pl.Messages) {
		m := pl.Messages[name]
		for _, f := range m.Fields {
			switch {
			case m.Name == eventUnion && f.Case:
				d.cases[f.Type] = append(d.cases[f.Type], fmt.Sprintf("Data of the event %s.", f.Tag))
			case f.Case && f.Tag != "" && m.Discriminator != "" && !m.TopLevel:
				d.cases[f.Type] = append(d.cases[f.Type], fmt.Sprintf("A %s with the %s %s.", m.Name, m.Discriminator, f.Tag))
			case !f.Case && f.JSON != "":
				d.users[f.Type] = append(d.users[f.Type], m.Name+"."+f.Name)
			}
		}
	}
	return d
}

func (d *docs) newest() int { return d.plan.Model.newest() }

// gone reports that the newest version has the element no more.
func (d *docs) gone(l Life) bool { return l.Last < d.newest() }

// since is the first version that has the element; empty when all have it.
func (d *docs) since(l Life) string {
	if l.First == 0 {
		return ""
	}
	return d.plan.Model.Versions[l.First]
}

// last is the last version that has the element; empty while the newest does.
func (d *docs) last(l Life) string {
	if !d.gone(l) {
		return ""
	}
	return d.plan.Model.Versions[l.Last]
}

// life says in which versions an element is found. What holds for the thing
// around it (outer) is not said again.
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

// ever is the life of what is always there.
func (d *docs) ever() Life { return Life{0, d.newest()} }

func sentences(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, " ")
}

func (d *docs) service(s *Service) string {
	what := "the CLI's methods"
	if s.Root == RootCallback {
		what = "what the CLI asks of its client, and tells it,"
	}
	where := "under " + s.Namespace
	if s.Namespace == "" {
		where = "outside any namespace"
	}
	text := fmt.Sprintf("%s has %s %s.", s.Name, what, where)
	if s.Internal {
		text += " They are internal to the CLI: no stability is promised, and only the authorised may call them."
	}
	return text
}

func (d *docs) rpc(r *RPC) string {
	x := r.Method
	text := d.words.find(x.Name)
	if text == "" {
		text = x.Doc
	}
	if text == "" {
		text = methodPhrase(x.Name)
	}
	if text == "" {
		text = "Calls " + x.Name + "."
	} else {
		text += " JSON-RPC: " + x.Name + "."
	}
	facts := []string{text}
	if x.Notification {
		facts = append(facts, "A notification: nothing is answered.")
	}
	if x.Deprecated {
		facts = append(facts, "Deprecated by the CLI.")
	}
	return sentences(append(facts, d.life(x.Life, d.ever())...)...)
}

func (d *docs) message(m *Message) string {
	var facts []string
	if m.TopLevel {
		facts = append(facts, topPhrase(m))
	}
	text := d.words.find(m.Path)
	if text == "" {
		text = m.Doc
	}
	if text == "" && d.plan.Model.defs[m.Path] != nil {
		text = d.plan.Model.defs[m.Path].Doc
	}
	if text == "" && !m.TopLevel {
		text = d.messagePhrase(m)
	}
	facts = append(facts, text)
	if m.ParamsOptional {
		facts = append(facts, "They may be left out altogether.")
	}
	if m.Internal && !m.TopLevel {
		facts = append(facts, "Internal to the CLI.")
	}
	if m.Deprecated {
		facts = append(facts, "Deprecated by the CLI.")
	}
	if !m.TopLevel {
		facts = append(facts, d.life(m.Life, d.ever())...)
	}
	return sentences(facts...)
}

func topPhrase(m *Message) string {
	if strings.HasSuffix(m.Name, "Request") {
		return fmt.Sprintf("Parameters of %s.", m.Method.Name)
	}
	if m.Shape == ShapeNull {
		return fmt.Sprintf("%s has no result.", m.Method.Name)
	}
	return fmt.Sprintf("Result of %s.", m.Method.Name)
}

func (d *docs) messagePhrase(m *Message) string {
	if c := d.cases[m.Name]; len(c) > 0 {
		return sentences(c[:min(2, len(c))]...)
	}
	switch m.Shape {
	case ShapeList:
		return "A list. Unlike a bare repeated field it tells an empty list from an absent one."
	case ShapeMap:
		return "A dictionary that stands where only one value fits."
	}
	return sentences(nounPhrase(m.Name), d.usedBy(m.Name))
}

// usedBy names the first fields of a type.
func (d *docs) usedBy(name string) string {
	u := d.users[name]
	switch {
	case len(u) == 0:
		return ""
	case len(u) > 2:
		return fmt.Sprintf("Used by %s, %s and others.", u[0], u[1])
	}
	return "Used by " + strings.Join(u, " and ") + "."
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
		text = fieldPhrase(f, d.plan.Enums[f.Type] != nil)
	}
	return sentences(append([]string{text}, d.facts(m, f)...)...)
}

// facts are what the schemas say about a member, besides its type.
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
		out = append(out, "Unset stands for null.")
	case f.Nullable:
		out = append(out, "An explicit null, which is not the same as absence, stands in json_extra.")
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

// unionCase documents an alternative by what its message says.
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
	return nounPhrase(f.Name)
}

func (d *docs) oneof(m *Message) string {
	if m.Shape == ShapeEnvelope {
		return fmt.Sprintf("The member %s, in the form that %s calls for.", m.DataMember, m.Discriminator)
	}
	if m.Discriminator != "" {
		return fmt.Sprintf("One of these, told apart by the member %s.", m.Discriminator)
	}
	if slices.ContainsFunc(m.Fields, func(f *Field) bool { return f.Tag != "" }) {
		return "One of these. The JSON does not say which: what it belongs to does."
	}
	return "One of these, told apart by their form."
}

func (d *docs) extra() string {
	return "Members that no field above can hold, as the text of one JSON object."
}

func (d *docs) unrecognizedResult() string {
	return "A result of another form than the one above, as JSON text."
}

func (d *docs) unrecognizedCase(m *Message) string {
	if m.Shape == ShapeEnvelope {
		return fmt.Sprintf("The member %s of an unknown %s, or of a form that does not fit, as JSON text.", m.DataMember, m.Discriminator)
	}
	return "A value that fits none of them, as JSON text."
}

func (d *docs) enum(e *Enum) string {
	text := d.words.find(e.Path)
	if text == "" {
		text = e.Doc
	}
	if text == "" {
		text = sentences(nounPhrase(e.Name), d.usedBy(e.Name))
	}
	if e.Open {
		text += " More values may come with newer CLIs."
	}
	return sentences(append([]string{text}, d.life(e.Life, d.ever())...)...)
}

func (d *docs) unspecified(*Enum) string {
	return "Unset, null, or a value that is not listed here: json_extra has it then."
}

func (d *docs) enumValue(e *Enum, v *EnumValue) string {
	text := d.words.find(e.Path + "=" + v.JSON)
	if text == "" {
		text = v.Doc
	}
	return sentences(append([]string{text, fmt.Sprintf("JSON: %q.", v.JSON)}, d.life(v.Life, e.Life)...)...)
}
