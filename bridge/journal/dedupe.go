package journal

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxTurnIDs bounds the ids remembered for one turn. Beyond it the oldest half is dropped. Duplicates have been
// observed up to 86,000 events late.
const maxTurnIDs = 1 << 20

// ID is an event's id: the 16 bytes of a UUID, or a hash of any other text. The zero ID means that the event has no
// id.
type ID [16]byte

// dedupe remembers the ids of received events: durable ones permanently, ephemeral ones for the current and the
// previous turn.
type dedupe struct {
	durable           idTable[uint64] // with their seq
	current, previous idTable[struct{}]
	limit             int // of ids in each of them
}

func newDedupe() dedupe { return dedupe{limit: maxTurnIDs} }

// add reports whether the id is new, and remembers it. A durable event is stored with its seq. An event without an id
// is always new.
func (d *dedupe) add(k ID, ephemeral bool, seq uint64) bool {
	if k == (ID{}) {
		return true
	}
	if _, ok := d.durable.get(k); ok {
		return false
	}
	if !ephemeral {
		return d.durable.set(k, seq)
	}
	if _, ok := d.previous.get(k); ok {
		return false
	}
	if d.current.n >= d.limit {
		if _, ok := d.current.get(k); ok {
			return false
		}
		d.rotate()
	}
	return d.current.set(k, struct{}{})
}

// has reports whether add was called with an id that is remembered.
func (d *dedupe) has(k ID) bool {
	if k == (ID{}) {
		return false
	}
	_, durable := d.durable.get(k)
	_, current := d.current.get(k)
	_, previous := d.previous.get(k)
	return durable || current || previous
}

// rotate starts a new turn.
func (d *dedupe) rotate() {
	if d.current.n > 0 {
		d.previous, d.current = d.current, idTable[struct{}]{}
	}
}

// ParseID parses the text of an id. Text that is not a UUID is represented by its hash.
func ParseID(text []byte) ID {
	var k ID
	if len(text) == 0 {
		return k
	}
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		var digits [32]byte
		copy(digits[:8], text)
		copy(digits[8:12], text[9:])
		copy(digits[12:16], text[14:])
		copy(digits[16:20], text[19:])
		copy(digits[20:], text[24:])
		if _, err := hex.Decode(k[:], digits[:]); err == nil {
			return k
		}
	}
	sum := sha256.Sum256(text)
	return ID(sum[:16])
}
