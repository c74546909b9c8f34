package session

import "context"

// slot is a lock that a goroutine waits for no longer than its context lasts. It has capacity 1.
type slot chan struct{}

// acquire takes the lock. It fails if ctx ends first.
func (s slot) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

// tryAcquire takes the lock and returns true if it is free.
func (s slot) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// release frees the lock.
func (s slot) release() { <-s }
