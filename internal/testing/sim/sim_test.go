package sim

import (
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	runs  = flag.Int("runs", 1000, "how many runs TestRuns makes")
	first = flag.Uint64("first", 1, "the seed of its first run")
	shown = flag.String("trace", "", "a run that TestTrace shows")
)

// op is a thing that a run does; n says which:
//
//	v  is the variant, and comes first; V the same in a cluster
//	s  a caller sends a prompt; t one whose agent needs callers; j one whose agent calls hooks
//	M  a caller sends a message of one of several forms, and asks for it again if the bridge ends
//	r  a caller answers a callback; d abstains; A answers a question by the method for its event
//	E  removes a message from the CLI's queue
//	a  aborts; e goes, with a call that has not returned
//	o  changes the configuration; m sets something by a call (see settings.go), P also its provider; p disconnects the session; R cuts the history; D deletes the session
//	l  a participant leaves, loses its connection or comes back; C changes what it brings; I a caller runs its command; K the agent asks for its canvas;
//	   W a caller of WatchPending comes or goes
//	c  the CLI does something; b sends a second copy of an event; g a part of an answer; h has a sub-agent work
//	i  begins another file of its record; O another program changes the history
//	u  the bridge unloads the session
//	H  another server continues it; N a caller needs it to be at rest; U the reader goes, or comes back
//	Q  a caller shuts the session down
//	S  the model does not answer, or a tool takes long
//	L  another replica takes the session; J gets it
//	x  the CLI is killed; y hangs; z the bridge ends; k one of both ends amid later work
//	Z  the bridge shuts down
//	F  the disk of prompts hangs
//	f  the disk of prompts fails; q that of the journal fails, fills up, hangs or works again
//	w  time goes by
type op struct {
	kind rune
	n    int
}

func (o op) String() string { return fmt.Sprintf("%c%d", o.kind, o.n) }

// waits are the times that w waits.
var waits = []time.Duration{10 * time.Millisecond, 150 * time.Millisecond, time.Second, 31 * time.Second}

func (w *world) carryOut(o op) {
	w.mu.Lock()
	w.idle = 0
	w.mu.Unlock()
	switch o.kind {
	case 's':
		w.send(&prompt{steps: o.n % 3, fails: o.n/3%4 == 3, immediate: o.n/12%3 == 2})
	case 't':
		w.send(&prompt{steps: 1 + o.n/18%2, calls: combinations[o.n%len(combinations)], fails: o.n == 35, immediate: o.n/6%6 == 5})
	case 'j':
		w.send(&prompt{steps: 1 + o.n/18%2, calls: hookCombinations[o.n%len(hookCombinations)]})
	case 'M':
		w.send(&prompt{
			steps: o.n / int(forms) % 2, form: form(o.n % int(forms)), immediate: o.n == int(forms)*2+int(several) || o.n == int(forms)*2,
			request: fmt.Sprint("r", len(w.prompts)), // of which each has its own
		})
	case 'E':
		w.editQueue()
	case 'F':
		w.stall(o.n)
	case 'Z':
		w.shutDown()
	case 'r':
		w.answer(o.n)
	case 'd':
		w.abstain(o.n)
	case 'a':
		w.abort()
	case 'c':
		w.step(o.n)
	case 'e':
		w.abandon(o.n)
	case 'b':
		w.also(func(c *cli) { c.repeat(o.n) })
	case 'h':
		w.also(func(c *cli) { c.help(o.n) })
	case 'g':
		w.burst(o.n)
	case 'u':
		w.unload()
	case 'o':
		w.configure(o.n)
	case 'C':
		w.change(o.n)
	case 'A':
		w.elsewhere(o.n)
	case 'W':
		w.watch()
	case 'K':
		w.draw(o.n)
	case 'I':
		w.invoke(o.n)
	case 'm':
		w.set(o.n)
	case 'P':
		w.provide(o.n)
	case 'p':
		w.disconnect(o.n)
	case 'l':
		w.move(o.n)
	case 'q':
		w.failingLog(o.n)
	case 'y':
		w.hang(o.n)
	case 'f':
		w.failing(o.n%2 == 0)
	case 'i':
		w.also((*cli).beginFile)
	case 'x':
		w.crash()
	case 'R':
		w.rewind(o.n)
	case 'O':
		w.other(o.n)
	case 'D':
		w.delete(o.n)
	case 'Q':
		w.shutSession()
	case 'S':
		w.stick(o.n)
	case 'H':
		w.handOver(o.n)
	case 'N':
		w.rest()
	case 'U':
		w.away()
	case 'z':
		w.mu.Lock()
		w.end()
		w.mu.Unlock()
	case 'L':
		w.lightLease(o.n)
	case 'J':
		w.moveAway(o.n)
	case 'k':
		w.light(o.n)
	case 'w':
		w.pass(waits[o.n%len(waits)])
	}
	w.endLost()
	w.restart(o.n)
}

