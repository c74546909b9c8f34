package mutate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each notice, on a separate module with a simulator and a package of its own.
func TestJudge(t *testing.T) {
	t.Parallel()
	source := "package p\n\nfunc Limit(n int) bool { return n < 3 }\n\nfunc Odd(n int) bool { return n-1 == 0 }\n\n" +
		"var N int\n\nfunc Count() { N++ }\n\nfunc Never() { N-- }\n"
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.26\n",
		"p/p.go": source,
		"p/p_test.go": "package p\n\nimport \"testing\"\n\n" +
			"func TestOdd(t *testing.T) { if !Odd(1) { t.Fatal(\"1 is not odd\") } }\n",
		"internal/testing/sim/sim_test.go": "package sim\n\nimport (\n\"flag\"\n\"testing\"\n\"example.test/m/p\"\n)\n\n" +
			"var runs = flag.Int(\"runs\", 0, \"\")\n\n" +
			"func TestRuns(t *testing.T) { p.Count(); if *runs > 0 && p.Limit(3) { t.Fatal(\"3 is let through\") } }\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	all, err := Generate(root, []string{"p"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	woven, err := (&Runner{Root: root, Dir: t.TempDir()}).Weave(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	type verdict struct {
		notice    Notice
		simulated bool
	}
	want := map[string]verdict{
		"p/p.go: Limit: bound n < 3":       {BySimulator, true},
		"p/p.go: Limit: bound n < 3 to 4":  {BySimulator, true},
		"p/p.go: Odd: bound n-1 == 0 to 1": {ByUnitTests, false},
		"p/p.go: Odd: bound n-1 to 2":      {ByUnitTests, false},
		"p/p.go: Count: drop N++":          {ByNone, true},
		"p/p.go: Never: drop N--":          {ByNone, false},
	}
	for _, g := range all {
		f, err := woven.Judge(ctx, g)
		if got := (verdict{f.Notice, f.Simulated}); err != nil || got != want[g.Name] {
			t.Errorf("%s: %v, %v, want %v", g.Name, got, err, want[g.Name])
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d mutations, want %d", len(all), len(want))
	}
}

// What survives for a reason is still generated. Names of places that have changed are to be removed.
func TestReasonsNameMutations(t *testing.T) {
	t.Parallel()
	reasons, err := LoadReasons()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Generate("../../..", Deciding, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		delete(reasons, g.Name)
	}
	for name := range reasons {
		t.Errorf("no such mutation: %s", name)
	}
}

// The order depends on the seed, and not on which other mutations there are.
func TestSampleIsStable(t *testing.T) {
	t.Parallel()
	names := func(seed uint64) (out []string) {
		all, err := Generate("../../..", Deciding, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			out = append(out, g.Name)
		}
		return out
	}
	first, again, other := names(1), names(1), names(2)
	if strings.Join(first, "\n") != strings.Join(again, "\n") {
		t.Error("one seed gives two orders")
	}
	if strings.Join(first, "\n") == strings.Join(other, "\n") {
		t.Error("two seeds give one order")
	}
	seen := map[string]bool{}
	for _, name := range first {
		if seen[name] {
			t.Errorf("two mutations are called %s", name)
		}
		seen[name] = true
	}
}

func TestGeneratedTable(t *testing.T) {
	t.Parallel()
	finding := func(name string, by Notice, reason string) Finding {
		return Finding{Generated: Generated{Name: name, Operator: "drop", Package: "bridge/session"}, Notice: by, Reason: reason}
	}
	table := GeneratedTable([]Finding{
		finding("a", BySimulator, ""), finding("b", ByUnitTests, ""), finding("c", ByNone, "it logs"), finding("d", ByNone, ""),
	}, 7)
	for _, want := range []string{
		"| `bridge/session` | 4 | 1 | 1 | 2 |\n", "| drop | 4 | 1 | 1 | 2 |\n", "| swap | 0 | 0 | 0 | 0 |\n",
		"| all, of seed 7 | 4 | 1 | 1 | 2 |\n", "- `c`: it logs\n", "- `d`: no reason known\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}
