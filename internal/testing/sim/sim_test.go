package sim

import (
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

// op is a thing that a run does: s sends a prompt, t one whose agent needs callers, j one whose agent calls hooks, r answers a callback, d abstains, a
// aborts, e has a caller go whose call has not returned, c has the CLI do something, b has it send a second copy of an event,
// h has a sub-agent work, u has the bridge unload the session, o has a caller change its configuration, p has a caller disconnect the session, R has a caller cut the history, O has another program change it, D has a caller delete the session, l has a participant leave, lose its connection or come back, g has the agent stream a part of its answer, i has the CLI begin another file of its record, x kills the CLI, f has the disk of prompts fail, y has the CLI hang, q has the disk of the journal fail, fill up, hang or work again, z ends the bridge, k has one of both end amid later work, and w waits. n says which.
// v, which comes first, is the variant.
type op struct {
	kind rune
	n    int
}

func (o op) String() string { return fmt.Sprintf("%c%d", o.kind, o.n) }

// waits are the times that w waits.
var waits = []time.Duration{10 * time.Millisecond, 150 * time.Millisecond, time.Second, 31 * time.Second}

func (w *world) carryOut(o op) {
	switch o.kind {
	case 's':
		w.send(&prompt{steps: o.n % 3, fails: o.n/3%4 == 3, immediate: o.n/12%3 == 2})
	case 't':
		w.send(&prompt{steps: 1 + o.n/18%2, calls: combinations[o.n%len(combinations)], fails: o.n == 35, immediate: o.n/6%6 == 5})
	case 'j':
		w.send(&prompt{steps: 1 + o.n/18%2, calls: hookCombinations[o.n%len(hookCombinations)]})
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
	case 'z':
		w.mu.Lock()
		w.end()
		w.mu.Unlock()
	case 'k':
		w.light(o.n)
	case 'w':
		w.pass(waits[o.n%len(waits)])
	}
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
	for range 10 + rng.IntN(90) {
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
		if len(ops) > 0 && ops[0].kind == 'v' {
			v, ops = variant(ops[0].n), ops[1:]
		}
		w := newWorld(v)
		w.trace = trace
		defer w.close()
		for _, o := range ops {
			w.note("> %v", o)
			w.carryOut(o)
			if o.n%2 == 0 {
				w.save()
			}
			w.checkStep()
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
// in a short form, which TestFound can keep.
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

// TestFound makes runs that were wrong once.
func TestFound(t *testing.T) {
	for what, ops := range map[string]string{
		"idle after the abort of all messages is no turn": "a27 x3 c3 s19 c28 c4 c15 c26 c1 c21 c30 c14 c10 x4",
		"a session that was created again has no history": "s13 c22 c21 c22 a32 x26 c14 c0 c16 c9 s11 c7 s2 c25 c0 c34 c13 c9 c26 c17 c10 " +
			"c5 c3 x24",
		"a prompt that waits behind an abort is not removed": "c12 s26 c6 c3 c26 c2 a15 s34 c7 c22 c22 c26 c32 c34 s19 c31 c11 a18 c16 c3 " +
			"s16 c0 a23 c12 c33 c17 c8 c30 c20 w23 w35",
		"a turn ends while the CLI is asked about it": "s13 c20 c6 c2 a35 c22 c19 c25 w11 c2",
		"a removed prompt is overtaken before its id is known": "s26 x1 c22 c32 c0 c23 c11 s14 c23 a5 c18 c29 c0 s15 c24 c7 c24 c14 c29 c29 " +
			"c18 x7",
		"an abort's end of a callback is no answer": "v22 c10 t29 c11 c33 c31 c7 c32 c4 a2 c5 c10 r17 c17 x16",
		"a callback is over while its answer is under way": "v33 c25 t9 c11 c7 c5 c24 c28 c21 r24 x5 c23 c4 c5 c11 c25 c1 c3 c4 c23 x22 " +
			"x18 x23",
		"an earlier answer, which the CLI has lost, is not this one": "v16 t17 c18 t2 c10 c4 c27 c8 c13 c19 c0 c32 r11 a32 c6 c7 x11 c26 " +
			"w23 c32 c25 r10 x26",
		"a callback without a place is asked again behind its end": "v9 c35 t9 c25 c17 c2 c21 c34 c7 c11 z20 c20 c14 c20 c27 c23 r6 c15 " +
			"r16 c12 c18 c17 c29 c35",
		"a rest without an idle event leaves a prompt in the outbox": "s16 s26 a6 c2 c6 c7 c13 c6 c1 c29 s3 c20 c30 c25 c1 c31 c4",
		"a default answer ends a later request": "v5 t7 c34 c1 c19 c7 c35 w11 c4 x26 s22 a16 w11 c34 c28 c6 c12 c20 c26 c24 c24 c13 c20 " +
			"c23 x7",
		"a turn goes on behind an answer during a load": "v8 t6 c31 c17 c1 t31 c30 c28 t35 c14 a14 c33 c19 c28 c1 c3 c11 t23 c26 c20 c33 " +
			"c5 c1 c13 c25 c8 x25 c30 c17 c17 c25 c21 c17 r22 c35 c10 c20 c15 c3 c2 c7 a21 s26",
		"the next process sends an aborted prompt again":      "v9 c6 s21 c33 t13 c32 k26 a24 a5 c25 c18 c3",
		"an abort waits for the load that continues the turn": "v46 s0 c20 c25 c29 x0 a31",
		"a continuation is stored without its place":          "v64 x13 t8 s18 c28 c30 c33 c14 c2 s15 c31 c0 c18 c3 c17 x0 c31 c24 c29 c4 z11",
		"a lost continuation is told as the loss of the message that it continues": "v46 t27 c22 t31 c7 c14 x6 c0 c3 c22 c20 c30 c6 c18 " +
			"c24 c35 c26 x10 c22 c4 c9 c23 c10 c10 c1 c21 c26 c17 x5",
		"who follows a lost turn does so without end": "v61 c11 t16 c28 t23 k22 c35 c2 c12 k8 c17 c22 c20 c32 c14 c11 c34 c35 c11 c27 c29 k21 " +
			"c33 c18 c3",
		"a turn is told as that of the message before it, which was aborted": "v63 c35 t25 t10 c15 t20 a4 c10 c17 c8 t34 c9 c16 c15 c33 c3 c31 " +
			"c12 c21 c18 x8 c31 c18 c5 c5 c18 c12 c20 c7 c23 c14",
		"another turn is told as that of a message that the CLI has lost": "v63 c35 t25 t20 a4 c10 c17 c8 t34 c9 c16 c15 c33 c3 c31 c12 c21 " +
			"c18 x8 c18 c5 c5 c18 c12 c20 c7 c17 c32 c23 c24 c14",
		"how often the agent was told to continue is not saved": "v62 t27 c12 c7 t15 c13 c16 c18 c16 c6 c29 c5 c3 c3 x11 c7 t26 c32 c6 c26 " +
			"r31 c6 c12 r27 c34 x30 c7 c34 c6 c7 c1 c1 c0 c28 c1 c2 c33 c12 c25 c31 c20",
		"a continuation is given again behind an abort before its reply": "v42 t1 c11 c21 c23 z34 c29 c7 c19 c13 a27 c10 c17 c26 z26",
		"a continuation is taken for an earlier one, whose text is the same": "v51 c12 t10 c24 c20 c22 z16 c24 c21 c14 c13 c19 t16 z3 c23 c34 " +
			"c31 c9 k22 c13 c17 c17 k21",
		"that callbacks were pending is saved until the session is loaded": "v28 c7 t30 c21 c33 c25 k15 c5 c9 c29 c33 c3 c26 c26 c13 c31 z19 " +
			"c20 z17 t28 e9",
		"the agent is told to continue more often than it was saved": "v43 c14 k6 t19 c12 c15 c14 t25 c18 c9 c15 c0 c12 k16 c14 c3 c2 c7 c12 c28 " +
			"c11 c19 c29 c25 c25 z25 c26 c0 c14 c14 z35",
		"a turn that was aborted, and that the CLI went on with, is continued": "v42 c26 t9 c1 c22 c30 c14 t21 c7 c15 c16 c30 c1 x19 a20 c6 c17 " +
			"r13 c35 c4 w19 c12 c32 c29 x19 c11 c21 c30 c23 r10 c16 c22 c19 x21",
		"an abort is taken for one of the next turn, which the journal lacks": "v44 c26 t27 a30 c16 t12 c24 c34 c34 c2 c35 c21 c8 k0 c11",
		"an abort whose caller has gone reaches the next turn":                "v56 z32 c13 c30 t8 c20 c32 c0 c9 c1 k29 a19 e35 t34 c32 c27 c11",
		"the text of a turn that goes on within a load that begins an epoch": "v64 t30 c8 c22 x32 t29 c32 c23 c11 c29 c3 c24 c19 c26 c21 c14 c4 " +
			"c11 w3 w19 c34 c3 c7 x7 c6 c5 c8 c5 c10",
		"a turn that the next process ends is told as lost":                 "v50 t0 c0 c0 c0 c0 c0 c0 c0 c0 x0",
		"a configuration stays saved whose resume has failed":               "o6 x10",
		"an aborted prompt stays on a disk that had failed":                 "v59 s28 c28 c9 f24 a15 c8 c26 c19 c34 c29",
		"a configuration is saved that the CLI then refuses":                "v8 t18 c24 c25 o29 k12",
		"what the CLI was slow to take is thought to be refused":            "v32 l1 l12 w19 l15",
		"the tools of who leaves during a load stay":                        "v54 c7 s14 c33 c19 c11 l31 c19 c10 c20 l33 c24 c4 x10 l30",
		"a prompt that the CLI has not got stays on a disk that had failed": "v1 c30 t20 c34 c11 o10 c17 t12 c3 x19 c29 c12 c2 c6 c5 f2 c11 c16 c4",
		"a sync of an earlier epoch's log is taken for one of this":         "v31 t19 a3 z27 c13 c0 c33 c26 i2 x27 q6 c6 t20 c30 t20",
		"a session is created again that the CLI still creates":             "x21 o12 t9 x15 x5 c11 c29 o6 e28 c29 c1 c7 c25 c4",
		"who leaves during a slow resume stays a handler":                   "v32 u33 o3 c22 c7 c7 w3 l18 l25 w11 w11",
		"a CLI that hung twice waits for an answer that it did not get":     "v55 t5 c28 c13 c25 c5 c35 y18 y14 c10 c11 c13 c5 c12 c18 c0 y18",
		"a prompt stays in memory although the disk works again":            "v20 t26 c18 c0 c30 f14 c18 t24 c33 c10 c2 f21 q22 z22",
		"two leave, and the CLI takes a minute for the first":               "v42 c33 l7 l24 q16 w23",
		"a change of tools that was given up comes after the next":          "v42 l35 c17 q10 l24 q16 w23 c5",
		"a load revives what a resume without it has withdrawn": "v62 c4 t25 c34 c5 c24 c24 c18 c22 c24 c7 c11 c6 c2 c19 c27 c9 p29 y25 p20 c19 " +
			"c18 c31 c20 c34 c20 c19 y0 c8 c30 c1 c15 c34 c7 c14 c23 x4",
		"a load goes on with a turn that was aborted between two loads": "v38 t9 c4 c31 c12 c24 c25 z33 a13 c16 c15 x18 x20 c16 c7 c0 c24 t13 r12 h32 " +
			"c18 c24 x30",
		"who joins while the session is disconnected has no place":                               "v21 s25 z18 p1 o33 k3 y11",
		"a call and a resume wait for the same load, and for each other":                         "c22 j32 c23 c33 c3 y2 o0 s2 R16",
		"nothing is left of a session to delete":                                                 "s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 D1 c0 x0",
		"a refused deletion has closed the session":                                              "s16 c2 c16 c35 D19",
		"a refused deletion counts as done, of a session whose history the bridge does not know": "v63 o22 c5 j10 k10 c4 c18 c6 D7",
		"another program cuts the end of the history":                                            "s12 c30 c1 O31 c22 c31 c19 x28",
		"another program cuts what was there before the last load": "s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 " +
			"c0 c0 c0 u0 c0 c0 c0 c0 c0 c0 c0 c0 s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 u0 c0 c0 c0 c0 " +
			"c0 c0 c0 c0 O7 s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0",
		"a message whose turn has ended is told as lost when it was cut": "v8 s0 c0 c0 c0 c0 c0 c0 c0 c0 c0 R1 c0 c0 c0 z0",
		"a turn is continued that a caller rewinds":                      "v56 x4 c34 c30 c22 j21 c27 c3 c6 c19 c14 x1 R1",
		"a turn is continued that another program has cut":               "v68 c30 t13 c19 c33 z23 c19 c2 c21 c11 O25 z8",
		"a message is taken up amid the end of the session": "s21 c20 s19 c34 s21 c15 c2 p12 c0 o6 c5 a28 c35 c16 c20 c15 c19 c17 c25 c25 " +
			"c22 c7 s29",
		"a message is sent amid the end of the session": "c14 s10 s15 c1 o0 c35 s0 c0 c4 c15 c10 p12 o7 c0 c20 c20 c18 c2 c13 s0 c23 c21 c7 " +
			"c29 c30 c24 s31 c20 c11 c10",
		"an earlier answer is taken for one that the CLI did not get": "v17 c33 t1 c29 c19 c22 c6 c17 j3 c11 c0 r27 c10 y30 r24 c11 c10 c27 x24",
		"a turn is continued in a session that the CLI does not know": "v48 t9 z3 s20 c29 c33 c26 c26 z17 D5 x34 c10 x7 t26 t17",
		"a turn runs that a load has found, although the bridge has given up": "v21 x8 q15 a19 a8 c14 c7 c10 c11 t1 c15 c27 c10 c17 c23 c2 l14 c2 " +
			"c2 c19 y31 y23 q20 y24 c26 c7 c15 k9 y16 c19 d27 y3",
		"another program cuts more than a caller":                "O18 s28 c10 s2 c24 c12 c30 c20 c10 c30 c7 c27 c20 c26 c14 c32 c0 R24 c24 x2",
		"a turn that another program has cut is told as aborted": "v66 c27 t11 c8 c22 z19 c15 c16 c25 c3 c31 O13 c34 x20",
		"a default answer does not reach the CLI":                "v35 t15 c30 c5 c29 c28 c2 w19 c23 x4 c26 w3 c28 w7",
	} {
		if wrong := play(t, parse(t, ops)); wrong != "" {
			t.Errorf("%s: %s", what, wrong)
		}
	}
}
