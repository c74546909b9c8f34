package sim

import (
	"math/rand/v2"
	"strings"
)

// What a swarm's run may do in a cluster, and with a bridge of its own. Deletions end most of a run: they are rarer.
const (
	ofReplicas = "stjrdaeolupRDbghxzkLJTw"
	ofOne      = "stjMrdAEaeomPpRDlCIKWGBbghiOuHNUQSxyzkZFfqw"
)

// swarm is the run of a seed that can do a few things only, and does those often: things meet that are rare where all can
// happen (swarm testing: Groce et al., ISSTA 2012).
func swarm(seed uint64) (ops []op) {
	rng := rand.New(rand.NewPCG(seed, 7))
	can, kinds := ofOne, string("stM"[rng.IntN(3)])
	first := op{'v', rng.IntN(12 * variants)}
	if rng.IntN(2) == 0 {
		first.n %= variants
	}
	if rng.IntN(4) == 0 {
		can, kinds = ofReplicas, string("st"[rng.IntN(2)])
		first = op{'V', 1 + rng.IntN(variants-1)}
	}
	for _, kind := range can {
		if rng.IntN(3) == 0 {
			kinds += times(kind, 1+rng.IntN(6))
		}
	}
	kinds += times('c', 4+rng.IntN(30))
	ops = append(ops, first)
	for size := 10 + rng.IntN(90); len(ops) < size; {
		kind := rune(kinds[rng.IntN(len(kinds))])
		if kind == 'D' && rng.IntN(5) > 0 {
			continue
		}
		ops = append(ops, op{kind, rng.IntN(36)})
		if kind == 'c' && rng.IntN(4) == 0 { // the CLI goes on for a while
			for range rng.IntN(10) {
				ops = append(ops, op{kind, 0})
			}
		}
	}
	return ops
}

// times is a kind, repeated.
func times(kind rune, n int) string { return strings.Repeat(string(kind), n) }
