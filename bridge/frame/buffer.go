package frame

import (
	"math/bits"
	"sync"
)

// The pools have buffers of 1<<minClass to 1<<maxClass bytes, in powers of two: a frame that
// waits to be sent must not hold much more than it needs, and gRPC gives nothing back of 1 KiB
// or less.
const (
	minClass = 11
	maxClass = 20
)

var pools [maxClass + 1]sync.Pool

// Buffer is memory for the bytes of one frame that nobody shares. New memory for every frame
// costs a busy server a fifth of its time: it has to be found, brought into the cache, and
// collected. Whoever has taken a buffer may drop it; it is given back, once, by whoever knows
// that nobody reads it any more.
type Buffer struct {
	// Bytes are the caller's: it may append to them.
	Bytes []byte
}

// Take returns an empty buffer with room for n bytes.
func Take(n int) *Buffer {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	if class > maxClass {
		return &Buffer{Bytes: make([]byte, 0, n)}
	}
	if b, ok := pools[class].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{Bytes: make([]byte, 0, 1<<class)}
}

// Give gives the buffer back. Its bytes must not be looked at again.
func (b *Buffer) Give() {
	// It may have grown since it was taken.
	class := bits.Len(uint(cap(b.Bytes))) - 1
	if class < minClass || class > maxClass {
		return
	}
	b.Bytes = b.Bytes[:0]
	pools[class].Put(b)
}
