package mutate

import (
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// Each operator, on a small source: what it mutates, and what it leaves out.
func TestGenerateFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		want []string // the bodies with one mutation each, in the order of the source
	}{
		"negate a condition": {"if ok { f() }", []string{
			"if (mutant.Is(1) != (ok)) { f() }", "if ok { if !mutant.Is(1) { f() } }"}},
		"negate the parts of a conjunction": {"if a && (b || c) { return }", []string{
			"if (mutant.Is(1) != (a)) && (b || c) { return }", "if a && ((mutant.Is(1) != (b)) || c) { return }",
			"if a && (b || (mutant.Is(1) != (c))) { return }"}},
		"negate the cases of a switch": {"switch { case a: return }", []string{"switch { case (mutant.Is(1) != (a)): return }"}},
		"no case of a value":           {"switch a { case b: return }", nil},
		"drop effects": {"x.n = 1; return; n++; return; ch <- 1; return; go f(); return; defer f()", []string{
			"if !mutant.Is(1) { x.n = 1 }; return; n++; return; ch <- 1; return; go f(); return; defer f()",
			"x.n = 1; return; if !mutant.Is(1) { n++ }; return; ch <- 1; return; go f(); return; defer f()",
			"x.n = 1; return; n++; return; if !mutant.Is(1) { ch <- 1 }; return; go f(); return; defer f()",
			"x.n = 1; return; n++; return; ch <- 1; return; if !mutant.Is(1) { go f() }; return; defer f()",
			"x.n = 1; return; n++; return; ch <- 1; return; go f(); return; if !mutant.Is(1) { defer f() }",
		}},
		"swap effects": {"f(); x.n = 1", []string{
			"if !mutant.Is(1) { f() }; x.n = 1", "if mutant.Is(1) { x.n = 1 }; f(); if !mutant.Is(1) { x.n = 1 }",
			"f(); if !mutant.Is(1) { x.n = 1 }"}},
		"no swap of assignments without relation": {"a = 1; b = 2", []string{
			"if !mutant.Is(1) { a = 1 }; b = 2", "a = 1; if !mutant.Is(1) { b = 2 }"}},
		"no swap of what happens later": {"defer f(); s.markDirty(); g()", []string{
			"if !mutant.Is(1) { defer f() }; s.markDirty(); g()", "defer f(); if !mutant.Is(1) { s.markDirty() }; g()",
			"defer f(); s.markDirty(); if !mutant.Is(1) { g() }"}},
		"swap of related assignments": {"a = 1; b = a", []string{
			"if !mutant.Is(1) { a = 1 }; b = a", "if mutant.Is(1) { b = a }; a = 1; if !mutant.Is(1) { b = a }",
			"a = 1; if !mutant.Is(1) { b = a }"}},
		"bounds of comparisons": {"return n < 3", []string{"return mutant.Less(1, n , 3)", "return n < (3 + mutant.One(1))"}},
		"numbers": {"return n == 0, n - 1", []string{
			"return n == (0 + mutant.One(1)), n - 1", "return n == 0, n - (1 + mutant.One(1))"}},
		"bounds of slices":        {"return s[1:n]", []string{"return s[(1 + mutant.One(1)):n]", "return s[1:(n + mutant.One(1))]"}},
		"constants stay":          {"const n = 1 + 2", nil},
		"locks stay":              {"mu.Lock(); defer mu.Unlock(); defer cancel()", nil},
		"definitions stay":        {"n := 1; _ = n", nil},
		"logs stay":               {"if err != nil { s.host.Logger().Warn(x, n + 1) }", nil},
		"metrics stay":            {"t.observer.Over(n < 1); w.Span.End()", nil},
		"conditions of logs stay": {"if s.log.Audit && a { f() }", []string{"if s.log.Audit && a { if !mutant.Is(1) { f() } }"}},
		"functions in them, too":  {"logger(func() { f() })", nil},
	} {
		source := "package p\n\nfunc (t *T) F() {\n" + tc.body + "\n}\n"
		var got []string
		for _, g := range mutationsOf(t, "p/p.go", source, &types.Info{}) {
			got = append(got, woven(t, source, g))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got\n%q, want\n%q", name, got, tc.want)
		}
	}
}

// What is around another mutation opens before it and closes behind it.
func TestWeave(t *testing.T) {
	t.Parallel()
	source := "package p\n\nfunc (t *T) F() {\nif n<3 { f(func() { n++ }); g() }\n}\n"
	want := "if (mutant.Is(1) != (mutant.Less(2, n,(3 + mutant.One(3))))) { if !mutant.Is(4) { if mutant.Is(5) { g() }; " +
		"f(func() { if !mutant.Is(7) { n++ } }) }; if !mutant.Is(5) { if !mutant.Is(6) { g() } } }"
	all := mutationsOf(t, "p/p.go", source, &types.Info{})
	slices.Reverse(all)
	if got := woven(t, source, all...); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// mutationsOf returns the mutations of a file.
func mutationsOf(t *testing.T, name, source string, info *types.Info) []Generated {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return generateFile(fset, name, file, []byte(source), info)
}

// woven returns the body of the function with mutations, which have numbers in the order in which they were found.
func woven(t *testing.T, source string, all ...Generated) string {
	t.Helper()
	numbers := map[string]int{}
	for _, g := range slices.SortedFunc(slices.Values(all), func(a, b Generated) int { return a.order - b.order }) {
		numbers[g.Name] = len(numbers) + 1
	}
	text, err := weave([]byte(source), "example.test/m", all, numbers)
	if err != nil {
		t.Fatal(err)
	}
	imported := `package p; import mutant "example.test/m/internal/testing/mutate/mutant"` + "\n\nfunc (t *T) F() {\n"
	body, is := strings.CutPrefix(strings.TrimSuffix(string(text), "\n}\n"), imported)
	if !is {
		t.Fatalf("the package is not imported: %s", text)
	}
	return body
}
