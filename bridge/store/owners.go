package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// Owners decides who owns a session. The lock of the data directory keeps other processes out, so
// that a lease needs no renewal: it is held until it is released or the store is closed.
func (s *Store) Owners() backend.Owners { return s.owners }

// owners implements backend.Owners. Its mutex guards what follows it.
type owners struct {
	nextTerm func() (uint64, error)

	mu     sync.Mutex
	held   map[string]*lease
	closed bool
}

func newOwners(nextTerm func() (uint64, error)) *owners {
	return &owners{nextTerm: nextTerm, held: map[string]*lease{}}
}

// Acquire implements backend.Owners.
func (o *owners) Acquire(_ context.Context, session string) (backend.Lease, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, fmt.Errorf("acquiring session %q: the data directory is closed: %w", session, backend.ErrLost)
	}
	if o.held[session] != nil {
		return nil, fmt.Errorf("acquiring session %q: %w", session, backend.ErrOwned)
	}
	term, err := o.nextTerm()
	if err != nil {
		return nil, fmt.Errorf("acquiring session %q: %w", session, err)
	}
	l := &lease{owners: o, session: session, term: term, lost: make(chan struct{})}
	o.held[session] = l
	return l, nil
}

// close ends all leases.
func (o *owners) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, l := range o.held {
		close(l.lost)
	}
	clear(o.held)
}

// lease implements backend.Lease.
type lease struct {
	owners  *owners
	session string
	term    uint64
	lost    chan struct{} // closed under the owners' mutex, when the lease leaves held
}

// Term implements backend.Lease.
func (l *lease) Term() uint64 { return l.term }

// Lost implements backend.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Renew implements backend.Lease.
func (l *lease) Renew(context.Context) error {
	l.owners.mu.Lock()
	defer l.owners.mu.Unlock()
	if l.owners.held[l.session] != l {
		return fmt.Errorf("session %q: %w", l.session, backend.ErrLost)
	}
	return nil
}

// Release implements backend.Lease.
func (l *lease) Release(context.Context) error {
	l.owners.mu.Lock()
	defer l.owners.mu.Unlock()
	if l.owners.held[l.session] == l {
		delete(l.owners.held, l.session)
		close(l.lost)
	}
	return nil
}
