package stream

import (
	"slices"
	"testing"
)

// Sessions take turns: each that becomes ready is taken once before any is taken again.
func TestReadyQueueIsFair(t *testing.T) {
	t.Parallel()
	q := newReadyQueue()
	a, b, c := &sessionStream{}, &sessionStream{}, &sessionStream{}
	for _, s := range []*sessionStream{a, b, a, a} {
		q.add(s)
	}
	<-q.signal
	if got := q.take(nil); !slices.Equal(got, []*sessionStream{a, b}) {
		t.Errorf("ready: %v", got)
	}
	if got := q.take(nil); len(got) != 0 || len(q.signal) != 0 {
		t.Errorf("then: %v", got)
	}
	q.add(b)
	q.add(c)
	q.add(a)
	if got := q.take(nil); !slices.Equal(got, []*sessionStream{b, c, a}) || len(q.signal) != 1 {
		t.Errorf("ready: %v", got)
	}
}
