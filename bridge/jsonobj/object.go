// Package jsonobj has a JSON object whose members keep their order and their bytes. It owns nothing
// and has neither locks nor goroutines: an Object is a value that its holder guards.
package jsonobj

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// Object is a JSON object whose members keep their order and their bytes: the order of
// a tool's schema reaches the model, and with it the model's prompt cache.
type Object []Member

// Member is a member of an Object.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Parse splits a JSON object into its members. The values share b's memory.
func Parse(b []byte) (Object, error) {
	s := setter{object: make(Object, 0, 8)}
	for m, err := range translate.Members(b) {
		if err != nil {
			return nil, err
		}
		s.set(string(m.Name), m.Value)
	}
	return s.object, nil
}

// Get returns a member's value, or nil.
func (o Object) Get(key string) json.RawMessage {
	for _, m := range o {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Set sets a member, at its old place if it has one. A nil value removes it.
func (o *Object) Set(key string, value json.RawMessage) {
	for i, m := range *o {
		if m.Key != key {
			continue
		}
		if value == nil {
			*o = append((*o)[:i:i], (*o)[i+1:]...)
		} else {
			(*o)[i].Value = value
		}
		return
	}
	if value != nil {
		*o = append(*o, Member{key, value})
	}
}

// SetString sets a member to a string.
func (o *Object) SetString(key, value string) {
	o.Set(key, appendString(make([]byte, 0, len(value)+2), value))
}

// SetBool sets a member to a boolean.
func (o *Object) SetBool(key string, value bool) {
	if value {
		o.Set(key, json.RawMessage("true"))
	} else {
		o.Set(key, json.RawMessage("false"))
	}
}

// String returns a member's value if it is a string.
func (o Object) String(key string) string { return Text(o.Get(key)) }

// Text returns the text of a JSON value that is a string, else "". The value is valid, as those of Parse are.
func Text(value json.RawMessage) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	if text := value[1 : len(value)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return string(text)
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// appendString appends s as a JSON string, in the form of encoding/json.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			text, _ := json.Marshal(s) // a string always encodes
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// Bool reports whether a member is true.
func (o Object) Bool(key string) bool { return string(o.Get(key)) == "true" }

// Clone returns a copy that can be changed without changing o.
func (o Object) Clone() Object { return append(make(Object, 0, len(o)+8), o...) }

// Merge returns o with its members replaced by the members of over with the same keys, and the other members of
// over appended.
func (o Object) Merge(over Object) Object {
	s := setter{object: o.Clone()}
	for _, m := range over {
		s.set(m.Key, m.Value)
	}
	return s.object
}

// scanned is the number of members up to which a scan finds a key sooner than a map does.
const scanned = 32

// setter sets many members of an object in a time that grows with their number, not with its square.
type setter struct {
	object Object
	places map[string]int // of the object's keys; nil while there are few
}

func (s *setter) set(key string, value json.RawMessage) {
	if len(s.object) <= scanned || value == nil {
		s.object.Set(key, value)
		s.places = nil // a removal moves members
		return
	}
	if s.places == nil {
		s.places = make(map[string]int, 2*len(s.object))
		for i, m := range s.object {
			s.places[m.Key] = i
		}
	}
	if i, ok := s.places[key]; ok {
		s.object[i].Value = value
		return
	}
	s.places[key] = len(s.object)
	s.object = append(s.object, Member{key, value})
}

// JSON returns the object's text.
func (o Object) JSON() []byte {
	size := 2
	for _, m := range o {
		size += len(m.Key) + len(m.Value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, m.Key), ':'), m.Value...)
	}
	return append(out, '}')
}
