package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// Ownership is what the tests of owners need.
type Ownership struct {
	backend.Owners
	// Fail ends the node as a crash does, or a cut that outlasts its leases, and returns the owners
	// as the next node sees them.
	Fail func() backend.Owners
}

// Owners tests owners. open returns owners of sessions that have none.
func Owners(t *testing.T, open func(testing.TB) Ownership) { runAll(t, ownerChecks, open) }

var ownerChecks = []check[Ownership]{
	{"one owner at a time", ownerExclusive},
	{"a held lease is renewed", ownerRenews},
	{"a released session has another owner", ownerReleases},
	{"a lost lease is told before the next", ownerLoses},
}

func isLost(l backend.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func ownerExclusive(t testing.TB, open func(testing.TB) Ownership) error {
	ctx, o := context.Background(), open(t)
	_, err := o.Acquire(ctx, "a")
	_, other := o.Acquire(ctx, "b")
	if err := errors.Join(err, other); err != nil {
		return err
	}
	if _, err := o.Acquire(ctx, "a"); !errors.Is(err, backend.ErrOwned) {
		return fmt.Errorf("acquiring an owned session returns %v", err)
	}
	return nil
}

func ownerRenews(t testing.TB, open func(testing.TB) Ownership) error {
	ctx := context.Background()
	l, err := open(t).Acquire(ctx, "a")
	if err != nil {
		return err
	}
	term := l.Term()
	for range 3 {
		if err := l.Renew(ctx); err != nil || isLost(l) || l.Term() != term || term == 0 {
			return fmt.Errorf("renewed it is of term %d, not %d, lost %t: %v", l.Term(), term, isLost(l), err)
		}
	}
	return nil
}

func ownerReleases(t testing.TB, open func(testing.TB) Ownership) error {
	ctx, o := context.Background(), open(t)
	first, err := o.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	if err := first.Release(ctx); err != nil || !isLost(first) {
		return fmt.Errorf("released, it is lost: %t, %v", isLost(first), err)
	}
	second, err := o.Acquire(ctx, "a")
	if err != nil || second.Term() <= first.Term() {
		return fmt.Errorf("it is acquired again with %v", err)
	}
	if err := first.Renew(ctx); !errors.Is(err, backend.ErrLost) {
		return fmt.Errorf("renewing a released lease returns %v", err)
	}
	if err := first.Release(ctx); err != nil || isLost(second) {
		return fmt.Errorf("releasing it twice ends the next lease, %v", err)
	}
	return second.Renew(ctx)
}

func ownerLoses(t testing.TB, open func(testing.TB) Ownership) error {
	ctx, o := context.Background(), open(t)
	old, err := o.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	l, err := o.Fail().Acquire(ctx, "a")
	if err != nil || l.Term() <= old.Term() {
		return fmt.Errorf("the next node acquires the session with %v", err)
	}
	if !isLost(old) {
		return errors.New("the session was acquired before the earlier lease was lost")
	}
	if err := old.Renew(ctx); !errors.Is(err, backend.ErrLost) {
		return fmt.Errorf("renewing a lost lease returns %v", err)
	}
	if _, err := o.Acquire(ctx, "a"); err == nil {
		return errors.New("the node that failed acquires the session of the next one")
	}
	return nil
}
