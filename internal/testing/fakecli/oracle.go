package fakecli

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Kinds of Entry.
const (
	EntryEvent        = "event"        // a session.event to the connections in the session
	EntryCopy         = "copy"         // the second copy of an earlier event
	EntryNotification = "notification" // any other notification sent
	EntryReply        = "reply"        // a reply sent
	EntryRequest      = "request"      // a request sent to the client
	EntryReceived     = "received"     // a message received
	EntryFault        = "fault"        // a misbehaviour
)

// maxLog bounds the entries that are kept in memory; later ones are only counted.
const maxLog = 1 << 21

// shortResult is how long a result may be to be logged.
const shortResult = 64

// Entry is one line of the oracle's log.
type Entry struct {
	Seq       int    `json:"seq"`
	Time      string `json:"time"`
	Kind      string `json:"kind"`
	Session   string `json:"session,omitempty"`
	Type      string `json:"type,omitempty"` // event type, method, or kind of fault
	ID        string `json:"id,omitempty"`   // event id, or JSON-RPC id
	Ephemeral bool   `json:"ephemeral,omitempty"`
	// Body is the message received, the data of a durable event, or a reply's result if
	// it is short.
	Body json.RawMessage `json:"body,omitempty"`
}

// oracle remembers everything in order.
type oracle struct {
	mu      sync.Mutex
	now     func() time.Time
	entries []Entry
	total   int
	keep    bool // in entries
	out     *json.Encoder
}

func newOracle(w io.Writer, now func() time.Time) *oracle {
	o := &oracle{now: now, keep: true}
	if w != nil {
		o.out = json.NewEncoder(w)
	}
	return o
}

func (o *oracle) add(e Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total++
	e.Seq, e.Time = o.total, stamp(o.now())
	if o.keep && len(o.entries) < maxLog {
		o.entries = append(o.entries, e)
	}
	if o.out != nil {
		_ = o.out.Encode(e) // the log is for tests; a full disk is theirs to see
	}
}

func (o *oracle) snapshot() []Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Entry(nil), o.entries...)
}

// timeFormat is that of Entry.Time and of the CLI's events.
const timeFormat = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(timeFormat) }
