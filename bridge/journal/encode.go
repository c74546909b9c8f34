package journal

// Form is an encoding of an event for callers.
type Form uint8

const (
	// Tidy is the typed event without explicit nulls and empties that mean nothing.
	Tidy Form = iota
	// Exact is the typed event from which the JSON can be rebuilt.
	Exact
	// TidyOriginal is Tidy with the original JSON.
	TidyOriginal
	// ExactOriginal is Exact with the original JSON.
	ExactOriginal
	numForms
)

// Encoder returns the wire form of an event. It must succeed for every event that the CLI can send: it passes on as
// text what it cannot type.
type Encoder func(r *Record, f Form) []byte

// maxWireBytes bounds the cached encoded events of a journal. Readers that are further behind encode their events
// again. Readers are usually close together, and an unbounded cache would double the memory of a session.
const maxWireBytes = 2 << 20

// wires are the cached encoded events, oldest first.
type wires struct {
	queue []wired
	bytes int
}

type wired struct {
	record *Record
	form   Form
}

// wire returns the place of the record's cached wire form. The caller holds the journal's encodeLock.
func (r *Record) wire(f Form) *[]byte {
	if f == Tidy {
		return &r.tidy
	}
	if r.others == nil {
		r.others = new([numForms][]byte)
	}
	return &r.others[f]
}

// keep caches an encoded event, and drops the oldest ones above the limit.
func (w *wires) keep(r *Record, f Form) {
	w.queue = append(w.queue, wired{r, f})
	w.bytes += len(*r.wire(f))
	for w.bytes > maxWireBytes && len(w.queue) > 1 {
		old := &w.queue[0]
		wire := old.record.wire(old.form)
		w.bytes -= len(*wire)
		*wire = nil
		*old = wired{} // until append moves the queue, its memory keeps what was in front
		w.queue = w.queue[1:]
	}
}

// Alone reports whether there is at most one reader, so that caching encoded events has no use.
func (j *Journal) Alone() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.readers) <= 1
}

// Wire appends the wire form of the records to dst. Each record is encoded once for all readers, unless they are far
// apart. Notes give nil. The bytes are shared and must not be modified.
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
