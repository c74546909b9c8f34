package codec

import "google.golang.org/grpc/mem"

// Raw is a message that passes through as bytes: it is received without being decoded and sent without being copied.
// A received message is sent once or freed. A Raw is for one goroutine at a time; it may be used again for the next
// message after it was sent.
type Raw struct{ data mem.BufferSlice }

// take sets the received bytes, and keeps a reference to them.
func (r *Raw) take(data mem.BufferSlice) {
	r.Free()
	data.Ref()
	r.data = data
}

// give returns the bytes with the reference to them.
func (r *Raw) give() mem.BufferSlice {
	data := r.data
	r.data = nil
	return data
}

// Len returns the number of bytes.
func (r *Raw) Len() int { return r.data.Len() }

// Head copies the first bytes into buf, and returns what it has copied.
func (r *Raw) Head(buf []byte) []byte { return buf[:r.data.CopyTo(buf)] }

// Wire implements Ready. It copies the bytes.
func (r *Raw) Wire() []byte { return r.data.Materialize() }

// TakeWire implements Ready.
func (r *Raw) TakeWire(wire []byte) {
	r.Free()
	r.data = mem.BufferSlice{mem.SliceBuffer(wire)}
}

// Free releases a message that is not sent.
func (r *Raw) Free() { r.give().Free() }
