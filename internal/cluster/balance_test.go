package cluster

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSurplus(t *testing.T) {
	t.Parallel()
	member := func(id string, n int) Member { return Member{ID: id, Sessions: n} }
	for name, c := range map[string]struct {
		members []Member
		to      string
		n       int
	}{
		"alone":           {[]Member{member("own", 100)}, "", 0},
		"equal":           {[]Member{member("own", 50), member("b", 50)}, "", 0},
		"one more":        {[]Member{member("own", 51), member("b", 49)}, "", 0},
		"a new one":       {[]Member{member("own", 100), member("b", 0)}, "b", 50},
		"less than":       {[]Member{member("own", 10), member("b", 100)}, "", 0},
		"the emptiest":    {[]Member{member("own", 90), member("b", 20), member("c", 10)}, "c", 30},
		"not too much":    {[]Member{member("own", 90), member("b", 40), member("c", 41)}, "b", 17},
		"one drains":      {[]Member{member("own", 90), {ID: "b", Draining: true}}, "", 0},
		"draining itself": {[]Member{{ID: "own", Sessions: 90, Draining: true}, member("b", 0), member("c", 0)}, "", 0},
	} {
		if to, n := Surplus(c.members, "own"); to.ID != c.to || n != c.n {
			t.Errorf("%s: %d to %q, want %d to %q", name, n, to.ID, c.n, c.to)
		}
	}
}

// Moves end: members that give away their surplus one at a time come to rest, and then differ little.
func TestBalanceEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := make([]Member, rapid.IntRange(1, 6).Draw(t, "members"))
		total := 0
		for i := range members {
			members[i] = Member{ID: string(rune('a' + i)), Sessions: rapid.IntRange(0, 200).Draw(t, "sessions")}
			total += members[i].Sessions
		}
		for rounds := 0; ; rounds++ {
			if rounds > total {
				t.Fatal("sessions move to and fro")
			}
			moved := false
			for i := range members {
				if to, n := Surplus(members, members[i].ID); n > 0 {
					j := slices.IndexFunc(members, func(m Member) bool { return m.ID == to.ID })
					members[i].Sessions--
					members[j].Sessions++
					moved = true
				}
			}
			if !moved {
				break
			}
		}
		mean := total / len(members)
		for _, m := range members {
			if m.Sessions > mean+mean/10+1 {
				t.Fatalf("%v has more than a tenth above %d", m, mean)
			}
		}
	})
}
