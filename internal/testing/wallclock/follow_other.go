//go:build !linux || !amd64

package wallclock

import (
	"errors"
	"fmt"
)

// Follow fails on this system.
func Follow(string) error {
	return fmt.Errorf("moving the wall clock: %w", errors.ErrUnsupported)
}
