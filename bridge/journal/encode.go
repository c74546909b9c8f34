package journal

// Form is a way to encode an event for callers.
type Form uint8

// The forms.
const (
	// Tidy is the typed event without explicit nulls and empties that mean nothing.
	Tidy Form = iota
	// Exact is the typed event from which the JSON can be rebuilt.
	Exact
	// TidyOriginal is Tidy with the JSON itself.
	TidyOriginal
	// ExactOriginal is Exact with the JSON itself.
	ExactOriginal
	numForms
)

// Encoder gives the wire form of an event. It must not fail on any event the CLI can
// send: what it cannot type, it passes on as text.
type Encoder func(r *Record, f Form) []byte

type cached struct{ wire []byte }

// Wire returns the records' wire form, encoding each at most once however many
// readers ask. Notes give nil. The bytes are shared: they must not be written to.
func (j *Journal) Wire(dst [][]byte, records []*Record, f Form) [][]byte {
	j.encodeLock.Lock()
	defer j.encodeLock.Unlock()
	for _, r := range records {
		if r.Note != nil {
			dst = append(dst, nil)
			continue
		}
		c := &r.cache[f]
		if c.wire == nil {
			c.wire = j.cfg.Encode(r, f)
		}
		dst = append(dst, c.wire)
	}
	return dst
}
