package sim

import (
	_ "embed"
	"flag"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	runs  = flag.Int("runs", 1000, "how many runs TestRuns makes")
	first = flag.Uint64("first", 1, "the seed of its first run")
	shown = flag.String("trace", "", "a run that TestTrace shows")
)

// plays counts the runs of this process.
var plays int

// play makes a run and returns what was wrong with it.
func play(t *testing.T, ops []op) (wrong string) { return playWith(t, ops, nil) }

// playWith is play with a function that gets the lines of the run's trace.
func playWith(t *testing.T, ops []op, trace func(line string)) (wrong string) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	if plays++; plays%100 == 0 {
		goruntime.GC() // and never within a run
	}
	synctest.Test(t, func(*testing.T) {
		var v variant
		clustered := len(ops) > 0 && ops[0].kind == 'V'
		if clustered || len(ops) > 0 && ops[0].kind == 'v' {
			v, ops = variant(ops[0].n), ops[1:]
		}
		w := newWorld(v, clustered)
		w.trace = trace
		defer w.close()
		for _, o := range ops {
			w.note("> %v", o)
			w.carryOut(o)
			if o.n%2 == 0 {
				w.save()
			}
			w.checkStep()
			if o.n%4 == 0 || w.variant >= variants { // they take time
				w.checkSnapshot()
				w.checkStreams()
			}
		}
		wrong = w.check()
	})
	return wrong
}

// shorten returns a part of a run that is wrong too.
func shorten(t *testing.T, ops []op) []op {
	for size := len(ops) / 2; size > 0; {
		shorter := false
		for at := 0; at+size <= len(ops); {
			if part := slices.Delete(slices.Clone(ops), at, at+size); play(t, part) != "" {
				ops, shorter = part, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return ops
}

func text(ops []op) string {
	var words []string
	for _, o := range ops {
		words = append(words, o.String())
	}
	return strings.Join(words, " ")
}

// TestRuns makes runs of fresh seeds: go test ./internal/testing/sim -args -runs 20000 -first 1000. It shows a wrong run
// in a short form, for testdata/found.txt.
func TestRuns(t *testing.T) {
	for seed := *first; seed < *first+uint64(*runs); seed++ {
		ops := script(seed)
		if wrong := play(t, ops); wrong != "" {
			short := shorten(t, ops)
			t.Fatalf("seed %d:\n%s\nshort: %s\n%s", seed, wrong, text(short), play(t, short))
		}
	}
}

// parse reads a run as text shows it.
func parse(t *testing.T, text string) (ops []op) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		var o op
		if n, err := fmt.Sscanf(word, "%c%d", &o.kind, &o.n); n != 2 {
			t.Fatalf("%q: %v", word, err)
		}
		if _, known := doing[o.kind]; !known {
			t.Fatalf("%q: a run can do no such thing", word)
		}
		ops = append(ops, o)
	}
	return ops
}

// TestTrace shows a run: go test -v -run TestTrace ./internal/testing/sim -args -trace "s0 c1 x0".
func TestTrace(t *testing.T) {
	if wrong := playWith(t, parse(t, *shown), func(line string) { t.Log(line) }); wrong != "" {
		t.Error(wrong)
	}
}

//go:embed testdata/found.txt
var found string

// TestFound makes the runs that were wrong once, or that few seeds come by. Each line of found.txt says what was wrong, or what happens, and
// the run.
func TestFound(t *testing.T) {
	for line := range strings.Lines(found) {
		what, ops, is := strings.Cut(strings.TrimSpace(line), ": ")
		if !is {
			t.Fatalf("not a run: %s", line)
		}
		if wrong := play(t, parse(t, ops)); wrong != "" {
			t.Errorf("%s: %s", what, wrong)
		}
	}
}
