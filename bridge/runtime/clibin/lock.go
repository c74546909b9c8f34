package clibin

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is how often a held lock is tried again.
const lockPoll = 50 * time.Millisecond

// acquire waits for a lock between processes, which ends with its holder. Closing it releases
// it; the file stays, because removing it would let two holders in.
func acquire(ctx context.Context, path string) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR))
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return lock, nil
}
