package broadcast

import (
	"slices"
	"sync"
	"testing"
)

func all(int) bool { return true }

func TestOverflow(t *testing.T) {
	t.Parallel()
	const size = 3
	for name, test := range map[string]struct {
		overflow Overflow
		publish  []int
		want     Batch[int]
	}{
		"nothing":            {DropOldest, nil, Batch[int]{}},
		"room":               {DropOldest, []int{1, 2, 3}, Batch[int]{Values: []int{1, 2, 3}}},
		"one too many":       {DropOldest, []int{1, 2, 3, 4}, Batch[int]{Values: []int{2, 3, 4}, Dropped: 1}},
		"several times over": {DropOldest, []int{1, 2, 3, 4, 5, 6, 7, 8}, Batch[int]{Values: []int{6, 7, 8}, Dropped: 5}},
		"room to reset":      {Reset, []int{1, 2, 3}, Batch[int]{Values: []int{1, 2, 3}}},
		"reset":              {Reset, []int{1, 2, 3, 4}, Batch[int]{Reset: true}},
		"after the reset":    {Reset, []int{1, 2, 3, 4, 5, 6}, Batch[int]{Reset: true}},
	} {
		h := New[int](size, test.overflow)
		s := h.Subscribe(all)
		for _, v := range test.publish {
			h.Publish(v)
		}
		if got := len(s.Ready()) > 0; got != (len(test.publish) > 0) {
			t.Errorf("%s: ready is %v", name, got)
		}
		if got := s.Take(); !equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		// Taking starts anew: neither the count nor the reset is reported twice.
		if got := s.Take(); !equal(got, Batch[int]{}) {
			t.Errorf("%s: a second time %v", name, got)
		}
		h.Publish(9)
		if got := s.Take(); !equal(got, Batch[int]{Values: []int{9}}) {
			t.Errorf("%s: after that %v", name, got)
		}
	}
}

func equal(a, b Batch[int]) bool {
	return slices.Equal(a.Values, b.Values) && a.Dropped == b.Dropped && a.Reset == b.Reset
}

func TestSubscribersAreSeparate(t *testing.T) {
	t.Parallel()
	h := New[int](2, DropOldest)
	if h.Active() {
		t.Error("a new hub is active")
	}
	h.Publish(0)
	odd := h.Subscribe(func(n int) bool { return n%2 == 1 })
	every := h.Subscribe(all)
	if !h.Active() {
		t.Error("a hub with subscriptions is not active")
	}
	for n := range 5 {
		h.Publish(n)
	}
	if got := odd.Take(); !equal(got, Batch[int]{Values: []int{1, 3}}) {
		t.Errorf("the odd ones: %v", got)
	}
	if got := every.Take(); !equal(got, Batch[int]{Values: []int{3, 4}, Dropped: 3}) {
		t.Errorf("all: %v", got)
	}
	h.Publish(5)
	odd.Close()
	h.Publish(7)
	if got := odd.Take(); !equal(got, Batch[int]{Values: []int{5}}) {
		t.Errorf("after Close: %v", got)
	}
	every.Close()
	every.Close()
	if h.Active() {
		t.Error("a hub without subscriptions is active")
	}
}

// Under concurrent use no value is lost without being counted, none is delivered twice, and
// each publisher's values keep their order.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const publishers, values = 4, 2000
	h := New[[2]int](64, DropOldest)
	var readers, writers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		s := h.Subscribe(func([2]int) bool { return true })
		readers.Go(func() {
			defer s.Close()
			var total int64
			var next [publishers]int
			take := func() {
				batch := s.Take()
				total += int64(len(batch.Values)) + batch.Dropped
				for _, v := range batch.Values {
					if v[1] < next[v[0]] {
						t.Errorf("value %d of publisher %d comes after %d", v[1], v[0], next[v[0]]-1)
					}
					next[v[0]] = v[1] + 1
				}
			}
			for {
				select {
				case <-s.Ready():
					take()
				case <-done:
					take()
					if total != publishers*values {
						t.Errorf("%d values delivered or counted, want %d", total, publishers*values)
					}
					return
				}
			}
		})
	}
	for p := range publishers {
		writers.Go(func() {
			for n := range values {
				h.Publish([2]int{p, n})
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}
