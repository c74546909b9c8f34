package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"sort"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// value is one JSON value with the text it was read from.
type value struct {
	kind    byte // one of n b # s a o
	raw     string
	units   []uint16 // a string in UTF-16, so that lone surrogates stay themselves
	items   []*value
	members []pair // the last of each name
}

type pair struct {
	name *value
	raw  string // name, colon and value
	v    *value
}

// errRepeated is not an error of the input: some object has a name twice.
var errRepeated = errors.New("a member occurs twice")

// parse reads one JSON document. If an object has a name twice, parse uses the last member, and returns
// errRepeated with the value.
func parse(text []byte) (*value, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not UTF-8")
	}
	if !json.Valid(text) {
		return nil, errors.New("not JSON")
	}
	p := parser{text: string(text), dec: json.NewDecoder(bytes.NewReader(text))}
	p.dec.UseNumber()
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if p.repeated {
		return v, errRepeated
	}
	return v, nil
}

type parser struct {
	text     string
	dec      *json.Decoder
	repeated bool
}

// token reads a token and the place where it begins.
func (p *parser) token() (json.Token, int, error) {
	start := int(p.dec.InputOffset())
	for strings.IndexByte(" \t\r\n,:", p.text[start]) >= 0 {
		start++
	}
	t, err := p.dec.Token()
	return t, start, err
}

func (p *parser) value() (*value, error) {
	t, start, err := p.token()
	if err != nil {
		return nil, err
	}
	v := &value{}
	switch t := t.(type) {
	case nil:
		v.kind = 'n'
	case bool:
		v.kind = 'b'
	case json.Number:
		v.kind = '#'
	case string:
		v.kind = 's'
	case json.Delim:
		if t == '[' {
			v.kind = 'a'
			err = p.array(v)
		} else {
			v.kind = 'o'
			err = p.object(v)
		}
	}
	v.raw = p.text[start:p.dec.InputOffset()]
	if v.kind == 's' {
		v.units = units(v.raw)
	}
	return v, err
}

func (p *parser) array(v *value) error {
	for p.dec.More() {
		item, err := p.value()
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := p.dec.Token()
	return err
}

func (p *parser) object(v *value) error {
	places := make(map[string]int)
	for p.dec.More() {
		name, err := p.value()
		if err != nil {
			return err
		}
		start := int(p.dec.InputOffset()) - len(name.raw)
		item, err := p.value()
		if err != nil {
			return err
		}
		m := pair{name: name, raw: p.text[start:p.dec.InputOffset()], v: item}
		key := fmt.Sprint(name.units)
		if i, ok := places[key]; ok {
			p.repeated = true
			v.members[i] = m
			continue
		}
		places[key] = len(v.members)
		v.members = append(v.members, m)
	}
	_, err := p.dec.Token()
	return err
}

// units decodes a quoted JSON string into UTF-16.
func units(raw string) []uint16 {
	var out []uint16
	raw = raw[1 : len(raw)-1]
	for raw != "" {
		if raw[0] != '\\' {
			r, n := utf8.DecodeRuneInString(raw)
			out = utf16.AppendRune(out, r)
			raw = raw[n:]
			continue
		}
		if raw[1] == 'u' {
			var u uint16
			if _, err := fmt.Sscanf(raw[2:6], "%04x", &u); err != nil {
				panic(err) // json.Valid has accepted it
			}
			out = append(out, u)
			raw = raw[6:]
			continue
		}
		var s string
		if err := json.Unmarshal([]byte(`"`+raw[:2]+`"`), &s); err != nil {
			panic(err)
		}
		out = append(out, uint16(s[0]))
		raw = raw[2:]
	}
	return out
}

// text returns the string that v is; ok is false when it is none, or one with a
// lone surrogate.
func (v *value) text() (s string, ok bool) {
	if v.kind != 's' {
		return "", false
	}
	for i := 0; i < len(v.units); i++ {
		if !utf16.IsSurrogate(rune(v.units[i])) {
			continue
		}
		if i+1 == len(v.units) || utf16.DecodeRune(rune(v.units[i]), rune(v.units[i+1])) == utf8.RuneError {
			return "", false
		}
		i++
	}
	return string(utf16.Decode(v.units)), true
}

// member returns the member of a name, nil when there is none.
func (v *value) member(name string) *value {
	for _, m := range v.members {
		if s, ok := m.name.text(); ok && s == name {
			return m.v
		}
	}
	return nil
}

// Canonical returns a text that two JSON documents share exactly when they are
// the same value: the order of members, white space, escapes and the spelling
// of numbers do not count, and of several members with one name only the last.
func Canonical(text []byte) (string, error) {
	v, err := parse(text)
	if err != nil && !errors.Is(err, errRepeated) {
		return "", err
	}
	return v.canonical(), nil
}

// Repeats tells whether an object in a JSON document has a name twice.
func Repeats(text []byte) bool {
	_, err := parse(text)
	return errors.Is(err, errRepeated)
}

func (v *value) canonical() string {
	var parts []string
	switch v.kind {
	case '#':
		return canonicalNumber(v.raw)
	case 's':
		return fmt.Sprintf("s%04x", v.units)
	case 'a':
		for _, item := range v.items {
			parts = append(parts, item.canonical())
		}
		return "[" + strings.Join(parts, ",") + "]"
	case 'o':
		for _, m := range v.members {
			parts = append(parts, m.name.canonical()+":"+m.v.canonical())
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return v.raw
}

// canonicalNumber writes a number as digits without zeros at either end, and an
// exponent.
func canonicalNumber(raw string) string {
	sign := ""
	if raw[0] == '-' {
		sign, raw = "-", raw[1:]
	}
	exp := new(big.Int)
	if i := strings.IndexAny(raw, "eE"); i >= 0 {
		exp.SetString(strings.TrimPrefix(raw[i+1:], "+"), 10)
		raw = raw[:i]
	}
	if i := strings.IndexByte(raw, '.'); i >= 0 {
		exp.Sub(exp, big.NewInt(int64(len(raw)-i-1)))
		raw = raw[:i] + raw[i+1:]
	}
	raw = strings.TrimLeft(raw, "0")
	trimmed := strings.TrimRight(raw, "0")
	exp.Add(exp, big.NewInt(int64(len(raw)-len(trimmed))))
	if trimmed == "" {
		return "0"
	}
	return sign + trimmed + "e" + exp.String()
}
