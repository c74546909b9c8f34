package journal

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// idTable maps ids to values. The goroutine that reads from the CLI looks up every event in three tables and inserts
// it into one. A map takes several times as long, mostly to hash ids that are random already. Single ids cannot be
// removed. The zero ID is not a valid key.
type idTable[V any] struct {
	slots []idSlot[V] // a power of two of them, of which a quarter at least are free
	n     int
}

type idSlot[V any] struct {
	value V // first, since one without a size takes room at the end
	id    ID
}

// idSeed is random, so that a peer that chooses ids cannot choose their slots.
var idSeed = rand.Uint64()

// minSlots is the initial number of slots.
const minSlots = 8

// slot returns the slot of an id, or the free slot for it. There must be a free slot.
func (t *idTable[V]) slot(id ID) *idSlot[V] {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(id[:8])^idSeed,
		binary.LittleEndian.Uint64(id[8:])^bits.RotateLeft64(idSeed, 31))
	mask := uint64(len(t.slots) - 1)
	for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.id == id || s.id == (ID{}) {
			return s
		}
	}
}

// get returns the value of an id, and whether there is one.
func (t *idTable[V]) get(id ID) (v V, ok bool) {
	if t.n == 0 {
		return v, false
	}
	s := t.slot(id)
	return s.value, s.id == id
}

// set stores the value of an id, and reports whether the id is new.
func (t *idTable[V]) set(id ID, v V) bool {
	if t.n >= len(t.slots)/4*3 {
		t.grow()
	}
	s := t.slot(id)
	s.value = v
	if s.id == id {
		return false
	}
	s.id = id
	t.n++
	return true
}

func (t *idTable[V]) grow() {
	old := t.slots
	t.slots = make([]idSlot[V], max(minSlots, 2*len(old)))
	for i := range old {
		if old[i].id != (ID{}) {
			*t.slot(old[i].id) = old[i]
		}
	}
}
