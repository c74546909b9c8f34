package fleet

import (
	"errors"
	"slices"
	"testing"
)

// A list has the running runtimes and the last ended ones, and drops older ones.
func TestListKeepsTheLastEndedRuntimes(t *testing.T) {
	t.Parallel()
	var l list
	var all []*Runtime
	for range maxDown + 3 {
		r := &Runtime{}
		all = append(all, r)
		l.add(r)
	}
	end := func(r *Runtime, remove bool) {
		r.lost = errors.New("exited")
		l.ended(r, remove)
	}
	end(all[0], true)
	if got := l.all(); !slices.Equal(got, all[1:]) {
		t.Errorf("%d runtimes after one was removed, want %d", len(got), len(all)-1)
	}
	for _, r := range all[2:] {
		end(r, false)
	}
	// all[1] runs; of the others the oldest is beyond the bound.
	if got, want := l.all(), append([]*Runtime{all[1]}, all[3:]...); !slices.Equal(got, want) {
		t.Errorf("%d runtimes after the others ended, want %d", len(got), len(want))
	}
	if r := l.find(func(r *Runtime) bool { return r.lost == nil }); r != all[1] {
		t.Errorf("the one that runs is found as %p, want %p", r, all[1])
	}
	if r := l.find(func(r *Runtime) bool { return r == all[0] }); r != nil {
		t.Errorf("the one that was removed is found as %p", r)
	}
}
