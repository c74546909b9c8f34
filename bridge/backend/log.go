package backend

import (
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// The parts of a log have the types of the local implementation.
type (
	// Entry is a numbered entry, or the log's new mark.
	Entry = segment.Entry
	// Recovered describes what Open found. Its Mark is the last mark that was appended. A log that
	// cannot lose anything sets nothing else.
	Recovered = segment.Recovered
)

// Logs opens the logs of sessions.
type Logs interface {
	// Open opens the log of a session for the owner of a term, and calls visit for every entry in
	// order. The body is valid during the call only. An entry for which visit returns an error is
	// skipped. A log that does not exist begins with the epoch; an existing one keeps its own.
	//
	// When Open returns, every Log of an earlier term refuses changes with ErrStale. Open itself
	// returns ErrStale if the session has had a later term.
	Open(session string, term, epoch uint64, visit func(number uint64, body []byte) error) (Log, Recovered, error)
}

// Log keeps numbered entries and a mark of one session. Numbers only grow and may have holes.
//
// Append, Replace, Trim, Rest and Delete are called from one goroutine at a time, the other
// methods from any. Append, Replace, Trim and Delete return ErrStale once the log was opened for a
// later term; the log is then unchanged. A call may block for as long as the storage does: the
// journal's writer watches the time.
type Log interface {
	// Remote reports whether the log is across a network. The journal's writer changes several remote logs at a time,
	// but local logs one after another, which is right for one disk. The answer does not change.
	Remote() bool
	// Epoch returns the epoch of the entries.
	Epoch() uint64
	// Last returns the number of the last entry, or of the last one that was trimmed if there is no
	// later one; 0 if there was none.
	Last() uint64
	// Trimmed returns the number of the last entry that was trimmed, 0 if none was.
	Trimmed() uint64
	// Size returns how many bytes the log takes; 0 only for a log to which nothing was appended.
	Size() int64

	// Append appends entries, all or none. last is the number of the last entry that the caller
	// knows of; if it is not the log's last one, Append returns ErrStale. The entries outlast the
	// process when Append returns.
	Append(last uint64, entries []Entry) error
	// Replace replaces all entries and the mark by entries of a later epoch, all or nothing.
	Replace(epoch uint64, entries []Entry) error
	// Read calls f for the entries after a number, in order, until f returns false. The body is
	// valid during the call only. If entries were lost, Read ends with a *segment.DamageError in
	// front of them, and can go on after its Through.
	Read(after uint64, f func(number uint64, body []byte) bool) error
	// Trim may remove the oldest entries while the log has more than maxBytes, or while they are
	// older than before; zero values set no limit. It returns Trimmed.
	Trim(maxBytes int64, before time.Time) (trimmed uint64, err error)
	// Delete removes the log and all other data of the session.
	Delete() error

	// Sync makes the entries outlast a crash of the machine. It returns the number of the last
	// entry for which that holds. After an error the next Append stores again what Sync could not
	// make safe.
	Sync() (through uint64, err error)
	// Rest releases open files. The next Append opens them again.
	Rest() error
}
