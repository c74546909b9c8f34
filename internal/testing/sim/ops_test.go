package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
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
//	G  has the agent ask a model by way of callers; B a caller gives a part of the response
//	i  begins another file of its record; O another program changes the history
//	u  the bridge unloads the session
//	H  another server continues it; N a caller needs it to be at rest; U the reader goes, or comes back
//	Q  a caller shuts the session down
//	S  the model does not answer, or a tool takes long
//	L  another replica takes the session; J gets it; T the storage of the cluster does not work, or works again
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

// doing is what a run can do, by the letter of an op.
var doing = map[rune]func(w *world, n int){
	'v': nil, 'V': nil, // see playWith
	's': func(w *world, n int) { w.send(&prompt{steps: n % 3, fails: n/3%4 == 3, immediate: n/12%3 == 2}) },
	't': func(w *world, n int) {
		w.send(&prompt{steps: 1 + n/18%2, calls: combinations[n%len(combinations)], fails: n == 35, immediate: n/6%6 == 5})
	},
	'j': func(w *world, n int) {
		w.send(&prompt{steps: 1 + n/18%2, calls: hookCombinations[n%len(hookCombinations)]})
	},
	'M': func(w *world, n int) {
		w.send(&prompt{
			steps: n / int(forms) % 2, form: form(n % int(forms)), immediate: n == int(forms)*2+int(several) || n == int(forms)*2,
			request: fmt.Sprint("r", len(w.prompts)), // of which each has its own
		})
	},
	'E': func(w *world, _ int) { w.editQueue() },
	'F': (*world).stall,
	'Z': func(w *world, _ int) { w.shutDown() },
	'r': (*world).answer,
	'd': (*world).abstain,
	'a': func(w *world, _ int) { w.abort() },
	'c': func(w *world, n int) { w.step(n) },
	'e': (*world).abandon,
	'b': func(w *world, n int) { w.also(func(c *cli) { c.repeat(n) }) },
	'h': func(w *world, n int) { w.also(func(c *cli) { c.help(n) }) },
	'g': (*world).burst,
	'G': func(w *world, n int) { w.also(func(c *cli) { c.infers(n) }) },
	'B': (*world).infer,
	'u': func(w *world, _ int) { w.unload() },
	'o': (*world).configure,
	'C': (*world).change,
	'A': (*world).elsewhere,
	'W': func(w *world, _ int) { w.watch() },
	'K': (*world).draw,
	'I': (*world).invoke,
	'm': (*world).set,
	'P': (*world).provide,
	'p': (*world).disconnect,
	'l': (*world).move,
	'q': (*world).failingLog,
	'y': (*world).hang,
	'f': func(w *world, n int) { w.failing(n%2 == 0) },
	'i': func(w *world, _ int) { w.also((*cli).beginFile) },
	'x': func(w *world, _ int) { w.crash() },
	'R': (*world).rewind,
	'O': (*world).other,
	'D': (*world).delete,
	'Q': func(w *world, _ int) { w.shutSession() },
	'S': (*world).stick,
	'H': (*world).handOver,
	'N': func(w *world, _ int) { w.rest() },
	'U': func(w *world, _ int) { w.away() },
	'z': func(w *world, _ int) {
		w.mu.Lock()
		w.end()
		w.mu.Unlock()
	},
	'L': (*world).lightLease,
	'J': (*world).moveAway,
	'T': (*world).disturb,
	'k': (*world).light,
	'w': func(w *world, n int) { w.pass(waits[n%len(waits)]) },
}

func (w *world) carryOut(o op) {
	w.mu.Lock()
	w.idle = 0
	w.mu.Unlock()
	doing[o.kind](w, o.n)
	w.endLost()
	w.restart(o.n)
}

// combinations are what the steps of a turn call at once.
var combinations = []string{"s", "p", "q", "sp", "ssq", "pt"}

// sometimes are the things that the runs of some seeds can also do: of so many seeds, those from and to these.
var sometimes = []struct {
	of, from, to uint64
	kinds        string
}{
	{8, 6, 7, "zz"}, {4, 0, 0, "x"}, {4, 2, 2, "xx"}, {8, 4, 7, "kk"}, {16, 8, 15, "ee"}, {32, 16, 31, "bbhhh"}, {64, 32, 63, "uooi"},
	{64, 48, 63, "fff"}, {32, 16, 31, "gg"}, {128, 64, 127, "lll"}, {256, 128, 255, "yyy"}, {512, 256, 511, "qqq"},
	{1024, 512, 1023, "ppo"}, {7, 3, 3, "RRRR"}, {11, 5, 5, "OOxzu"},
}

// script is the run of a seed. Most of what happens is done by the CLI. Every other one is of a swarm.
func script(seed uint64) (ops []op) {
	if seed%2 == 1 {
		return swarm(seed / 2)
	}
	seed /= 2
	rng := rand.New(rand.NewPCG(seed, 0))
	kinds := "ccccccccccccccccsssswwa"
	if seed%4 >= 2 {
		kinds = "ccccccccccccccccccccccccsttttwwarrrrrddx"
		if seed%16 >= 8 {
			kinds += "jjjr"
		}
		ops = append(ops, op{'v', rng.IntN(variants)})
	}
	for _, more := range sometimes {
		if n := seed % more.of; more.from <= n && n <= more.to {
			kinds += more.kinds
		}
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
	if seed%4 >= 2 && seed%3 == 1 {
		kinds += "GGGGBBBBBBBBrrawwl"
		if !variant(ops[0].n).attended() && seed%2 == 1 {
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
		ops = otherForms(ops, rng)
	}
	if seed%9 == 4 {
		ops = slices.Insert(ops, 1+rng.IntN(len(ops)), op{'D', rng.IntN(36)})
	}
	return ops
}

// otherForms has some more steps, and messages of other forms.
func otherForms(ops []op, rng *rand.Rand) []op {
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
	return ops
}

// clusterScript is the run of a seed in a cluster.
func clusterScript(seed uint64, rng *rand.Rand) (ops []op) {
	ops = append(ops, op{'V', 1 + rng.IntN(variants-1)})
	kinds := "ccccccccccccccccccccccccssttwwarrrrdx"
	for bit, more := range []string{"L", "LJJ", "zzJ", "kkx", "ee", "uool", "pp", "jjjr", "hhbg", "RRR", "TTTT"} {
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
