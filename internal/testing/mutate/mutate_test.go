package mutate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The mutations fit the source as it is: a change that moves their text adapts them.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	all, err := Load()
	if err != nil {
		t.Error(err)
	}
	for _, m := range all {
		if _, err := m.Apply("../../.."); err != nil {
			t.Error(err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":   {"- {name: a, klass: limits}", "klass"},
		"unknown class": {"- {name: a, class: x, file: f, find: a, replace: b, package: p, test: TestA}", `class "x"`},
		"no change": {"- {name: a, class: limits, file: f, find: a, replace: a, package: p, test: TestA}",
			"another replace"},
		"no test": {"- {name: a, class: limits, file: f, find: a, replace: b, package: p}", "test are required"},
		"too few": {"[]", "fewer than 60"},
		"name twice": {"- {name: a, class: limits, file: f, find: a, replace: b, package: p, test: TestA}\n" +
			"- {name: a, class: limits, file: f, find: a, replace: b, package: p, test: TestA}", "used twice"},
	} {
		if _, err := Parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Each verdict, on a separate module.
func TestRunner(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.test/m\n\ngo 1.26\n",
		"p/p.go":    "package p\n\nfunc Limit(n int) bool { return n < 3 }\n\nfunc Odd() {}\n",
		"p/hang.go": "package p\n\nfunc Wait() {}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\n" +
			"func TestLimit(t *testing.T) { if Limit(3) { t.Fatal(\"3 is let through\") } }\n" +
			"func TestNothing(t *testing.T) { Limit(3) }\n" +
			"func TestFails(t *testing.T) { t.Fatal(\"always\") }\n" +
			"func TestSub(t *testing.T) { t.Run(\"a\", func(t *testing.T) { if Limit(3) { t.Fatal() } }) }\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &Runner{Root: root, Dir: t.TempDir()}
	for _, tc := range []struct {
		find, replace, test string
		want                Verdict
	}{
		{"n < 3", "n < 4", "TestLimit", Killed},
		{"n < 3", "n < 4", "TestNothing", Survived},
		{"n < 3", "n < 4", "TestSub/a", Killed},
		{"n < 3", "n < x", "TestLimit", Unbuilt},
		{"n < 3", "n < 4", "TestGone", Absent},
		{"n < 3", "n < 4", "TestFails", Broken},
		{"return n < 3", `panic("down")`, "TestLimit", Killed},
	} {
		m := Mutation{Name: tc.test, File: "p/p.go", Find: tc.find, Replace: tc.replace, Package: "p", Test: tc.test}
		got, err := r.Run(t.Context(), m)
		if err != nil || got.Verdict != tc.want {
			t.Errorf("%s with %q: %v, %v, want %v\n%s", tc.test, tc.replace, got.Verdict, err, tc.want, got.Output)
		}
	}
	for _, find := range []string{"nowhere", "func"} {
		m := Mutation{Name: "x", File: "p/p.go", Find: find, Replace: "y", Package: "p", Test: "TestLimit"}
		if _, err := r.Run(t.Context(), m); err == nil || !strings.Contains(err.Error(), "not once") {
			t.Errorf("a text that is there %q: %v", find, err)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n<!-- mutations: begin -->\nold\n<!-- mutations: end -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	results := []Result{{Mutation: Mutation{Class: "limits", Test: "TestA/b"}, Verdict: Killed},
		{Mutation: Mutation{Class: "limits", Test: "TestA"}, Verdict: Survived}}
	if err := Write(path, "mutations", Table(results)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "| limits | 2 | 1 | `TestA` |\n", "after\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "old") {
		t.Error("the old result is still there")
	}
}
