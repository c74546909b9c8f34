// Package holder finds the process of this machine that has a port, a socket or a directory, for errors about what is
// in use. It works on Linux, and for processes that the caller may look into: those of the same user, or all as root.
package holder

import (
	"fmt"
	"os"
)

// Process is a process.
type Process struct {
	PID int
	// Name is the name of its program; its arguments may have secrets.
	Name string
}

// String returns the process for people.
func (p Process) String() string {
	if p.PID == os.Getpid() {
		return "this process"
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}
