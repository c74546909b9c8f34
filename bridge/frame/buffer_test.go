package frame

import "testing"

// A buffer has the requested size, hardly more, and no earlier content.
func TestTake(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 1 << minClass, 1<<minClass + 1, 30_000, 1 << maxClass, 1<<maxClass + 1} {
		for range 3 {
			b := Take(n)
			if len(b.Bytes) != 0 || cap(b.Bytes) < n || cap(b.Bytes) > max(2*n, 1<<minClass) {
				t.Fatalf("asked for %d: %d of %d bytes", n, len(b.Bytes), cap(b.Bytes))
			}
			b.Bytes = append(b.Bytes, make([]byte, n)...)
			b.Give()
		}
	}
}

// One that has grown goes where others look for that much; one too large or small goes.
func TestGiveGrown(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3 << minClass, 4 << maxClass} {
		b := Take(1)
		b.Bytes = make([]byte, size)
		b.Give()
		for range 4 {
			if got := Take(2 << minClass); cap(got.Bytes) < 2<<minClass {
				t.Fatalf("given %d: room for %d", size, cap(got.Bytes))
			}
		}
	}
}
