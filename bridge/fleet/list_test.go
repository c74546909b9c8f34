package fleet

import (
	"errors"
	"slices"
	"testing"
)

type fakeRuntime struct{ err error }

func (r *fakeRuntime) Err() error { return r.err }

// A list has the running runtimes and the last ended ones, and drops older ones.
func TestListKeepsTheLastEndedRuntimes(t *testing.T) {
	t.Parallel()
	var l list[*fakeRuntime]
	var all []*fakeRuntime
	for range maxDown + 3 {
		r := &fakeRuntime{}
		all = append(all, r)
		l.add(r)
	}
	end := func(r *fakeRuntime, remove bool) {
		r.err = errors.New("exited")
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
	if got, want := l.all(), append([]*fakeRuntime{all[1]}, all[3:]...); !slices.Equal(got, want) {
		t.Errorf("%d runtimes after the others ended, want %d", len(got), len(want))
	}
	if r, ok := l.find(func(r *fakeRuntime) bool { return r.err == nil }); !ok || r != all[1] {
		t.Errorf("the one that runs is found as %p, %t, want %p", r, ok, all[1])
	}
	if r, ok := l.find(func(r *fakeRuntime) bool { return r == all[0] }); ok || r != nil {
		t.Errorf("the one that was removed is found as %p", r)
	}
}
