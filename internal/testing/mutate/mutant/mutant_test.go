package mutant

import "testing"

// Each comparison is that of its name, and has the other bound if its mutation takes effect.
func TestComparisons(t *testing.T) {
	before := active
	t.Cleanup(func() { active = before })
	for _, active = range []int{0, 7} {
		other := active == 7
		for a := range 3 {
			for b := range 3 {
				for name, is := range map[string]bool{
					"less": Less(7, a, b) == (a < b || other && a == b), "at most": AtMost(7, a, b) == (a < b || !other && a == b),
					"more": More(7, a, b) == (a > b || other && a == b), "at least": AtLeast(7, a, b) == (a > b || !other && a == b),
				} {
					if !is {
						t.Errorf("%s of %d and %d is wrong, with mutation %d", name, a, b, active)
					}
				}
			}
		}
		if One(7) == 1 != other || Is(8) {
			t.Errorf("another mutation than %d takes effect", active)
		}
	}
}
