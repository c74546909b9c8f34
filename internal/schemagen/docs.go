package schemagen

import (
	"fmt"
	"strings"
)

// docs composes the comments of generated elements from facts and from our own
// words; the schemas' texts are not used.
type docs struct {
	plan *Plan
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

func (d *docs) service(s *Service) string {
	what := "The CLI's methods"
	if s.Root == RootCallback {
		what = "What the CLI asks of its client"
	}
	if s.Internal {
		what = "Internal: " + strings.ToLower(what[:1]) + what[1:]
	}
	if s.Namespace == "" {
		return fmt.Sprintf("%s: %s outside any namespace.", s.Name, what)
	}
	return fmt.Sprintf("%s: %s under %s.", s.Name, what, s.Namespace)
}

func (d *docs) rpc(r *RPC) string {
	text := r.Method.Doc
	if text == "" {
		text = fmt.Sprintf("Calls %s.", r.Method.Name)
	}
	return text
}

func (d *docs) message(m *Message) string {
	if m.Doc != "" {
		return m.Doc
	}
	return "JSON: " + m.Path + "."
}

func (d *docs) field(m *Message, f *Field) string {
	if f.Doc != "" {
		return f.Doc
	}
	return strings.ReplaceAll(f.Name, "_", " ") + "."
}

func (d *docs) oneof(m *Message) string {
	if m.Shape == ShapeEnvelope {
		return fmt.Sprintf("The payload, by %s.", m.Discriminator)
	}
	return "The alternatives."
}

func (d *docs) extra() string { return "Members that no field holds: the text of a JSON object." }
func (d *docs) unrecognizedResult() string {
	return "A result of another form than the declared one: JSON text."
}
func (d *docs) unrecognizedCase(*Message) string { return "A value that fits none of them: JSON text." }
func (d *docs) enum(e *Enum) string {
	if e.Doc != "" {
		return e.Doc
	}
	return "JSON: " + e.Path + "."
}
func (d *docs) unspecified(*Enum) string { return "Not set, or a value that this enum does not list." }
func (d *docs) enumValue(e *Enum, v *EnumValue) string {
	if v.Doc != "" {
		return v.Doc
	}
	return fmt.Sprintf("JSON %q.", v.JSON)
}
