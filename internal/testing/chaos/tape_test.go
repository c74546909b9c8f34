package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Only what a process of the CLI itself told before is excused.
func TestToldEarly(t *testing.T) {
	t.Parallel()
	k := &checker{dir: t.TempDir(), early: map[string]bool{}}
	if k.toldEarly("a", "b") {
		t.Error("early without a tape")
	}
	if _, err := taped(k.dir, "/bin/true"); err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]string{
		"1": `{"event":{"id":"a"}}{"event":{"id":"b","parentId":"c"}}`,
		"2": `{"event":{"id":"c","parentId":"b"}}`,
	} {
		if err := os.WriteFile(filepath.Join(tapes(k.dir), name), []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		id, other string
		want      bool
	}{{"a", "b", true}, {"b", "a", false}, {"a", "c", false}, {"c", "b", false}, {"a", "d", false}} {
		if got := k.toldEarly(tc.id, tc.other); got != tc.want {
			t.Errorf("%s told before %s: %v, want %v", tc.id, tc.other, got, tc.want)
		}
	}
	if len(k.early) != 1 || !k.early["a"] {
		t.Errorf("counted %v", k.early)
	}
}
