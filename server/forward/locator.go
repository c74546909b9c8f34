package forward

import (
	"context"
	"errors"
)

// ErrTaken reports that another replica has become the owner of a session.
var ErrTaken = errors.New("another replica has taken the session")

// Owner is a replica, for a session the one that has it.
type Owner struct {
	// Node is the replica's name; "" if no replica has the session.
	Node string
	// Address is the address of the replica's listener for other replicas, "HOST:PORT".
	Address string
	// Here reports that it is this replica.
	Here bool
}

// Locator knows which replica has a session. In its methods tenant is the caller's tenant, and session is what the
// caller named: the id of a session of its tenant, or the name of a shared one. Names need not be valid. A Locator is
// safe for concurrent use.
type Locator interface {
	// Locate returns the replica that has a session, or is to take it, as far as this replica knows; the zero Owner if
	// there is none, or if this replica is to take it.
	// It is called for every call and must be fast. For a session of this replica the answer must be certain.
	Locate(ctx context.Context, tenant, session string) (Owner, error)
	// Verify is Locate without memory: the answer is as of this call. It is called after a replica refused a call or
	// could not be reached.
	Verify(ctx context.Context, tenant, session string) (Owner, error)
	// Claim makes this replica the owner of a stored session that no replica has, or that this one is to take. It does
	// nothing if no such session is stored. It returns ErrTaken if another replica was faster.
	Claim(ctx context.Context, tenant, session string) error
	// Place returns the replica for a session that has none, "" for a new one without a name: this one, unless it
	// leaves its sessions to others, or lacks labels that the session needs. labels are those of a new session. The
	// error is a *fault.Error: no replica has the labels.
	Place(tenant, session string, labels map[string]string) (Owner, error)
	// Peers returns the other replicas that are alive.
	Peers() []Owner
}
