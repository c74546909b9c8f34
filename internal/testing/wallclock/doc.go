// Package wallclock moves the wall clock of a test's process, as a clock that is set does: time.Now jumps, and the
// monotonic clock, by which timers run, does not. The clocks of other processes and of the kernel stay: times of files,
// for example.
//
// It works on Linux on amd64, by other code in the process's copy of the vDSO, with which Go reads the clocks.
package wallclock

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
)

// Clock is a file that says by how much the clocks of processes differ from the machine's. One process sets it, and
// those that called Follow with its path follow at once, and again after a restart.
type Clock struct{ path string }

// New returns a clock that does not differ, in a new file.
func New(path string) (*Clock, error) {
	c := &Clock{path}
	return c, c.Set(0)
}

// Path is the file's path.
func (c *Clock) Path() string { return c.path }

// Set makes the clock differ by some whole seconds.
func (c *Clock) Set(by time.Duration) error {
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(by/time.Second)), 0); err != nil {
		return fmt.Errorf("setting a clock: %w", err)
	}
	return nil
}
