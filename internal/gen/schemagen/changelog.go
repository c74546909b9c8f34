package schemagen

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ChangeKind says what became of an element between two versions.
type ChangeKind byte

// The kinds of change, as they are printed.
const (
	Added   ChangeKind = '+'
	Removed ChangeKind = '-'
	Changed ChangeKind = '~'
)

// Change is one difference between two versions of the CLI's schemas.
type Change struct {
	Kind ChangeKind
	// Name is the method, event type or definition.
	Name string
	// Details are the members and values that differ; for an added method, its form.
	Details []string
}

// Changelog is all that differs between the schemas of two versions.
type Changelog struct {
	From, To                          string
	Methods, Callbacks, Events, Types []Change
}

// Compare lists the differences between the models of two single versions.
func Compare(from, to *Model) *Changelog {
	c := &Changelog{From: from.Versions[0], To: to.Versions[0]}
	for _, name := range union(from.morder, to.morder) {
		change, ok := compareMethods(name, from.methods[name], to.methods[name])
		switch {
		case !ok:
		case (cmp.Or(to.methods[name], from.methods[name])).Root == RootCallback:
			c.Callbacks = append(c.Callbacks, change)
		default:
			c.Methods = append(c.Methods, change)
		}
	}
	c.Events = compareEvents(eventCases(from), eventCases(to))
	for _, name := range union(from.order, to.order) {
		if name == eventUnion {
			continue
		}
		if change, ok := compareDefs(name, from.defs[name], to.defs[name]); ok {
			c.Types = append(c.Types, change)
		}
	}
	return c
}

// union is all names of both lists, in alphabetical order.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func compareMethods(name string, a, b *Method) (Change, bool) {
	switch {
	case a == nil:
		form := signature(b.Params) + " -> " + signature(b.Result)
		if b.Internal {
			form += " (internal)"
		}
		return Change{Added, name, []string{form}}, true
	case b == nil:
		return Change{Removed, name, nil}, true
	}
	var d differ
	d.types("params", orNull(a.Params), orNull(b.Params))
	d.types("result", orNull(a.Result), orNull(b.Result))
	d.flag("deprecated", a.Deprecated, b.Deprecated)
	d.flag("internal", a.Internal, b.Internal)
	return Change{Changed, name, d.out}, d.out != nil
}

func orNull(t *Type) *Type {
	if t == nil {
		return &Type{Kind: KindNull}
	}
	return t
}

func eventCases(m *Model) map[string]*Type {
	out := map[string]*Type{}
	if d := m.defs[eventUnion]; d != nil {
		for _, c := range d.Type.Cases {
			out[c.Tag] = c.Type
		}
	}
	return out
}

func compareEvents(a, b map[string]*Type) []Change {
	var out []Change
	for _, tag := range union(sortedKeys(a), sortedKeys(b)) {
		switch {
		case a[tag] == nil:
			out = append(out, Change{Added, tag, []string{signature(b[tag])}})
		case b[tag] == nil:
			out = append(out, Change{Removed, tag, nil})
		default:
			var d differ
			if d.types("data", a[tag], b[tag]); d.out != nil {
				out = append(out, Change{Changed, tag, d.out})
			}
		}
	}
	return out
}

func compareDefs(name string, a, b *Def) (Change, bool) {
	switch {
	case a == nil:
		return Change{Added, name, []string{signature(b.Type)}}, true
	case b == nil:
		return Change{Removed, name, nil}, true
	}
	var d differ
	d.types("", a.Type, b.Type)
	d.flag("internal", a.Internal, b.Internal)
	return Change{Changed, name, d.out}, d.out != nil
}

// differ collects the differences between two types, each with its place.
type differ struct{ out []string }

func (d *differ) add(kind ChangeKind, place, format string, args ...any) {
	text := strings.TrimSpace(place + " " + fmt.Sprintf(format, args...))
	d.out = append(d.out, string(rune(kind))+" "+text)
}

func (d *differ) flag(name string, a, b bool) {
	switch {
	case b && !a:
		d.add(Added, "", "%s", name)
	case a && !b:
		d.add(Removed, "", "%s", name)
	}
}

