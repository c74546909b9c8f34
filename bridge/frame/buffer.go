package frame

import (
	"math/bits"
	"sync"
)

// The pools have buffers of 1<<minClass to 1<<maxClass bytes, in powers of two: a waiting frame must not use much
// more memory than necessary, and gRPC does not return buffers of 1 KiB or less.
const (
	minClass = 11
	maxClass = 20
)

var pools [maxClass + 1]sync.Pool

// Buffer is memory for the bytes of one frame. A new allocation for every frame would cost a busy server a fifth of
// its time. Dropping a buffer is permitted; otherwise its last user gives it back, once.
type Buffer struct {
	// Bytes may be appended to by the owner of the buffer.
	Bytes []byte
}

// Take returns an empty buffer with a capacity of at least n bytes.
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

// Give returns the buffer to its pool. Its bytes must not be used afterwards.
func (b *Buffer) Give() {
	// The buffer may have grown since Take.
	class := bits.Len(uint(cap(b.Bytes))) - 1
	if class < minClass || class > maxClass {
		return
	}
	b.Bytes = b.Bytes[:0]
	pools[class].Put(b)
}
