package sealing

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// key returns the line of a key.
func key(of byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{of}, 32)) + "\n"
}

func parse(t *testing.T, text string) *Keys {
	t.Helper()
	k, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealed(t *testing.T) {
	t.Parallel()
	k := parse(t, "# the key of today\n\n"+key(1))
	sealed := k.Seal([]byte("secret"), "s")
	if bytes.Contains(sealed, []byte("secret")) || bytes.Equal(sealed, k.Seal([]byte("secret"), "s")) {
		t.Errorf("sealed: %q", sealed)
	}
	if text, err := k.Open(sealed, "s"); err != nil || string(text) != "secret" {
		t.Errorf("opened: %q, %v", text, err)
	}
	for name, open := range map[string]func() ([]byte, error){
		"as another session's": func() ([]byte, error) { return k.Open(sealed, "t") },
		"with another key":     func() ([]byte, error) { return parse(t, key(2)).Open(sealed, "s") },
		"changed": func() ([]byte, error) {
			other := bytes.Clone(sealed)
			other[len(other)-1] ^= 1
			return k.Open(other, "s")
		},
		"of another version": func() ([]byte, error) { return k.Open(append([]byte{2}, sealed[1:]...), "s") },
		"cut off":            func() ([]byte, error) { return k.Open(sealed[:20], "s") },
		"empty":              func() ([]byte, error) { return k.Open(nil, "s") },
	} {
		if text, err := open(); !errors.Is(err, ErrSealed) || text != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// Keys are replaced step by step, while servers with the old and the new file run.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	before, during, after := parse(t, key(1)), parse(t, key(1)+key(2)), parse(t, key(2)+key(1))
	for _, seals := range []*Keys{before, during, after} {
		sealed := seals.Seal([]byte("x"), "s")
		for _, opens := range []*Keys{during, after} {
			if text, err := opens.Open(sealed, "s"); err != nil || string(text) != "x" {
				t.Errorf("%q, %v", text, err)
			}
		}
	}
	if _, err := parse(t, key(2)).Open(after.Seal([]byte("x"), "s"), "s"); err != nil {
		t.Error("the first key does not seal")
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "no key",
		"# only a comment\n":       "no key",
		"nonsense!\n":              "line 1",
		key(1) + "c2hvcnQ=\n":      "line 2",
		strings.Repeat("A", 45):    "line 1",
		strings.TrimSpace(key(1)):  "",
		" " + key(1) + "\r\n\r\n#": "",
	} {
		_, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "c2hv")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
