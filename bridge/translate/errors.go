package translate

import (
	"fmt"
	"strconv"
)

// Kind classifies an Error.
type Kind uint8

// The kinds of Error.
const (
	_ Kind = iota
	// KindSyntax is JSON that breaks the grammar, or ends too early or too late.
	KindSyntax
	// KindUTF8 is text that is not UTF-8.
	KindUTF8
	// KindDepth is nesting beyond Limits.MaxDepth.
	KindDepth
	// KindSize is input or output beyond Limits.
	KindSize
	// KindMisfit is a value that the message cannot stand for and has no
	// catch-all field to keep.
	KindMisfit
	// KindWire is bytes that are not a protobuf message.
	KindWire
	// KindEnum is an enum number that no JSON value belongs to.
	KindEnum
	// KindRange is a number or a time that JSON cannot express: NaN, an infinity,
	// a Timestamp outside the years 1 to 9999.
	KindRange
	// KindUnset is a union of which no case is set.
	KindUnset
	// KindText is a field of JSON text (json_extra and unrecognized among them)
	// that does not hold one well-formed JSON value of the right kind.
	KindText
	// KindDeclaredExtra is a declared member, or a reserved name, in json_extra
	// where JSONOptions.RejectDeclaredExtra rules it out.
	KindDeclaredExtra
	// KindForbiddenExtra is a member in json_extra that JSONOptions.ForbidExtra
	// names.
	KindForbiddenExtra
)

var kindTexts = [...]string{
	KindSyntax:         "malformed JSON",
	KindUTF8:           "text is not valid UTF-8",
	KindDepth:          "nested too deeply",
	KindSize:           "too large",
	KindMisfit:         "value does not fit the message",
	KindWire:           "malformed protobuf message",
	KindEnum:           "invalid enum value",
	KindRange:          "value has no JSON form",
	KindUnset:          "no case of the union is set",
	KindText:           "malformed JSON in a field of JSON text",
	KindDeclaredExtra:  "declared member in json_extra",
	KindForbiddenExtra: "forbidden member in json_extra",
}

// String describes the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindTexts) && kindTexts[k] != "" {
		return kindTexts[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Error says what kept a value from being translated, and where. It never
// quotes the value itself, which may be secret.
type Error struct {
	// Kind classifies the error.
	Kind Kind
	// Message is the full name of the requested message.
	Message string
	// Path leads to the place: JSON members towards wire bytes, proto fields
	// towards JSON, as in "tools[2].name"; empty for the value itself.
	Path string
	// Detail is what the kind leaves open: a member's name, an enum number.
	Detail string
	// Offset is where in the input reading stopped; -1 when it is not known.
	Offset int
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Message + ": " + e.Kind.String()
	if e.Detail != "" {
		s += " " + e.Detail
	}
	if e.Path != "" {
		s += fmt.Sprintf(" at %q", e.Path)
	}
	if e.Offset >= 0 {
		s += " (offset " + strconv.Itoa(e.Offset) + ")"
	}
	return s
}

// Is reports whether target is an *Error of the same kind, so that
// errors.Is(err, &Error{Kind: KindEnum}) classifies.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// under prefixes the path of e with a step: a name, or an index in brackets.
func (e *Error) under(step string) {
	switch {
	case e.Path == "":
		e.Path = step
	case e.Path[0] == '[':
		e.Path = step + e.Path
	default:
		e.Path = step + "." + e.Path
	}
}

func indexStep(i int) string { return "[" + strconv.Itoa(i) + "]" }

// maxKeyStep is how many bytes of a map's key a path shows: keys come from
// outside, and may be as long as the input.
const maxKeyStep = 64

func keyStep(key []byte) string {
	if len(key) > maxKeyStep {
		return "[" + strconv.Quote(string(key[:maxKeyStep])) + "…]"
	}
	return "[" + strconv.Quote(string(key)) + "]"
}
