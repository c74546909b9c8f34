// Package backend declares what the bridge needs of the place in which sessions outlive it: the
// logs of sessions, their outboxes and remembered requests.
// Package store implements all of it in a data directory. Package backendtest has the tests that
// every implementation has to pass.
//
// Callers today:
//
//   - Log: journal.Disk writes the events of a session through it, one batch at a time, and reads
//     those that are no longer in memory.
//   - Requests: idempotency.Runner, by bridge.Directory.
//   - Files: the outbox of a session, by bridge.Directory.
//
// # Terms
//
// A term numbers a period in which one owner has a session. Terms of one session only grow, also
// across restarts. Every change of a log belongs to a term, and a change of an earlier term than
// the session's current one is refused with ErrStale: an owner that was frozen and wakes up cannot
// write. A term is not an epoch, which numbers the contents of a journal.
//
// The journal does not act on ErrStale: it retries every failed write. A replica of a cluster ends.
//
// # A second implementation
//
// On NATS JetStream a log is a subject. Open appends an entry with the term, expecting the
// subject's last sequence; from then on the server refuses appends of the earlier owner, who
// expects an older sequence. Append sends one batch and waits for the acknowledgement, from which
// it knows the next sequence to expect. Its logs are remote: the journal's writer appends to
// several at a time. Sync and Rest have nothing to do there.
package backend

import (
	"errors"
	"time"
)

// ErrStale reports a change by an owner whose term is over, or that does not know the last change.
var ErrStale = errors.New("the session has another owner by now")

// Damage describes a session whose data could not be read. The bridge does not delete the data.
type Damage struct {
	// Key is the session's key, as far as it is known.
	Key string `json:"key"`
	// Reason says what is wrong with the data.
	Reason string `json:"reason"`
	// FoundAt is when the damage was found.
	FoundAt time.Time `json:"foundAt"`
	// Place is the folder with the data, relative to the data directory.
	Place string `json:"-"`
}

// State is the saved state of a session.
type State struct {
	// Key is the session's key.
	Key string
	// Data is JSON.
	Data []byte
	// Later reports that the save need not survive a crash of the machine at once, because no reply waits for it.
	Later bool
}

// Files keeps the outbox of a session: a state, and files for what is too large for it. A name has no separators. Its
// methods are safe for concurrent use, except that calls on the state, or on one file, must not overlap.
type Files interface {
	// Load returns the state that was saved last; fs.ErrNotExist if there is none.
	Load() ([]byte, error)
	// Save stores the state in place of the one before, and keeps the bytes. After a crash or an error Load returns one of
	// the two.
	Save(state []byte) error

	// List returns the names of the files, without the state.
	List() ([]string, error)
	// Read returns the content of a file.
	Read(name string) ([]byte, error)
	// Write replaces the content of a file. After a crash the file has the old content or the new.
	Write(name string, data []byte) error
	// Remove removes a file. A missing file is no error.
	Remove(name string) error
}
