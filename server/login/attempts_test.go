package login

import (
	"fmt"
	"testing"
	"time"
)

// An address has a burst and then one attempt a second, all addresses together have a burst and 20 a second; an attempt
// that is refused does not count, and one that is given back neither.
func TestAttempts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	a := newAttempts(func() time.Time { return now })
	taken := func(of string, n int) (count int) {
		for range n {
			if a.take(of) {
				count++
			}
		}
		return count
	}
	want := func(when string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d attempts, want %d", when, got, want)
		}
	}
	want("the first", taken("192.0.2.1:1", 100), addressBurst)
	want("of another port", taken("192.0.2.1:2", 10), 0)
	want("of the same network", taken("[2001:db8::1]:1", 15)+taken("[2001:db8::2]:1", 15), addressBurst)
	now = now.Add(3 * addressEvery)
	want("three seconds later", taken("192.0.2.1:1", 100), 3)
	a.give("192.0.2.1:1")
	want("with one given back", taken("192.0.2.1:1", 100), 1)
	now = now.Add(time.Hour)
	sum := 0
	for i := range 100 {
		sum += taken(fmt.Sprintf("198.51.100.%d:1", i), 10)
	}
	want("of all together", sum, overallBurst)
	now = now.Add(time.Second)
	want("of all a second later", taken("203.0.113.1:1", 10)+taken("203.0.113.2:1", 10)+taken("203.0.113.3:1", 10), 20)
	for i := range 2 * maxAddresses {
		a.take(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
	}
	if len(a.by) > maxAddresses || len(a.oldest) > maxAddresses {
		t.Errorf("%d addresses are remembered", len(a.by))
	}
}
