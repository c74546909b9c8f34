package corpus

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// quickly tells whether two JSON values are surely the same. It knows nothing of
// numbers with two spellings, nor of strings that Go's decoder would change: false
// means that the slow comparison has to decide.
func quickly(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if surrogates(a) || surrogates(b) {
		return false
	}
	var x, y any
	for _, v := range []struct {
		text []byte
		to   *any
	}{{a, &x}, {b, &y}} {
		d := json.NewDecoder(bytes.NewReader(v.text))
		d.UseNumber() // as text: 1 and 1.0 differ here
		if d.Decode(v.to) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}

// surrogates tells whether a text may have an escaped surrogate in it, which
// Go's decoder replaces when it is alone.
func surrogates(text []byte) bool {
	return bytes.Contains(text, []byte(`\ud`)) || bytes.Contains(text, []byte(`\uD`))
}
