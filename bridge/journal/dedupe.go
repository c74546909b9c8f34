package journal

import "encoding/hex"

// maxTurnIDs bounds the ids remembered for one turn. A turn with more events than that
// forgets its oldest half: duplicates have been seen up to 86,000 events late.
const maxTurnIDs = 1 << 20

// id is an event's id: a UUID in 16 bytes, or the hash-free text of another form.
type id struct {
	uuid [16]byte
	text string
}

// dedupe remembers which events have been seen: durable ones for good, ephemeral ones
// of the current turn and the one before.
type dedupe struct {
	durable           map[id]struct{}
	current, previous map[id]struct{}
	limit             int // of ids in each of them
}

func newDedupe() dedupe {
	return dedupe{durable: map[id]struct{}{}, current: map[id]struct{}{}, limit: maxTurnIDs}
}

// add reports whether the id is new, and remembers it. An event without an id is
// always new.
func (d *dedupe) add(text string, ephemeral bool) bool {
	if text == "" {
		return true
	}
	k := parseID(text)
	if _, ok := d.durable[k]; ok {
		return false
	}
	if !ephemeral {
		d.durable[k] = struct{}{}
		return true
	}
	if _, ok := d.current[k]; ok {
		return false
	}
	if _, ok := d.previous[k]; ok {
		return false
	}
	if len(d.current) >= d.limit {
		d.rotate()
	}
	d.current[k] = struct{}{}
	return true
}

// rotate begins a new turn.
func (d *dedupe) rotate() {
	if len(d.current) == 0 {
		return
	}
	d.previous, d.current = d.current, map[id]struct{}{}
}

// parseID packs a UUID; other ids are kept as they are.
func parseID(text string) id {
	var k id
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		var digits [32]byte
		copy(digits[0:], text[0:8])
		copy(digits[8:], text[9:13])
		copy(digits[12:], text[14:18])
		copy(digits[16:], text[19:23])
		copy(digits[20:], text[24:36])
		if _, err := hex.Decode(k.uuid[:], digits[:]); err == nil {
			return k
		}
	}
	return id{text: text}
}
