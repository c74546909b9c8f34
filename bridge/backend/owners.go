package backend

import (
	"context"
	"errors"
)

var (
	// ErrOwned reports a session that has another owner.
	ErrOwned = errors.New("the session has another owner")
	// ErrLost reports a lease that has ended.
	ErrLost = errors.New("the ownership of the session was lost")
)

// Owners decides who owns a session. It is safe for concurrent use.
type Owners interface {
	// Acquire makes the caller the owner of a session. It returns ErrOwned while another lease is
	// held, also by the same process. The lease has a later term than every earlier one.
	Acquire(ctx context.Context, session string) (Lease, error)
}

// Lease is the ownership of a session. The owner renews it in time and serves the session until
// Lost is closed. It is safe for concurrent use.
type Lease interface {
	// Term returns the lease's term.
	Term() uint64
	// Renew extends the lease. ErrLost is final; after any other error the lease is still held
	// until Lost is closed.
	Renew(ctx context.Context) error
	// Lost returns a channel that is closed when the lease ends: before anyone else can acquire
	// the session.
	Lost() <-chan struct{}
	// Release ends the lease, so that the session can be acquired at once. Releasing a lease that
	// has ended is no error, and does not touch the next one.
	Release(ctx context.Context) error
}
