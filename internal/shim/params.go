package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// paramKind is a kind of value that the CLI requires of a parameter which the shim stores instead of forwarding. Its
// check returns the error that the CLI's JSON library (serde) returns for a value of another kind.
type paramKind interface {
	check(value json.RawMessage) error
	// name is what serde calls the kind.
	name() string
}

type (
	paramString struct{}
	paramBool   struct{}
	// paramEnum is one of several strings.
	paramEnum []string
	// paramList is an array.
	paramList struct{ of paramKind }
	// paramOptional may be null.
	paramOptional struct{ paramKind }
	// paramStruct is an object, or an array with the values of its members in order.
	paramStruct struct {
		label   string
		members []param
		closed  bool // refuses other members
	}
)

// param is a member of a paramStruct.
type param struct {
	name     string
	kind     paramKind
	required bool
}

func (paramString) name() string { return "a string" }
func (paramBool) name() string   { return "a boolean" }
func (paramEnum) name() string   { return "string or map" }
func (paramList) name() string   { return "a sequence" }

func (s paramStruct) name() string { return "struct " + s.label }

func (k paramString) check(value json.RawMessage) error { return ofType(value, '"', k) }

func (k paramBool) check(value json.RawMessage) error {
	if value[0] == 'f' {
		return nil
	}
	return ofType(value, 't', k)
}

func (k paramEnum) check(value json.RawMessage) error {
	if value[0] == '{' {
		return errors.New("invalid value: map, expected map with a single key")
	}
	if err := ofType(value, '"', k); err != nil {
		return err
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil || slices.Contains(k, text) {
		return err
	}
	return fmt.Errorf("unknown variant `%s`, expected %s", text, alternatives(k))
}

func (k paramList) check(value json.RawMessage) error {
	if err := ofType(value, '[', k); err != nil {
		return err
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return err
	}
	for _, e := range elements {
		if err := k.of.check(e); err != nil {
			return err
		}
	}
	return nil
}

func (k paramOptional) check(value json.RawMessage) error {
	if value[0] == 'n' {
		return nil
	}
	return k.paramKind.check(value)
}

func (s paramStruct) check(value json.RawMessage) error {
	if value[0] == '[' {
		return s.checkArray(value)
	}
	if err := ofType(value, '{', s); err != nil {
		return err
	}
	present := map[string]bool{}
	for m, err := range translate.Members(value) {
		if err != nil {
			return err
		}
		name := string(m.Name)
		i := slices.IndexFunc(s.members, func(p param) bool { return p.name == name })
		switch {
		case i < 0 && s.closed:
			return fmt.Errorf("unknown field `%s`, expected %s", name, alternatives(s.names()))
		case i < 0:
			continue
		}
		present[name] = true
		if err := s.members[i].kind.check(m.Value); err != nil {
			return err
		}
	}
	for _, p := range s.members {
		if p.required && !present[p.name] {
			return fmt.Errorf("missing field `%s`", p.name)
		}
	}
	return nil
}

func (s paramStruct) checkArray(value json.RawMessage) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return err
	}
	for i, p := range s.members {
		if i >= len(elements) {
			if p.required {
				return fmt.Errorf("invalid length %d, expected %s with %d elements", i, s.name(), len(s.members))
			}
			continue
		}
		if err := p.kind.check(elements[i]); err != nil {
			return err
		}
	}
	if len(elements) > len(s.members) {
		return fmt.Errorf("invalid length %d, expected fewer elements in array", len(elements))
	}
	return nil
}

func (s paramStruct) names() (names []string) {
	for _, p := range s.members {
		names = append(names, p.name)
	}
	return names
}

// ofType checks the type of a value by its first byte.
func ofType(value json.RawMessage, first byte, want paramKind) error {
	if value[0] == first {
		return nil
	}
	return fmt.Errorf("invalid type: %s, expected %s", describe(value), want.name())
}

// describe describes a value as serde does.
func describe(value json.RawMessage) string {
	switch value[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean `" + string(value) + "`"
	case '[':
		return "sequence"
	case '{':
		return "map"
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // the parameters were valid JSON
		return "string " + strconv.Quote(text)
	}
	if !bytes.ContainsAny(value, ".eE") {
		return "integer `" + string(value) + "`"
	}
	f, _ := strconv.ParseFloat(string(value), 64)
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if f == math.Trunc(f) && !strings.Contains(text, "e") {
		text += ".0"
	}
	return "floating point `" + text + "`"
}

// alternatives lists names as serde does.
func alternatives(names []string) string {
	quoted := "`" + strings.Join(names, "`, `") + "`"
	if len(names) == 2 {
		return "`" + names[0] + "` or `" + names[1] + "`"
	}
	return "one of " + quoted
}

// Parameters of the methods that the shim serves itself.
var (
	connectParams = paramStruct{label: "ConnectRequest", closed: true, members: []param{
		{name: "enableGitHubTelemetryForwarding", kind: paramOptional{paramBool{}}},
		{name: "clientInfo", kind: paramOptional{paramStruct{label: "ConnectClientInfo", closed: true, members: []param{
			{name: "editorName", kind: paramOptional{paramString{}}},
			{name: "editorVersion", kind: paramOptional{paramString{}}},
			{name: "extensionName", kind: paramOptional{paramString{}}},
			{name: "extensionVersion", kind: paramOptional{paramString{}}},
		}}}},
		{name: "supportedTaskKinds", kind: paramOptional{paramList{paramEnum{"agent", "shell", "client"}}}},
	}}
	fileProviderParams = paramStruct{label: "SessionFsProviderParams", members: []param{
		{name: "initialCwd", kind: paramString{}, required: true},
		{name: "sessionStatePath", kind: paramString{}, required: true},
		{name: "conventions", kind: paramEnum{"windows", "posix"}, required: true},
		{name: "capabilities", kind: paramStruct{label: "SessionFsProviderCapabilities", members: []param{
			{name: "sqlite", kind: paramBool{}}, {name: "binary", kind: paramBool{}},
		}}},
	}}
)
