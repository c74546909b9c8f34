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

// maxWireBytes bounds the encoded events of a journal that are kept for other readers.
// Who is further behind has them encoded again: readers that follow are close together,
// and kept for good they would double what a session takes.
const maxWireBytes = 2 << 20

// wires are the encoded events that are kept, oldest first.
type wires struct {
	queue []wired
	first int // queue[:first] is free
	bytes int
}

type wired struct {
	record *Record
	form   Form
}

// wire is where the record's wire form is kept. The journal's encodeLock must be held.
func (r *Record) wire(f Form) *[]byte {
	if f == Tidy {
		return &r.tidy
	}
	if r.others == nil {
		r.others = new([numForms][]byte)
	}
	return &r.others[f]
}

// keep keeps an encoded event, and lets go of the oldest for it.
func (w *wires) keep(r *Record, f Form) {
	w.queue = append(w.queue, wired{r, f})
	w.bytes += len(*r.wire(f))
	for w.bytes > maxWireBytes && w.first < len(w.queue)-1 {
		old := &w.queue[w.first]
		wire := old.record.wire(old.form)
		w.bytes -= len(*wire)
		*wire = nil
		*old = wired{}
		w.first++
	}
	if w.first > len(w.queue)/2 {
		n := copy(w.queue, w.queue[w.first:])
		clear(w.queue[n:])
		w.queue, w.first = w.queue[:n], 0
	}
}

// Alone reports whether there is one reader at most, for which nothing need be kept encoded.
func (j *Journal) Alone() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.readers) <= 1
}

// Wire returns the records' wire form, encoding each once however many readers ask, so
// long as they are not far apart. Notes give nil. The bytes are shared: they must not be
// written to.
func (j *Journal) Wire(dst [][]byte, records []*Record, f Form) [][]byte {
	j.encodeLock.Lock()
	defer j.encodeLock.Unlock()
	for _, r := range records {
		if r.Note != nil {
			dst = append(dst, nil)
			continue
		}
		wire := r.wire(f)
		if *wire == nil {
			*wire = j.cfg.Encode(r, f)
			dst = append(dst, *wire)
			j.encoded.keep(r, f)
			continue
		}
		dst = append(dst, *wire)
	}
	return dst
}
