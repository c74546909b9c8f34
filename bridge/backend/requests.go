package backend

import (
	"context"
	"time"
)

// MaxInline is the size in bytes of the largest answer that stays in memory if the log of requests has it too.
const MaxInline = 1 << 10

// Request is what is remembered of a request that may arrive again.
type Request struct {
	Key     Key
	Sum     []byte // the request's digest
	Expires time.Time
	// Type and Answer are the answer. A request without a type was begun, and its outcome is not
	// known; Since is what was true when it began.
	Type   string
	Answer []byte
	Since  []byte
	// Over: the request failed, and can be made again.
	Over bool
	// Bytes is the size of the answer, also where Answer is empty because only the log has it.
	Bytes int64
	// Old says that the record was written by a version without quotas.
	Old bool
}

// Requests remembers requests beyond the end of the process. Only the latest record of a key
// counts. It is safe for concurrent use.
//
// Opening it, which is up to the implementation, returns the requests that are neither over nor
// expired, the first to expire first. An answer of more than MaxInline bytes may be
// left out of them, with its size in Bytes: Answer reads it.
type Requests interface {
	// Add remembers a request. When Add returns, the record outlasts the process.
	Add(r Request) error
	// Answer returns the type of an answer and the answer.
	Answer(key Key) (typ string, answer []byte, err error)
	// Forget drops the record of a request, unless the record expires later than that.
	Forget(key Key, expires time.Time)
	// Compact frees the space of records that do not count, until ctx ends.
	Compact(ctx context.Context) error
	// Close ends the use of the log.
	Close() error
}
