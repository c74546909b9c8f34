// Package holder finds the process of this machine that has a port, a socket or a directory, for errors about what is
// in use. It works on Linux, and for processes that the caller may look into: those of the same user, or all as root.
package holder

import (
	"fmt"
	"os"
	"strings"
)

// Process is a process.
type Process struct {
	PID int
	// Name is the name of its program; its arguments may have secrets.
	Name string
}

func (p Process) String() string {
	if p.PID == os.Getpid() {
		return "this process"
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}

// SameProgram reports whether the process runs a program of the name of this one.
func (p Process) SameProgram() bool {
	own, err := os.ReadFile("/proc/self/comm")
	return err == nil && strings.TrimSpace(string(own)) == p.Name
}
