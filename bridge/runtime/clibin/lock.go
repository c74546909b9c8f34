package clibin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/filelock"
)

// lockPoll is how often a held lock is tried.
const lockPoll = 100 * time.Millisecond

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
		err := filelock.Try(f)
		if err == nil {
			return &fileLock{f}, nil
		}
		if !errors.Is(err, filelock.ErrHeld) {
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
