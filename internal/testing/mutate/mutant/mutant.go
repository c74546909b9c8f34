// Package mutant says which of a program's mutations takes effect. Package mutate writes calls of it into a copy of the
// source, which then has all mutations at once, so that it is built once and not for each of them.
package mutant

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

// The environment of a program with mutations.
const (
	// Active is the number of the mutation that takes effect; none does without it.
	Active = "MUTANT"
	// Reached is a file to which the number of each mutation is appended when it is come by first.
	Reached = "MUTANTS_REACHED"
)

// Max is one more than the largest number.
const Max = 1 << 14

var (
	active, _ = strconv.Atoi(os.Getenv(Active)) // none is 0
	list      = open(os.Getenv(Reached))
	seen      [Max]atomic.Bool
)

func open(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // a name that package mutate has made
	if err != nil {
		panic(err)
	}
	return f
}

// Is reports whether a mutation takes effect.
func Is(n int) bool {
	if list != nil && !seen[n].Swap(true) {
		fmt.Fprintln(list, n)
	}
	return n == active
}

// One is 1 if a mutation takes effect, else 0.
func One(n int) int {
	if Is(n) {
		return 1
	}
	return 0
}

// Less is a < b, and a <= b if a mutation takes effect.
func Less[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && Is(n) }

// AtMost is a <= b, and a < b if a mutation takes effect.
func AtMost[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && !Is(n) }

// More is a > b, and a >= b if a mutation takes effect.
func More[T cmp.Ordered](n int, a, b T) bool { return Less(n, b, a) }

// AtLeast is a >= b, and a > b if a mutation takes effect.
func AtLeast[T cmp.Ordered](n int, a, b T) bool { return AtMost(n, b, a) }
