package cluster

import (
	"fmt"
	"testing"
)

// Sessions are spread evenly. When a member leaves, only its sessions move, evenly to the rest.
func TestWinners(t *testing.T) {
	t.Parallel()
	if winner("s", nil) != "" {
		t.Error("there is a winner without members")
	}
	const sessions = 6000
	all := []string{"a", "b", "c", "d"}
	before, after := map[string]int{}, map[string]int{}
	for i := range sessions {
		s := fmt.Sprintf("session-%d", i)
		w := winner(s, all)
		if other := winner(s, []string{"d", "b", "a", "c"}); other != w {
			t.Fatalf("%s goes to %q or %q, by the order of the members", s, w, other)
		}
		before[w]++
		next := winner(s, all[1:])
		if w != "a" && next != w {
			t.Fatalf("%s moves from %q to %q when another member leaves", s, w, next)
		}
		if w == "a" {
			after[next]++
		}
	}
	for _, m := range all {
		if n := before[m]; n < sessions/4*9/10 || n > sessions/4*11/10 {
			t.Errorf("%q has %d of %d sessions", m, n, sessions)
		}
	}
	for _, m := range all[1:] {
		if n, share := after[m], before["a"]/3; n < share*8/10 || n > share*12/10 {
			t.Errorf("%q takes %d of %d sessions", m, n, before["a"])
		}
	}
}