func (d *differ) types(place string, a, b *Type) {
	switch {
	case a.Kind != b.Kind || a.Ref != b.Ref || a.Const != b.Const:
		d.add(Changed, place, "%s, was %s", signature(b), signature(a))
		return
	case a.Nullable != b.Nullable || a.Absent != b.Absent:
		d.add(Changed, place, "%s, was %s", signature(b), signature(a))
	}
	switch a.Kind {
	case KindEnum:
		d.values(place, a.Values, b.Values)
	case KindObject, KindEnvelope:
		d.members(place, a.Props, b.Props)
	case KindList, KindMap:
		d.types(place+"[]", a.Elem, b.Elem)
	case KindUnion:
		d.variants(place, a.Variants, b.Variants)
	}
}

func (d *differ) values(place string, a, b []*Value) {
	for _, name := range union(valueNames(a), valueNames(b)) {
		d.presence(place, fmt.Sprintf("%q", name), slices.Contains(valueNames(a), name),
			slices.Contains(valueNames(b), name))
	}
}

func valueNames(values []*Value) []string {
	var out []string
	for _, v := range values {
		out = append(out, v.Name)
	}
	return out
}

func (d *differ) presence(place, what string, before, after bool) {
	switch {
	case after && !before:
		d.add(Added, place, "%s", what)
	case before && !after:
		d.add(Removed, place, "%s", what)
	}
}

func (d *differ) members(place string, a, b []*Prop) {
	for _, p := range a {
		if findProp(b, p.Name) == nil {
			d.add(Removed, join(place, p.Name), "")
		}
	}
	for _, q := range b {
		p := findProp(a, q.Name)
		if p == nil {
			d.add(Added, join(place, q.Name)+optional(q), "%s", signature(q.Type))
			continue
		}
		if p.Required != q.Required {
			d.add(Changed, join(place, q.Name), "%s",
				map[bool]string{true: "is required now", false: "is optional now"}[q.Required])
		}
		d.types(join(place, q.Name), p.Type, q.Type)
	}
}

func join(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}

func optional(p *Prop) string {
	if p.Required {
		return ":"
	}
	return "?:"
}

// variants compares alternatives by their text: alternatives without a name have no other identity.
func (d *differ) variants(place string, a, b []*Type) {
	before, after := variantNames(a), variantNames(b)
	for _, name := range union(before, after) {
		d.presence(place, "alternative "+name, slices.Contains(before, name), slices.Contains(after, name))
	}
}

func variantNames(variants []*Type) []string {
	var out []string
	for _, v := range variants {
		out = append(out, signature(v))
	}
	return out
}

// signature writes a type in one line, without what is inside named ones.
func signature(t *Type) string {
	if t == nil {
		return "()"
	}
	text := bareSignature(t)
	if t.Nullable {
		text += "|null"
	}
	if t.Absent {
		text += "|undefined"
	}
	return text
}

func bareSignature(t *Type) string {
	switch t.Kind {
	case KindList:
		return "[" + signature(t.Elem) + "]"
	case KindMap:
		return "{" + signature(t.Elem) + "}"
	case KindConst:
		return t.Const
	case KindEnum:
		return `"` + strings.Join(valueNames(t.Values), `"|"`) + `"`
	case KindUnion:
		return strings.Join(variantNames(t.Variants), " | ")
	case KindObject, KindEnvelope:
		var members []string
		for _, p := range t.Props {
			members = append(members, p.Name+optional(p)+" "+signature(p.Type))
		}
		return "(" + strings.Join(members, ", ") + ")"
	}
	return describe(t)
}

// Print writes the changelog for people.
func (c *Changelog) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "What CLI %s changes over %s\n", c.To, c.From)
	for _, part := range []struct {
		title   string
		changes []Change
	}{{"Methods", c.Methods}, {"Callbacks", c.Callbacks}, {"Events", c.Events}, {"Types", c.Types}} {
		fmt.Fprintf(&b, "\n%s: %s\n", part.title, tally(part.changes))
		for _, change := range part.changes {
			fmt.Fprintf(&b, "  %c %s\n", change.Kind, change.Name)
			for _, detail := range change.Details {
				fmt.Fprintf(&b, "      %s\n", detail)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func tally(changes []Change) string {
	count := map[ChangeKind]int{}
	for _, c := range changes {
		count[c.Kind]++
	}
	return fmt.Sprintf("%d added, %d removed, %d changed", count[Added], count[Removed], count[Changed])
}
