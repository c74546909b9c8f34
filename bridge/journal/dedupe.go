package journal

import "crypto/sha256"

// maxTurnIDs bounds the ids remembered for one turn. A turn with more events than that
// forgets its oldest half: duplicates have been seen up to 86,000 events late.
const maxTurnIDs = 1 << 20

// ID is an event's id: a UUID in 16 bytes, or what stands for the text of another form.
// The zero ID is that of an event without one.
type ID [16]byte

// dedupe remembers which events have been seen: durable ones for good, ephemeral ones
// of the current turn and the one before.
type dedupe struct {
	durable           idTable[uint64] // with their seq
	current, previous idTable[struct{}]
	limit             int // of ids in each of them
}

func newDedupe() dedupe { return dedupe{limit: maxTurnIDs} }

// add reports whether the id is new, and remembers it, for a durable event with its seq.
// An event without an id is always new.
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

// rotate begins a new turn.
func (d *dedupe) rotate() {
	if d.current.n > 0 {
		d.previous, d.current = d.current, idTable[struct{}]{}
	}
}

// ParseID packs the text of an id. What is not a UUID is told apart by its hash.
func ParseID(text []byte) ID {
	var k ID
	if len(text) == 0 {
		return k
	}
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		bad := byte(0)
		for i, at := range uuidDigits {
			high, low := digits[text[at]], digits[text[at+1]]
			bad |= high | low
			k[i] = high<<4 | low&15
		}
		if bad <= 15 {
			return k
		}
	}
	sum := sha256.Sum256(text)
	return ID(sum[:16])
}

// uuidDigits is where the bytes of a UUID are in its text.
var uuidDigits = [16]byte{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// digits are the values of hexadecimal digits; those of all else are over 15.
var digits = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range "0123456789abcdef" {
		table[c] = byte(i)
	}
	for i, c := range "ABCDEF" {
		table[c] = byte(10 + i)
	}
	return table
}()
