package mutate

import (
	"slices"
	"strings"
	"testing"
)

// Each operator, on a small source: what it mutates, and what it leaves out.
func TestGenerateFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		want []string // the mutated bodies, in the order of the source
	}{
		"negate a condition": {"if ok { f() }", []string{"if !(ok) { f() }", "if ok { if false {\nf()\n} }"}},
		"negate the parts of a conjunction": {"if a && (b || c) { return }",
			[]string{"if !(a) && (b || c) { return }", "if a && (!(b) || c) { return }", "if a && (b || !(c)) { return }"}},
		"negate the cases of a switch": {"switch { case a: return }", []string{"switch { case !(a): return }"}},
		"no case of a value":           {"switch a { case b: return }", nil},
		"drop effects": {"x.n = 1; return; n++; return; ch <- 1; return; go f(); return; defer f()", []string{
			"if false {\nx.n = 1\n}; return; n++; return; ch <- 1; return; go f(); return; defer f()",
			"x.n = 1; return; if false {\nn++\n}; return; ch <- 1; return; go f(); return; defer f()",
			"x.n = 1; return; n++; return; if false {\nch <- 1\n}; return; go f(); return; defer f()",
			"x.n = 1; return; n++; return; ch <- 1; return; if false {\ngo f()\n}; return; defer f()",
			"x.n = 1; return; n++; return; ch <- 1; return; go f(); return; if false {\ndefer f()\n}",
		}},
		"swap effects": {"f(); x.n = 1", []string{"if false {\nf()\n}; x.n = 1", "x.n = 1; f()", "f(); if false {\nx.n = 1\n}"}},
		"no swap of assignments without relation": {"a = 1; b = 2", []string{"if false {\na = 1\n}; b = 2", "a = 1; if false {\nb = 2\n}"}},
		"no swap of what happens later": {"defer f(); s.markDirty(); g()", []string{
			"if false {\ndefer f()\n}; s.markDirty(); g()", "defer f(); if false {\ns.markDirty()\n}; g()",
			"defer f(); s.markDirty(); if false {\ng()\n}"}},
		"swap of related assignments": {"a = 1; b = a", []string{
			"if false {\na = 1\n}; b = a", "b = a; a = 1", "a = 1; if false {\nb = a\n}"}},
		"bounds of comparisons":   {"return n < 3", []string{"return n <= 3", "return n < 4"}},
		"numbers":                 {"return n == 0, n - 1", []string{"return n == 1, n - 1", "return n == 0, n - 2"}},
		"bounds of slices":        {"return s[1:n]", []string{"return s[2:n]", "return s[1:n + 1]"}},
		"locks stay":              {"mu.Lock(); defer mu.Unlock(); defer cancel()", nil},
		"definitions stay":        {"n := 1; _ = n", nil},
		"logs stay":               {"if err != nil { s.host.Logger().Warn(x, n + 1) }", nil},
		"metrics stay":            {"t.observer.Over(n < 1); w.Span.End()", nil},
		"conditions of logs stay": {"if s.log.Audit && a { f() }", []string{"if s.log.Audit && a { if false {\nf()\n} }"}},
		"functions in them, too":  {"logger(func() { f() })", nil},
	} {
		source := "package p\n\nfunc (t *T) F() {\n" + tc.body + "\n}\n"
		all, err := GenerateFile("p/p.go", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range all {
			text := string(g.Apply())
			text = strings.TrimPrefix(strings.TrimSuffix(text, "\n}\n"), "package p\n\nfunc (t *T) F() {\n")
			got = append(got, text)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got\n%q, want\n%q", name, got, tc.want)
		}
	}
}