// combinations are what the steps of a turn call at once.
var combinations = []string{"s", "p", "q", "sp", "ssq", "pt"}

// script is the run of a seed. Most of what happens is done by the CLI.
func script(seed uint64) (ops []op) {
	rng := rand.New(rand.NewPCG(seed, 0))
	kinds := "ccccccccccccccccsssswwa"
	if seed%4 >= 2 {
		kinds = "ccccccccccccccccccccccccsttttwwarrrrrddx"
		if seed%16 >= 8 {
			kinds += "jjjr"
		}
		ops = append(ops, op{'v', rng.IntN(variants)})
	}
	if seed%8 >= 6 {
		kinds += "zz"
	}
	if seed%2 == 0 {
		kinds += "xx"[:1+seed/2%2]
	}
	if seed%8 >= 4 {
		kinds += "kk"
	}
	if seed%16 >= 8 {
		kinds += "ee"
	}
	if seed%32 >= 16 {
		kinds += "bbhhh"
	}
	if seed%64 >= 32 {
		kinds += "uooi"
	}
	if seed%64 >= 48 {
		kinds += "fff"
	}
	if seed%32 >= 16 {
		kinds += "gg"
	}
	if seed/64%2 == 1 {
		kinds += "lll"
	}
	if seed/128%2 == 1 {
		kinds += "yyy"
	}
	if seed/256%2 == 1 {
		kinds += "qqq"
	}
	if seed/512%2 == 1 {
		kinds += "ppo"
	}
	if seed%7 == 3 {
		kinds += "RRRR"
	}
	if seed%11 == 5 {
		kinds += "OOxzu"
	}
	if seed%5 == 2 {
		kinds += "mmmm"
		if seed%4 >= 2 {
			kinds += "PPPWp"
			ops[0].n += variants * (1 + int(seed/20%2))
		}
	}
	if seed%5 == 4 && seed%4 >= 2 {
		kinds += "CCIIKKllrAApWW"
		if ops[0].n += 3 * variants; !variant(ops[0].n).attended() {
			ops[0].n += 6
		}
	}
	if seed%13 == 7 {
		kinds += "UUHHNw"
	}
	if seed%19 == 11 {
		kinds += "QQ"
	}
	if seed%17 == 9 {
		kinds += "SSSSS"
	}
	if seed%29 == 6 {
		return clusterScript(seed, rng)
	}
	for range 10 + rng.IntN(90) {
		ops = append(ops, op{rune(kinds[rng.IntN(len(kinds))]), rng.IntN(36)})
	}
	if seed%13 == 6 {
		for range 3 {
			ops = slices.Insert(ops, 1+rng.IntN(len(ops)), op{rune("EFFZZ"[rng.IntN(5)]), rng.IntN(36)})
		}
		for i, o := range ops { // the same, of other forms and with more ends of processes
			switch {
			case o.kind == 's', o.kind == 't' && i%2 == 0:
				ops[i].kind = 'M'
			case o.kind == 'v':
				ops[i].n += rng.IntN(2) * 6 * variants
			}
		}
	}
	if seed%9 == 4 {
		ops = slices.Insert(ops, 1+rng.IntN(len(ops)), op{'D', rng.IntN(36)})
	}
	return ops
}

// clusterScript is the run of a seed in a cluster.
func clusterScript(seed uint64, rng *rand.Rand) (ops []op) {
	ops = append(ops, op{'V', 1 + rng.IntN(variants-1)})
	kinds := "ccccccccccccccccccccccccssttwwarrrrdx"
	for bit, more := range []string{"L", "LJJ", "zzJ", "kkx", "ee", "uool", "pp", "jjjr", "hhbg", "RRR"} {
		if seed>>bit&1 == 1 {
			kinds += more
		}
	}
	for range 10 + rng.IntN(70) {
		ops = append(ops, op{rune(kinds[rng.IntN(len(kinds))]), rng.IntN(36)})
	}
	if seed%9 == 4 {
		ops = slices.Insert(ops, 1+rng.IntN(len(ops)), op{'D', rng.IntN(36)})
	}
	return ops
}

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
