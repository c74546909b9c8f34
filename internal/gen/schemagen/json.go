package schemagen

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// decodeMembers splits a JSON object into its members, in their order in the
// text: the order in which a schema lists properties is the order in which they
// get their numbers.
func decodeMembers(raw json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	if tok != json.Delim('{') {
		return nil, fmt.Errorf("read object: found %v", tok)
	}
	var out []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("read member name: %w", err)
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("read member name: found %v", key)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("read member %q: %w", name, err)
		}
		out = append(out, member{name, value})
	}
	return out, nil
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}
