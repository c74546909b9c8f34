package clibin

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is the interval of attempts to take a held lock.
const lockPoll = 50 * time.Millisecond

// acquire waits for a lock between processes. The operating system releases it when its holder exits; Close releases
// it too. The file stays: removing it could let two processes hold the lock.
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
