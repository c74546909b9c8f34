package progress

import (
	"context"
	"slices"
	"testing"
)

// Each stage is reported once and in order, to the innermost caller of Watch, until it stops.
func TestWatch(t *testing.T) {
	t.Parallel()
	var outer, inner []Stage
	Report(t.Context(), Starting) // nobody watches
	ctx, stopOuter := Watch(t.Context(), func(s Stage) { outer = append(outer, s) })
	defer stopOuter()
	ctx, stop := Watch(ctx, func(s Stage) { inner = append(inner, s) })
	for _, stage := range []Stage{0, Installing, Installing, Starting, Installing, Starting} {
		Report(context.WithoutCancel(ctx), stage)
	}
	if want := []Stage{Installing, Starting}; !slices.Equal(inner, want) || outer != nil {
		t.Errorf("reported %v inside and %v outside, want %v and none", inner, outer, want)
	}
	late, stopLate := Watch(t.Context(), func(s Stage) { t.Errorf("%v reported after stop", s) })
	stopLate()
	Report(late, Starting)
	stop()
}

// All members of a group hear of a stage, those that join later too, and a group that was empty begins anew.
func TestGroup(t *testing.T) {
	t.Parallel()
	var g Group
	heard := map[string][]Stage{}
	join := func(name string) func() {
		ctx, _ := Watch(t.Context(), func(s Stage) { heard[name] = append(heard[name], s) })
		return g.Join(ctx)
	}
	leaveFirst := join("first")
	g.Report(Installing)
	leaveSecond := join("second")
	g.Report(Starting)
	leaveThird := join("third")
	leaveFirst()
	leaveSecond()
	leaveThird()
	defer join("fourth")()
	for name, want := range map[string][]Stage{
		"first": {Installing, Starting}, "second": {Installing, Starting}, "third": {Starting}, "fourth": nil,
	} {
		if !slices.Equal(heard[name], want) {
			t.Errorf("%s heard %v, want %v", name, heard[name], want)
		}
	}
}
