package clibin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// lockPoll is how often a held lock is tried; waiting for one inside the kernel
// could not be cancelled.
const lockPoll = 100 * time.Millisecond

// errLocked is what tryLock says when another process has the lock.
var errLocked = errors.New("locked by another process")

// fileLock is a lock between processes that ends with its holder, however that
// ends. The file itself stays: removing it would let two holders in.
type fileLock struct{ file *os.File }

func acquire(ctx context.Context, path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		err := tryLock(f)
		if err == nil {
			return &fileLock{f}, nil
		}
		if !errors.Is(err, errLocked) {
			f.Close()
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for another process that holds %q: %w", path, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

func (l *fileLock) release() { l.file.Close() }
