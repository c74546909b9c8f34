package sim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// TestRepeat: equal runs behave alike, to the last byte that the bridge writes, so that a seed that fails fails again. When
// the operating system stops the process within a run, that run may differ; hence more tries.
func TestRepeat(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has goroutines take turns at random")
	}
	const tries = 8
	for seed := *first; seed < *first+uint64(*runs)/5; seed++ {
		ops := script(seed)
		traced := func() (lines []string) {
			playWith(t, ops, func(line string) { lines = append(lines, line) })
			return lines
		}
		all := [][]string{traced(), traced()}
		if slices.Equal(all[0], all[1]) {
			continue
		}
		for range tries {
			all = append(all, traced())
		}
		most := 0
		for _, one := range all {
			alike := 0
			for _, other := range all {
				if slices.Equal(one, other) {
					alike++
				}
			}
			most = max(most, alike)
		}
		if most < tries {
			t.Errorf("seed %d: %d of %d runs are alike: %s", seed, most, len(all), difference(all[0], all[1]))
		}
	}
}

// difference shows where two traces part.
func difference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %q and %q", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(a), len(b))
}
