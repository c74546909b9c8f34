// Package filelock locks files between processes. A lock is on the open file: closing
// it, or the end of the process in whatever way, gives it up.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrHeld reports a file that another process, or another open file of this one, has
// locked.
var ErrHeld = errors.New("locked by another process")

// Try locks an open file, or returns ErrHeld at once: waiting inside the kernel could not
// be cancelled.
func Try(f *os.File) error { return tryLock(f) }

// poll is how often Wait tries.
const poll = 50 * time.Millisecond

// Wait locks an open file as soon as it can. When the context ends before, the error is
// ErrHeld and the context's cause.
//
// A process that was killed may seem to hold its lock for a moment: a child that it was just
// starting has all of its files open until it becomes another program.
func Wait(ctx context.Context, f *os.File) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if err := Try(f); !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrHeld, context.Cause(ctx))
		}
	}
}
