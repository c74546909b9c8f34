package translate

import (
	"encoding/binary"
	"math/bits"
)

// names finds a string among a fixed set: one hash of its length and up to
// sixteen of its bytes, then one comparison in nearly every case.
type names struct {
	slots []nameSlot // a power of two, at most half full
	shift uint8
}

type nameSlot struct {
	name  string
	value int32
	used  bool
}

func newNames(n int) names {
	size := 4
	for size < 2*n {
		size *= 2
	}
	return names{
		slots: make([]nameSlot, size),
		shift: uint8(64 - bits.TrailingZeros(uint(size))),
	}
}

// add enters a name; it reports false when it is there already.
func (t *names) add(name string, value int32) bool {
	i := hashName([]byte(name)) >> t.shift
	for t.slots[i].used {
		if t.slots[i].name == name {
			return false
		}
		i = (i + 1) & uint64(len(t.slots)-1)
	}
	t.slots[i] = nameSlot{name: name, value: value, used: true}
	return true
}

// find returns the value of a name, -1 when it is not in the set.
func (t *names) find(name []byte) int32 {
	if len(t.slots) == 0 {
		return -1
	}
	i := hashName(name) >> t.shift
	for {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if !s.used {
			return -1
		}
		if s.name == string(name) {
			return s.value
		}
		i++
	}
}

func hashName(b []byte) uint64 {
	var head, tail uint64
	switch n := len(b); {
	case n >= 8:
		head, tail = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		head, tail = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		head, tail = uint64(b[0])|uint64(b[n/2])<<8, uint64(b[n-1])
	}
	h := head*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(tail*0xc2b2ae3d27d4eb4f, 31) ^ uint64(len(b))
	return h * 0x9e3779b97f4a7c15
}
