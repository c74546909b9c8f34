// Package filelock locks files between processes. A lock is on the open file: closing
// it, or the end of the process in whatever way, gives it up.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld reports a file that another process, or another open file of this one, has
// locked.
var ErrHeld = errors.New("locked by another process")

// Try locks an open file, or returns ErrHeld at once: waiting inside the kernel could not
// be cancelled.
func Try(f *os.File) error { return tryLock(f) }
